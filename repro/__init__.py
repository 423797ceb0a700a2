"""The paper's tables, figures and findings, from a clone: ``python -m repro``."""
