"""Building blocks: graph batches, padded batches, randomness, errors, files and processes.

This room knows no data formats, models or commands.
"""
