"""A record holds every repeat, and its figures follow from them."""

import json
import os
import statistics

import pytest
import torch

from repro.benchmarks import measure as measuring
from repro.benchmarks.measure import Setting, measure, num_stages, settings_of
from repro.benchmarks.plan import Plan
from repro.benchmarks.rivals import GEOMETRIC
from repro.benchmarks.side_by_side import ratios

TINY = Plan(("molecules",), repeats=2, width=4, layers=2, batch_size=4, quick=True)


@pytest.fixture(scope="module")
def record():
    return measure(TINY)


def test_record_is_json_with_provenance(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert {"command", "versions", "seed", "repeats", "quick", "settings"} <= record.keys()
    (setting,) = record["settings"]
    assert setting["machine"]["threads"] == 1
    assert setting["machine"]["device"] == "cpu"
    assert setting["roof"]["GFLOP/s"] > 0


def test_figures_are_computed_from_the_repeats(record):
    (workload,) = record["settings"][0]["workloads"]
    assert workload["origin"].startswith("made: ")
    assert workload["graphs"] == 40
    rows = workload["rows"]
    own = ["GraphCL step", "GraphCL floor", "GraphCL floor, scatter", "JOAO step", "JOAO floor"]
    assert list(rows)[:5] == own
    fast = {"GraphCL step, fast", "JOAO step, fast"}
    assert {*own, GEOMETRIC} <= {*rows}
    assert fast <= {*rows} or fast <= {*workload["not measured"]}  # with or without a compiled core
    for row in rows.values():
        assert len(row["seconds"]["wall"]) == len(row["seconds"]["cpu"]) == 2
        median = statistics.median(row["seconds"]["wall"]) / row["steps"]
        assert row["ms per step"]["median"] == pytest.approx(1000 * median)
        assert row["graphs per second"] == pytest.approx(4 / median)
    assert [rows[name]["steps"] for name in ("GraphCL step", "GraphCL floor", GEOMETRIC)] == [10, 10, 10]
    floor, work = rows["GraphCL floor"], workload["work of a step"]["GraphCL"]
    assert floor["GFLOP/s"] == pytest.approx(work["flop"] / floor["ms per step"]["median"] / 1e6)
    assert "GFLOP/s" not in rows[GEOMETRIC]
    step, other = (rows[name]["seconds"]["wall"] for name in ("JOAO step", "GraphCL step"))
    paired = statistics.median(one / two for one, two in zip(step, other, strict=True))
    assert workload["ratios"]["JOAO step / GraphCL step"]["median"] == pytest.approx(paired)


def test_record_has_all_parts(record):
    parts = record["settings"][0]["workloads"][0]["parts"]
    augmentations = {"node_drop", "subgraph", "edge_perturb", "attribute_mask", "identity"}
    assert augmentations | {"gather a batch", "backward", "lower level, all pairs of a batch"} <= set(parts)
    assert all(len(part["seconds"]["wall"]) == 4 for part in parts.values())


def test_ratios_use_measured_rows():
    found = ratios({"GraphCL step": [4.0, 6.0], "GraphCL floor": [2.0, 2.0], GEOMETRIC: [40.0, 120.0]})
    assert {name: value.median for name, value in found.items()} == {
        "GraphCL step / GraphCL floor": 2.5,
        f"{GEOMETRIC} / GraphCL step": 15.0,
    }


def test_cpu_is_measured_once_per_number_of_threads():
    plan = Plan(devices=("cpu", "cpu"), threads=(1, 2), scaling=True, quick=True)
    assert settings_of(plan) == [Setting("cpu", 1), Setting("cpu", 2)]
    assert num_stages(plan) == 2 * (5 + 4)


def test_threads_are_restored_after_measuring(monkeypatch):
    seen = []
    monkeypatch.setattr(measuring, "measure_roof", lambda device, repeats: seen.append(torch.get_num_threads()) or {})
    monkeypatch.setattr(measuring, "measure_workload", lambda workload, plan, device: {})
    before = torch.get_num_threads()
    measuring.measure_setting(TINY, Setting("cpu", 3))
    assert (seen, torch.get_num_threads()) == ([3], before)


def test_every_setting_gets_a_new_process_with_its_threads(monkeypatch):
    """Oracle: a stand-in for the new process, which notes the environment that it would inherit."""
    started = []

    def in_process(compute, settings, jobs):
        assert (compute.func, len(settings), jobs) == (measuring.measure_setting, 1, 1)
        started.append((os.environ["OMP_NUM_THREADS"], settings[0].threads))
        return [(0, {"setting": settings[0].threads})]

    monkeypatch.setattr(measuring, "map_in_processes", in_process)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    told = []
    plan = Plan(("molecules", "NCI1"), threads=(1, 2), quick=True)
    record = measure(plan, on_stage=told.append)
    assert started == [("1", 1), ("2", 2)]
    assert record["settings"] == [{"setting": 1}, {"setting": 2}]
    assert record["own process for each setting"]
    assert len(told) == num_stages(plan) == 4
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.slow
def test_a_new_process_measures(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plan = Plan(("molecules",), threads=(1, 2), repeats=1, width=2, layers=1, batch_size=2, rivals=False, quick=True)
    record = measure(plan)
    assert [setting["machine"]["threads"] for setting in record["settings"]] == [1, 2]
    assert all(setting["workloads"][0]["rows"] for setting in record["settings"])
