"""The paper's tables, figures and findings, from a clone: ``python -m repro``."""

import os

# Records are computed on the plain path, whatever was built on a machine; JOAO_NATIVE=avx512 is a different experiment.
os.environ.setdefault("JOAO_NATIVE", "off")
