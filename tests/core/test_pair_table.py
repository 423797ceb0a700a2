"""Numbers for pairs of augmentations are asked for by name."""

import copy
import pickle
import re

import numpy as np
import pytest

from joao.core.pair_table import PairTable
from tests.messages import refused

TABLE = PairTable.of(["drop", "mask", "same"], [[0.1, 0.3, 0.0], [0.2, 0.1, 0.0], [0.3, 0.0, 0.0]])


def test_rows_are_first_views_and_columns_second():
    assert TABLE["drop", "mask"] == 0.3
    assert TABLE["mask", "drop"] == 0.2


@pytest.mark.parametrize("pair", [("drop", "dorp"), ("dorp", "drop")])
def test_a_name_that_is_not_there(pair):
    with refused("'dorp'", "'drop'"):
        TABLE[pair]


def test_top_is_sorted_and_ties_keep_the_order_of_the_table():
    assert TABLE.top(4) == [("drop", "mask", 0.3), ("same", "drop", 0.3), ("mask", "drop", 0.2), ("drop", "drop", 0.1)]
    assert len(TABLE.top(100)) == 9


def test_share_of_each_augmentation_over_both_sides():
    # First views: drop 0.4, mask 0.3, same 0.3; second views: drop 0.6, mask 0.4, same 0.
    assert TABLE.by_augmentation() == pytest.approx({"drop": 0.5, "mask": 0.35, "same": 0.15})


def test_counts_become_shares():
    counts = PairTable.of(["a", "b"], [[2, 2], [0, 4]])
    assert counts.by_augmentation() == pytest.approx({"a": 6 / 16, "b": 10 / 16})


def test_pandas_has_the_names_on_both_sides():
    frame = TABLE.to_pandas()
    assert frame.loc["mask", "drop"] == 0.2
    assert list(frame.index) == list(frame.columns) == list(TABLE.names)


def test_text_is_aligned():
    assert str(PairTable.of(["a", "longer_name"], [[0.5, 0.25], [0.25, 0]])).splitlines() == [
        "                 a  longer_name",
        "a            0.500        0.250",
        "longer_name  0.250        0.000",
    ]


@pytest.mark.parametrize("copied", [copy.deepcopy(TABLE), pickle.loads(pickle.dumps(TABLE))])
def test_copies_are_equal(copied):
    assert copied.names == TABLE.names
    np.testing.assert_array_equal(copied.values, TABLE.values)


MEMBERS = ["a(strength=0.1)", "a(strength=0.2)", "b(strength=0.1)", "b(strength=0.2)", "same"]


def test_strengths_are_summed_over_and_shown_by_augmentation():
    values = np.random.default_rng(0).random((5, 5))
    table = PairTable.of(MEMBERS, values)
    summed = table.over_strengths()
    assert summed.names == ("a", "b", "same")
    for first in summed.names:
        for second in summed.names:
            cells = [
                values[i, j]
                for i, one in enumerate(MEMBERS)
                for j, other in enumerate(MEMBERS)
                if one.startswith(first) and other.startswith(second)
            ]
            assert summed[first, second] == pytest.approx(sum(cells))
    shares = table.by_augmentation()
    assert table.by_strength() == {
        "a": {"0.1": shares[MEMBERS[0]], "0.2": shares[MEMBERS[1]]},
        "b": {"0.1": shares[MEMBERS[2]], "0.2": shares[MEMBERS[3]]},
        "same": {"-": shares["same"]},
    }
    assert (table.has_strengths, summed.has_strengths) == (True, False)


def test_a_table_without_strengths_is_its_own_sum():
    assert not TABLE.has_strengths
    np.testing.assert_array_equal(TABLE.over_strengths().values, TABLE.values)
    assert TABLE.over_strengths().names == TABLE.names


def test_a_notebook_shows_a_heat_map():
    table = PairTable.of(["node_drop", "<b>"], [[0.5, 0.25], [0.25, 0.0]])
    shown = table._repr_html_()
    assert "<b>" not in shown
    assert re.findall(r">([^<>]+)</t[hd]>", shown) == [
        *("first \\ second", "node drop", "&lt;b&gt;"),
        *("node drop", "0.500", "0.250", "&lt;b&gt;", "0.250", "0.000"),
    ]
    colours = re.findall(r"background:rgb\(([^)]*)\);color:(#...)", shown)
    assert colours[0] == ("254,232,56", "#000")  # the largest
    assert colours[3] == ("0,34,78", "#fff")  # nothing
    assert colours[1] == colours[2] == ("112,113,115", "#fff")  # half of it
    assert PairTable.of(["a"], [[0.0]])._repr_html_()
