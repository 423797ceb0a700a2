"""Learned strengths beside the fixed one."""

from repro.protocols.unsupervised.variants import STRENGTHS_HEADER as HEADER
from repro.protocols.unsupervised.variants import strength_lines


def record(dataset, method, seed, accuracies):
    cell = {"dataset": dataset, "method": method, "seed": seed, "inductive": False}
    return {"cell": cell, "scores": {"partitions": [{"accuracies": accuracies, "fold_hash": str(seed)}]}}


def test_by_hand():
    found = [
        *(record("MUTAG", "joao", 0, [0.5, 0.5]), record("MUTAG", "joao", 1, [0.6, 0.6])),
        *(record("MUTAG", "joao_strengths", 0, [0.6, 0.6]), record("MUTAG", "joao_strengths", 1, [0.7, 0.7])),
        *(record("NCI1", "joao", 0, [0.8, 0.9]), record("NCI1", "joao_strengths", 1, [0.8, 0.8])),
        record("DD", "joao", 0, [0.1, 0.1]),
    ]
    assert [dict(zip(HEADER, line, strict=True)) for line in strength_lines(found)] == [
        {
            "data": "MUTAG",
            "JOAO at 0.2, accuracy %": "55.00 ± 7.07",
            "JOAO, strengths learned, accuracy %": "65.00 ± 7.07",
            "gain (95 %)": "+10.00 (+10.00 to +10.00)",
            "seeds": "2",
        },
        {
            "data": "NCI1",
            "JOAO at 0.2, accuracy %": "85.00",
            "JOAO, strengths learned, accuracy %": "80.00",
            "gain (95 %)": "",  # no seed in common
            "seeds": "1",
        },
        {
            "data": "average of 2",
            "JOAO at 0.2, accuracy %": "70.00",
            "JOAO, strengths learned, accuracy %": "72.50",
            "gain (95 %)": "+2.50",
            "seeds": "",
        },
    ]


def test_nothing_without_records_of_both():
    assert strength_lines([record("DD", "joao", 0, [0.1, 0.1])]) == []
