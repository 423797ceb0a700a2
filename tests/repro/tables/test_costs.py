"""The cost of the table's rows."""

from repro.protocols.unsupervised.variants import COSTS_HEADER as HEADER
from repro.protocols.unsupervised.variants import cost_lines
from repro.tables.names import NAMES

CPU = {"processor": "a processor", "device": "cpu"}
GPU = {"processor": "a processor", "device": "cuda", "gpu": "a card"}


def record(seed, seconds, machine=CPU, **more):
    cell = {"dataset": "MUTAG", "method": "wl", "seed": seed, "inductive": False}
    return {"cell": cell, "scores": {"mean": 0.8 + seed / 100}, "machine": machine, **more} | (
        {} if seconds is None else {"seconds of pre-training": seconds}
    )


def test_page_matches_a_hand_computation():
    found = [
        record(0, 1.0, **{"peak bytes": 3_000_000}),
        record(1, 2.0, **{"peak bytes": 9_000_000}),
        record(2, 9.0, **{"peak bytes": None}),
        record(3, 0.5, GPU),
        record(4, None),
    ]
    on_cpu, on_gpu = cost_lines(found)
    assert on_cpu[:5] == ["MUTAG", NAMES["wl"], "81.0", "2.0", "9"]
    assert CPU["processor"] in on_cpu[5]
    assert on_gpu == ["MUTAG", NAMES["wl"], "83.0", "0.5", "", "a card"]
    assert len(HEADER) == 6
