"""Objectives without JOAO and with it, side by side."""

from repro.protocols.unsupervised.variants import OBJECTIVES_HEADER as HEADER
from repro.protocols.unsupervised.variants import objective_lines


def record(method, seed, accuracies):
    cell = {"dataset": "MUTAG", "method": method, "seed": seed, "inductive": False}
    return {"cell": cell, "scores": {"partitions": [{"accuracies": accuracies, "fold_hash": str(seed)}]}}


def test_page_matches_a_hand_computation():
    found = [
        *(record("uniform", 0, [0.5, 0.5]), record("uniform", 1, [0.6, 0.6])),
        *(record("joao", 0, [0.6, 0.6]), record("joao", 1, [0.7, 0.7])),
        *(record("barlow_twins_uniform", 0, [0.5, 0.7]), record("barlow_twins_joao", 1, [0.5, 0.5])),
        record("bootstrap_joao", 0, [0.5, 0.5]),
    ]
    assert objective_lines(found) == [
        ["MUTAG", "NT-Xent", "55.00 ± 7.07", "65.00 ± 7.07", "+10.00 (+10.00 to +10.00)", "2"],
        ["MUTAG", "Barlow Twins", "60.00", "50.00", "", "1"],  # no seed in common
    ]
    assert len(HEADER) == 6
