"""The same on a GPU. Skipped, visibly, where torch sees none."""

from dataclasses import replace

import pytest
import torch

from joao.core.provenance import peak_memory
from repro.benchmarks.measure import measure
from repro.benchmarks.plan import Plan

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

TINY = Plan(("molecules",), devices=("cuda",), repeats=1, width=4, layers=2, batch_size=4, quick=True)


def test_fast_and_plain_path_are_measured():
    (setting,) = measure(TINY)["settings"]
    (workload,) = setting["workloads"]
    assert setting["machine"]["device"] == "cuda"
    assert {"GraphCL step", "GraphCL step, fast", "JOAO step, fast", "GraphCL floor"} <= set(workload["rows"])
    assert all(row["peak bytes"] > 0 for row in workload["rows"].values())
    assert "GraphCL step / GraphCL step, fast" in workload["ratios"]


def test_molecules_use_their_pre_training_encoder():
    plan = replace(TINY, width=None, layers=None, batch_size=None, rivals=False)
    workload = measure(plan)["settings"][0]["workloads"][0]
    assert workload["encoder"] == "gin 5x300"


def test_peak_memory_is_the_maximum_allocated():
    def run():
        for _ in range(3):
            torch.ones(2**24, device="cuda")  # 64 MiB, one after another

    assert 2**26 <= peak_memory(run, "cuda") < 1.1 * 2**26
