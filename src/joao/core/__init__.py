"""What everything else builds on: graph batches, padded batches, randomness, errors, files and processes.

Nothing here knows a data format, a model or a command.
"""
