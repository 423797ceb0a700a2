"""Objectives without JOAO and with it, side by side."""

from repro.protocols.unsupervised.variants import OBJECTIVES_HEADER as HEADER
from repro.protocols.unsupervised.variants import objective_lines


def record(method, seed, accuracies):
    cell = {"dataset": "MUTAG", "method": method, "seed": seed, "inductive": False}
    return {"cell": cell, "scores": {"partitions": [{"accuracies": accuracies, "fold_hash": str(seed)}]}}


def test_by_hand():
    found = [
        *(record("uniform", 0, [0.5, 0.5]), record("uniform", 1, [0.6, 0.6])),
        *(record("joao", 0, [0.6, 0.6]), record("joao", 1, [0.7, 0.7])),
        *(record("barlow_twins_uniform", 0, [0.5, 0.7]), record("barlow_twins_joao", 1, [0.5, 0.5])),
        record("bootstrap_joao", 0, [0.5, 0.5]),
    ]
    assert [dict(zip(HEADER, line, strict=True)) for line in objective_lines(found)] == [
        {
            "data": "MUTAG",
            "objective": "NT-Xent",
            "uniform, accuracy %": "55.00 ± 7.07",
            "JOAO, accuracy %": "65.00 ± 7.07",
            "gain by JOAO (95 %)": "+10.00 (+10.00 to +10.00)",
            "seeds": "2",
        },
        {
            "data": "MUTAG",
            "objective": "Barlow Twins",
            "uniform, accuracy %": "60.00",
            "JOAO, accuracy %": "50.00",
            "gain by JOAO (95 %)": "",  # no seed in common
            "seeds": "1",
        },
    ]
