"""Rows of the OGB table against figures worked out by hand."""

import math

import pytest

from repro.protocols.ogb.table import HEADER, cells_of, rows
from repro.tables.paper import ogb
from tests.messages import assert_mentions


def record(method, test, dataset="ogbg-ppa", rate=10, split_hash="same"):
    return {
        "cell": {"dataset": dataset, "method": method, "label_rate": rate},
        "scores": {"seed": [*range(len(test))], "test": test},
        "split": {"labelled": 7820},
        "split_hash": split_hash,
        "finetuning": {"metric": "accuracy"},
        "recipe": {"training": {"epochs": 100}, "encoder": {"layers": 5, "width": 300}},
        "pre-training": None if method == "none" else {"graphs": 78200},
    }


RECORDS = [record("none", [0.50, 0.60]), record("joao", [0.70, 0.64])]


def test_row_matches_a_hand_computation():
    none, joao = rows(RECORDS)
    assert (none.mean, none.gain, none.pretraining) == (pytest.approx(55), None, "")
    # One pre-training says nothing about another: the gain has no interval.
    assert joao.gain.mean == pytest.approx(12)
    assert (joao.gain.low, joao.gain.high) == (-math.inf, math.inf)
    line = cells_of(joao)
    assert line[6] == "+12.00"
    assert len(line) == len(HEADER)
    assert (line[1], line[4]) == ("10 % (7820)", "67.00 ± 4.24")
    assert line[7:10] == ["60.91 ± 0.83", "+6.09", "5 x 300"]
    assert_mentions(line[10], "78,200", "100 epochs")


def test_scores_with_different_labels_are_not_compared():
    assert rows([RECORDS[0], record("joao", [0.7, 0.8], split_hash="other")])[1].gain is None
    assert rows([RECORDS[0], record("joao", [0.7, 0.8], rate=1)])[1].gain is None


def test_ogbg_code2_is_compared_with_the_figures_of_ogbg_code():
    assert ogb("none", "ogbg-code2", 1).mean == 6.06
    assert ogb("joao", "ogbg-molbbbp", 1) is None
    assert ogb("joao", "ogbg-ppa", 5) is None
