"""Graph contrastive learning that chooses its own augmentations."""

__version__ = "0.1.0.dev0"
