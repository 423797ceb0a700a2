"""Training in several processes that share every batch."""
