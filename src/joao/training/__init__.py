"""Algorithm 1 and fine-tuning: model, steps, epochs, checkpoints.

``fast`` trains on padded batches, ``distributed`` in several processes; training on one CPU needs neither.
"""
