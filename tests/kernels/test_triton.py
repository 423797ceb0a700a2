"""The Triton kernels against the plain torch forms, run by Triton's interpreter, which needs no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "interpreted.py"
CASES = (
    "copy_graphs rank_within_groups first_passage gin_layer relu_norm batch_norm sums molecule_sums nt_xent svm_dual"
)
LOW_PRECISION = "gin_layer_bf16 relu_norm_bf16 sums_bf16 molecule_sums_bf16"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("cases", [CASES, pytest.param(LOW_PRECISION, marks=pytest.mark.slow)])
def test_triton_kernels_match_their_plain_forms(cases):
    # Triton decides when it is imported whether to interpret: this needs a process of its own, one for all cases.
    names, environment = cases.split(), {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *names], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-3000:]}"
    assert done.stdout.splitlines() == [f"{name}: equal" for name in names]
