"""How good embeddings are: downstream protocols, the baselines beside them, and their uncertainty."""
