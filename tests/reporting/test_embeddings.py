"""Embeddings written to a file are read back by other programs, number for number."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from joao.data.synthetic import random_graphs
from joao.reporting.embeddings import as_csv, as_npz

GRAPHS = random_graphs(6, mean_nodes=4)
UNLABELLED = random_graphs(6, mean_nodes=4, num_classes=0)
EMBEDDINGS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
EMBEDDINGS[0] = [1e-45, 3.4028235e38, -0.0]


def test_npz_is_read_without_pickle():
    with np.load(io.BytesIO(as_npz(EMBEDDINGS, GRAPHS)), allow_pickle=False) as file:
        assert sorted(file) == ["class_names", "classes", "embeddings"]
        assert file["embeddings"].tobytes() == EMBEDDINGS.tobytes()
        assert file["embeddings"].dtype == np.float32
        np.testing.assert_array_equal(file["classes"], GRAPHS.classes)
        assert tuple(file["class_names"]) == GRAPHS.class_names


def test_npz_without_classes():
    with np.load(io.BytesIO(as_npz(EMBEDDINGS, UNLABELLED)), allow_pickle=False) as file:
        assert list(file) == ["embeddings"]


def test_csv_is_read_back_exactly():
    names = ('say "a, b"', "two\nlines")
    header, *lines = csv.reader(io.StringIO(as_csv(EMBEDDINGS, dataclasses.replace(GRAPHS, class_names=names))))
    assert header == ["graph", "class", "e0", "e1", "e2"]
    assert [line[0] for line in lines] == [str(number) for number in range(6)]
    assert [line[1] for line in lines] == [names[number] for number in GRAPHS.classes]
    read = np.array([line[2:] for line in lines], dtype=np.float64).astype(np.float32)
    assert read.tobytes() == EMBEDDINGS.tobytes()


def test_csv_without_classes():
    header, *lines = csv.reader(io.StringIO(as_csv(EMBEDDINGS, UNLABELLED)))
    assert header == ["graph", "e0", "e1", "e2"]
    assert len(lines) == 6


@pytest.mark.parametrize("name", ["plain", " spaces ", "ümlaut", "", "=1+1", "a;b", "'"])
def test_class_names_survive(name):
    dataset = dataclasses.replace(GRAPHS, class_names=(name, "other"))
    lines = list(csv.reader(io.StringIO(as_csv(EMBEDDINGS, dataset))))[1:]
    assert {line[1] for line in lines} == {name, "other"}


def test_named_graphs_keep_their_names():
    named = dataclasses.replace(GRAPHS, graph_names=tuple(f"graph, {letter}" for letter in "fedcba"))
    rows = list(csv.DictReader(io.StringIO(as_csv(EMBEDDINGS, named))))
    assert [row["graph"] for row in rows] == list(named.graph_names)
    with np.load(io.BytesIO(as_npz(EMBEDDINGS, named)), allow_pickle=False) as file:
        assert tuple(file["graph_names"]) == named.graph_names
