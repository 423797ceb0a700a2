"""The same on a GPU. Skipped, visibly, where torch sees none."""

from dataclasses import replace

import pytest
import torch

from joao.core.memory import peak_memory
from repro.benchmarks.measure import measure
from repro.benchmarks.plan import Plan

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

TINY = Plan(("molecules",), devices=("cuda",), repeats=1, width=4, layers=2, batch_size=4, quick=True)


def test_the_fast_path_is_measured_beside_the_plain_one():
    (setting,) = measure(TINY)["settings"]
    (workload,) = setting["workloads"]
    assert setting["machine"]["device"] == "cuda"
    assert {"GraphCL step", "GraphCL step, fast", "JOAO step, fast", "GraphCL floor"} <= set(workload["rows"])
    assert all(row["peak bytes"] > 0 for row in workload["rows"].values())
    assert "GraphCL step / GraphCL step, fast" in workload["ratios"]


def test_molecules_have_the_encoder_they_are_pre_trained_with():
    plan = replace(TINY, width=None, layers=None, batch_size=None, rivals=False)
    workload = measure(plan)["settings"][0]["workloads"][0]
    assert workload["encoder"] == "gin 5x300"


def test_the_peak_is_what_was_allocated_at_once():
    def run():
        for _ in range(3):
            torch.ones(2**24, device="cuda")  # 64 MiB, one after another

    assert 2**26 <= peak_memory(run, "cuda") < 1.1 * 2**26
