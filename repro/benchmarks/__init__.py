"""Speed benchmarks: the training step, compared with its lower bound and with other implementations."""
