"""One file per input format, and the code they share for reading text and compressed files.

A reader returns what it found to :func:`joao.data.validation.make_dataset`, which checks it.
"""
