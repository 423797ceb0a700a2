"""Embeddings written to a file are read back by other programs, number for number."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from joao.data.dataset import Failure
from joao.data.synthetic import random_graphs
from joao.runs import result_files as embeddings
from joao.runs.result_files import embeddings_csv as as_csv
from joao.runs.result_files import embeddings_npz as as_npz

GRAPHS = random_graphs(6, mean_nodes=4)
UNLABELLED = random_graphs(6, mean_nodes=4, num_classes=0)
EMBEDDINGS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
EMBEDDINGS[0] = [1e-45, 3.4028235e38, -0.0]


def text_of(numbers, dataset):
    return io.StringIO(b"".join(as_csv(numbers, dataset)).decode())


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


def test_csv_round_trips_exactly():
    names = ('say "a, b"', "two\nlines")
    header, *lines = csv.reader(text_of(EMBEDDINGS, dataclasses.replace(GRAPHS, class_names=names)))
    assert header == ["graph", "class", "e0", "e1", "e2"]
    assert [line[0] for line in lines] == [str(number) for number in range(6)]
    assert [line[1] for line in lines] == [names[number] for number in GRAPHS.classes]
    read = np.array([line[2:] for line in lines], dtype=np.float64).astype(np.float32)
    assert read.tobytes() == EMBEDDINGS.tobytes()


def test_csv_without_classes():
    header, *lines = csv.reader(text_of(EMBEDDINGS, UNLABELLED))
    assert header == ["graph", "e0", "e1", "e2"]
    assert len(lines) == 6


@pytest.mark.parametrize("name", ["plain", " spaces ", "ümlaut", "", "=1+1", "a;b", "'"])
def test_class_names_are_kept(name):
    dataset = dataclasses.replace(GRAPHS, class_names=(name, "other"))
    lines = list(csv.reader(text_of(EMBEDDINGS, dataset)))[1:]
    assert {line[1] for line in lines} == {name, "other"}


def test_named_graphs_keep_their_names():
    named = dataclasses.replace(GRAPHS, graph_names=tuple(f"graph, {letter}" for letter in "fedcba"))
    rows = list(csv.DictReader(text_of(EMBEDDINGS, named)))
    assert [row["graph"] for row in rows] == list(named.graph_names)
    with np.load(io.BytesIO(as_npz(EMBEDDINGS, named)), allow_pickle=False) as file:
        assert tuple(file["graph_names"]) == named.graph_names


def test_csv_is_written_in_chunks(monkeypatch):
    """The text of a million molecules does not fit into memory."""
    failures = tuple(Failure(row, "x", "why", name) for row, name in [(0, "first"), (3, "fourth"), (8, "last")])
    names, rows = tuple("abcdef"), np.array([1, 2, 4, 5, 6, 7])
    named = dataclasses.replace(GRAPHS, graph_names=names, row_of_graph=rows, failures=failures)
    for dataset in (GRAPHS, UNLABELLED, named, dataclasses.replace(named, graph_names=())):
        whole = list(as_csv(EMBEDDINGS, dataset))
        assert len(whole) == 1
        with monkeypatch.context() as patch:
            patch.setattr(embeddings, "_ROWS_AT_ONCE", 2)
            pieces = list(as_csv(EMBEDDINGS, dataset))
        assert max(piece.count(b"\n") for piece in pieces) == 2
        assert b"".join(pieces) == whole[0]
    lines = list(csv.reader(text_of(EMBEDDINGS, named)))[1:]
    assert [line[0] for line in lines] == ["first", "a", "b", "fourth", "c", "d", "e", "f", "last"]
    assert [row for row, line in enumerate(lines) if line[1:] == [""] * 4] == [0, 3, 8]
