"""Data sets larger than memory: folders of packed files, and the store that reads batches from them."""
