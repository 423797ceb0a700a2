"""Learned strengths beside the fixed one."""

from repro.protocols.unsupervised.variants import STRENGTHS_HEADER as HEADER
from repro.protocols.unsupervised.variants import strength_lines


def record(dataset, method, seed, accuracies):
    cell = {"dataset": dataset, "method": method, "seed": seed, "inductive": False}
    return {"cell": cell, "scores": {"partitions": [{"accuracies": accuracies, "fold_hash": str(seed)}]}}


def test_page_matches_a_hand_computation():
    found = [
        *(record("MUTAG", "joao", 0, [0.5, 0.5]), record("MUTAG", "joao", 1, [0.6, 0.6])),
        *(record("MUTAG", "joao_strengths", 0, [0.6, 0.6]), record("MUTAG", "joao_strengths", 1, [0.7, 0.7])),
        *(record("NCI1", "joao", 0, [0.8, 0.9]), record("NCI1", "joao_strengths", 1, [0.8, 0.8])),
        record("DD", "joao", 0, [0.1, 0.1]),
    ]
    mutag, nci1, average = strength_lines(found)
    assert mutag == ["MUTAG", "55.00 ± 7.07", "65.00 ± 7.07", "+10.00 (+10.00 to +10.00)", "2"]
    assert nci1 == ["NCI1", "85.00", "80.00", "", "1"]  # no seed in common
    assert average[1:] == ["70.00", "72.50", "+2.50", ""]
    assert "2" in average[0]
    assert len(HEADER) == 5


def test_page_needs_records_of_both_methods():
    assert strength_lines([record("DD", "joao", 0, [0.1, 0.1])]) == []
