"""Speed: the training step beside its lower bound and beside other implementations."""
