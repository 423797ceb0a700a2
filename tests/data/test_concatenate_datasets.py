"""Oracle: the data sets that were joined, graph by graph."""

from dataclasses import replace

import numpy as np
import pytest

from joao.data import read
from joao.data.dataset import Failure, concatenate_datasets
from joao.data.synthetic import random_graphs
from joao.runs.result_files import source_rows
from tests.data.refusals import refused

FIRST = random_graphs(5, mean_nodes=4, seed=1, num_edge_attributes=2)
SECOND = random_graphs(3, mean_nodes=6, seed=2, num_edge_attributes=2)


def test_parts_are_concatenated_in_order():
    whole = concatenate_datasets([FIRST, SECOND], "both")
    assert (len(whole), whole.name) == (8, "both")
    assert whole[:5].fingerprint == FIRST.fingerprint
    assert whole[5:].fingerprint == SECOND.fingerprint
    assert whole.labels.tolist() == [*FIRST.labels, *SECOND.labels]
    assert concatenate_datasets([FIRST]) is FIRST


def test_concatenating_single_graphs_restores_the_data_set(assert_equal):
    assert_equal(read([*FIRST]), FIRST)
    assert read([SECOND, FIRST]).fingerprint == concatenate_datasets([SECOND, FIRST]).fingerprint


def test_classes_and_tasks_are_matched_by_name():
    first = replace(FIRST, class_names=("a", "b"), targets=np.ones((5, 1), np.float32), target_names=("t",))
    second = replace(SECOND, class_names=("b", "c"), graph_names=("x", "y", "z"))
    third = replace(SECOND, classes=None, class_names=(), targets=np.zeros((3, 2), np.float32), target_names=("u", "t"))
    whole = concatenate_datasets([first, second, third])
    assert whole.labels.tolist() == [*first.labels, *second.labels, "", "", ""]
    assert whole.target_names == ("t", "u")
    np.testing.assert_array_equal(whole.targets[:, 0], [1] * 5 + [np.nan] * 3 + [0] * 3)
    np.testing.assert_array_equal(whole.targets[:, 1], [np.nan] * 8 + [0] * 3)
    assert whole.graph_names == ("",) * 5 + ("x", "y", "z") + ("",) * 3


def test_groups_of_different_data_sets_stay_separate():
    """Number 0 is one scaffold here and another one there."""
    first, second = replace(FIRST, groups=np.arange(5)), replace(SECOND, groups=np.array([0, 9, 9]))
    assert concatenate_datasets([first, second]).groups is None
    assert concatenate_datasets([first], "alone").groups.tolist() == [0, 1, 2, 3, 4]


def test_rows_are_numbered_across_all_sources():
    failed = replace(SECOND, row_of_graph=np.array([0, 2, 3]), failures=(Failure(1, "x", "why", "n", 9),))
    whole = concatenate_datasets([FIRST, failed, failed])
    assert whole.row_of_graph.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12]
    assert whole.failures == (Failure(6, "x", "why", "n", 9), Failure(10, "x", "why", "n", 9))


def test_rows_of_parts_are_kept():
    failures = (Failure(1, "x", "why"), Failure(3, "y", "why"))
    failed = replace(SECOND, row_of_graph=np.array([0, 2, 4]), failures=failures)
    assert failed[[1, 2]].row_of_graph is None
    whole = concatenate_datasets([failed[[1, 2]], failed])
    assert whole.row_of_graph.tolist() == [0, 1, 2, 4, 6]
    assert [failure.row for failure in whole.failures] == [3, 5]
    values = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(whole.in_rows(values), [0, 1, 2, np.nan, 3, np.nan, 4])
    assert [row[0] for row in source_rows(whole, [[""]] * 5)] == [str(row) for row in range(7)]
    assert [row[1] for row in source_rows(failed[[1, 2]], [["a"], ["b"]])] == ["a", "b"]


@pytest.mark.parametrize(
    ("other", "values"),
    [
        (replace(SECOND, kind="molecules"), ("graphs", "molecules")),
        (replace(SECOND, node_labels=None), ("node labels", 1)),
        (replace(SECOND, node_labels=SECOND.node_labels.astype(str)), ("node labels", 1, 1, "text")),
        (replace(SECOND, edge_attr=SECOND.edge_attr[:, :1]), ("edge attributes", 2, 1)),
    ],
)
def test_incompatible_data_sets_are_rejected(other, values):
    with refused("synthetic", *values):
        concatenate_datasets([FIRST, other])
