"""Files of predictions: a row a graph, and names that survive."""

import csv
import dataclasses
import io

import numpy as np

from joao.data.synthetic import random_graphs
from joao.reporting.predictions import as_csv, as_npz

GRAPHS = random_graphs(3, num_classes=2)  # of classes 0, 1, 0
PROBABILITIES = np.array([[0.1, 0.7, 0.2], [1 / 3, 1 / 3, 1 / 3], [1e-30, 0.25, 0.75]], dtype=np.float32)
CLASSES = ("no", "yes, indeed", "“perhaps”")


def table(dataset):
    return list(csv.reader(io.StringIO(as_csv(PROBABILITIES, CLASSES, dataset))))


def test_csv():
    header, *rows = table(GRAPHS)
    assert header == ["graph", "class", "predicted", "p_no", "p_yes, indeed", "p_“perhaps”"]
    assert [row[:3] for row in rows] == [["0", "0", "yes, indeed"], ["1", "1", "no"], ["2", "0", "“perhaps”"]]
    numbers = np.array([row[3:] for row in rows], dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(numbers, PROBABILITIES)  # bit for bit


def test_names_and_no_labels():
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
