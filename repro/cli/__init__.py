"""The commands of ``python -m repro``."""
