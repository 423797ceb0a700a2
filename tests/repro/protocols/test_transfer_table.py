"""Rows of the transfer table against figures worked out by hand."""

import math

import pytest

from joao.evaluation.statistics import Gain
from repro.intervals import estimate_difference
from repro.protocols.transfer.run import record_file
from repro.protocols.transfer.table import HEADER, cells_of, rows
from repro.tables.pages import transfer_pages
from tests.messages import assert_mentions, refused


def record(method, test, last=None, dataset="bbbp", corpus=None, split_hash="same"):
    return {
        "cell": {"dataset": dataset, "method": method},
        "scores": {"seed": [*range(len(test))], "test": test} | ({"last_test": last} if last else {}),
        "split_hash": split_hash,
        "corpus": corpus,
        "recipe": {"training": {"epochs": 2}},
    }


ZINC = {"molecules": 1234567, "data": "zinc", "fingerprint": "a"}
RECORDS = [
    record("none", [0.60, 0.70], [0.5, 0.6]),
    record("joao", [0.70, 0.76], [0.8, 0.7], corpus=ZINC),
    record("ecfp", [0.9, 0.8]),
]


def test_row_matches_a_hand_computation():
    none, joao, forest = rows(RECORDS)
    assert (joao.mean, joao.last_mean, joao.num_seeds) == (pytest.approx(73), pytest.approx(75), 2)
    assert joao.std == pytest.approx(6 / 2**0.5)
    assert none.gain is None
    # One pre-training says nothing about another; every run of a forest is a seed.
    assert joao.gain == Gain(pytest.approx(8), -math.inf, math.inf)
    assert forest.gain == estimate_difference([90, 80], [60, 70]).interval()
    assert joao.last_gain == Gain(pytest.approx(20), -math.inf, math.inf)
    assert forest.last_mean is None
    assert (
        forest.last_gain == estimate_difference([90, 80], [50, 60]).interval()
    )  # has no epochs: the same scores by both rules
    line = cells_of(joao)
    assert len(line) == len(HEADER)
    assert line[2] == "75.00 ± 7.07"
    assert line[3:6] == ["+20.00", "73.00 ± 4.24", "+8.00"]
    assert line[7:9] == ["70.2 ± 1.0", "+4.78"]
    assert_mentions(line[9], "1,234,567", "zinc", "2 epochs")
    assert line[10] == ""
    assert cells_of(forest)[2] == ""


def test_scores_on_different_splits_are_not_compared():
    _, joao = rows([RECORDS[0], record("joao", [0.7, 0.8], split_hash="other", corpus=ZINC)])
    assert joao.gain is None


def test_encoders_of_different_corpora_are_not_combined():
    other = record("infomax", [0.7], corpus={**ZINC, "fingerprint": "b", "data": "mine"})
    with refused("records", "zinc, mine"):
        rows([*RECORDS, other])


def test_documents_are_written_from_records(tmp_path):
    record_file(tmp_path).write(*RECORDS)
    pages = transfer_pages(tmp_path).texts
    assert pages["table.md"].count("| bbbp |") == 3
    assert "(70.2, +2.8) [2] | 73.0 (70.2, +2.8) |" in pages["overview.md"]
    assert "(70.2, +4.8) [2] | 75.0 (70.2, +4.8) |" in pages["overview.md"]
    assert "repeats.md" not in pages
