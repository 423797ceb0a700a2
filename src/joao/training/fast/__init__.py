"""Training on padded batches, which a GPU can record once and replay."""
