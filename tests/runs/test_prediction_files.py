"""Files of predictions: a row a graph, and names that survive."""

import csv
import dataclasses
import io

import numpy as np

from joao.data.dataset import Failure
from joao.data.synthetic import random_graphs
from joao.runs.result_files import classes_csv as as_csv
from joao.runs.result_files import classes_npz as as_npz
from joao.runs.result_files import tasks_csv, tasks_npz

GRAPHS = random_graphs(3, num_classes=2)  # of classes 0, 1, 0
PROBABILITIES = np.array([[0.1, 0.7, 0.2], [1 / 3, 1 / 3, 1 / 3], [1e-30, 0.25, 0.75]], dtype=np.float32)
CLASSES = ("no", "yes, indeed", "“perhaps”")


def text(pieces):
    return io.StringIO(b"".join(pieces).decode())


def table(dataset):
    return list(csv.reader(text(as_csv(PROBABILITIES, CLASSES, dataset))))


def test_csv():
    header, *rows = table(GRAPHS)
    assert header == ["graph", "class", "predicted", "p_no", "p_yes, indeed", "p_“perhaps”"]
    assert [row[:3] for row in rows] == [["0", "0", "yes, indeed"], ["1", "1", "no"], ["2", "0", "“perhaps”"]]
    numbers = np.array([row[3:] for row in rows], dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(numbers, PROBABILITIES)  # bit for bit


def test_csv_with_names_and_without_labels():
    named = dataclasses.replace(GRAPHS, graph_names=("a", 'b "c"', "d\ne"), classes=None, class_names=())
    assert [row[:2] for row in table(named)] == [
        ["graph", "predicted"],
        ["a", "yes, indeed"],
        ['b "c"', "no"],
        ["d\ne", "“perhaps”"],
    ]
    with np.load(io.BytesIO(as_npz(PROBABILITIES, CLASSES, named)), allow_pickle=False) as file:
        assert file["graph_names"].tolist() == ["a", 'b "c"', "d\ne"]
        assert set(file) == {"predicted", "probabilities", "class_names", "graph_names"}


def test_npz():
    with np.load(io.BytesIO(as_npz(PROBABILITIES, CLASSES, GRAPHS)), allow_pickle=False) as file:
        assert set(file) == {"predicted", "probabilities", "class_names", "labels"}
        np.testing.assert_array_equal(file["probabilities"], PROBABILITIES)
        assert file["predicted"].tolist() == ["yes, indeed", "no", "“perhaps”"]
        assert file["class_names"].tolist() == list(CLASSES)
        assert file["labels"].tolist() == ["0", "1", "0"]


def molecules():
    """Three molecules out of five rows of a table."""
    failures = (Failure(1, "C1CC(", "not SMILES", name="b"), Failure(4, "", "empty", name="e, too"))
    return dataclasses.replace(
        GRAPHS,
        classes=None,
        class_names=(),
        kind="molecules",
        graph_names=("a", "c", "d"),
        row_of_graph=np.array([0, 2, 3]),
        failures=failures,
    )


def test_rows_without_a_graph_are_blank():
    header, *rows = csv.reader(text(tasks_csv(PROBABILITIES, ("x", "y, too", "z"), molecules())))
    assert header == ["graph", "x", "y, too", "z"]
    assert [row[0] for row in rows] == ["a", "b", "c", "d", "e, too"]
    assert rows[1][1:] == rows[4][1:] == ["", "", ""]
    numbers = np.array([rows[n][1:] for n in (0, 2, 3)], dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(numbers, PROBABILITIES)
    unnamed = dataclasses.replace(molecules(), graph_names=())
    rows = list(csv.reader(text(tasks_csv(PROBABILITIES, "xyz", unnamed))))
    assert [row[0] for row in rows] == ["graph", "0", "1", "2", "3", "4"]  # the rows of the table


def test_arrays_have_nan_for_rows_without_a_graph():
    with np.load(io.BytesIO(tasks_npz(PROBABILITIES, ("x", "y", "z"), molecules())), allow_pickle=False) as file:
        assert set(file) == {"predicted", "columns", "graph_names", "row"}
        np.testing.assert_array_equal(file["predicted"][file["row"]], PROBABILITIES)
        assert np.isnan(file["predicted"][[1, 4]]).all()
        assert file["graph_names"].tolist() == ["a", "b", "c", "d", "e, too"]
    with np.load(io.BytesIO(as_npz(PROBABILITIES, CLASSES, molecules())), allow_pickle=False) as file:
        assert file["predicted"].tolist() == ["yes, indeed", "", "no", "“perhaps”", ""]
        np.testing.assert_array_equal(file["probabilities"][file["row"]], PROBABILITIES)
    rows = table(molecules())
    assert [row[:2] for row in rows[1:3]] == [["a", "yes, indeed"], ["b", ""]]
