"""Single studies, each run as ``python -m repro.studies.NAME``."""
