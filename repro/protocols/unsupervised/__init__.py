"""Frozen embeddings scored by an SVM (the paper's Table 5)."""
