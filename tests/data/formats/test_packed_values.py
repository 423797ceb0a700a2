"""Packed files with numbers that no reader gives, and with class names that are not one for each class."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import joao
from joao.core.errors import UserError
from joao.data.formats.packed import write_packed as pack
from joao.data.shards.writer import ShardWriter
from joao.data.synthetic import random_graphs
from tests.data.packed_files import ABOUT, three_graphs, write_packed
from tests.data.refusals import refused

ROWS = {"node_attributes": 6, "edge_attr": 6, "targets": 3}


def _with_numbers(path, name, value):
    numbers = np.arange(ROWS[name], dtype=np.float32)[:, None]
    numbers[1] = value
    return write_packed(path, {**three_graphs(), name: numbers}, target_names=["task"] * (name == "targets"))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ROWS)
def test_infinite_numbers_are_refused(name, value, tmp_path):
    path = _with_numbers(tmp_path / "numbers.safetensors", name, value)
    if name == "targets" and np.isnan(value):  # missing
        assert np.isnan(joao.read(path).targets[1])
        return
    with refused("numbers.safetensors", name, str(value)):
        joao.read(path)


@pytest.mark.parametrize("name", ROWS)
def test_tables_without_columns_are_refused(name, tmp_path):
    numbers = np.zeros((ROWS[name], 0), dtype=np.float32)
    path = write_packed(tmp_path / "numbers.safetensors", {**three_graphs(), name: numbers})
    with refused("numbers.safetensors", name):
        joao.read(path)


def test_finite_numbers_are_read(tmp_path):
    for name in ROWS:
        assert len(joao.read(_with_numbers(tmp_path / f"{name}.safetensors", name, 0.5))) == 3


def test_batches_of_shards_with_infinite_numbers_are_refused(tmp_path):
    """Batches are read without the checks of a whole file."""
    dataset = random_graphs(6, mean_nodes=4, num_attributes=1)
    writer = ShardWriter(tmp_path, "graphs", "test")
    writer.add(dataset, source=0, rows=6)
    writer.finish()
    attributes = dataset.node_attributes.astype("<f4").tobytes()
    path = tmp_path / "shard-00000.safetensors"
    content = path.read_bytes()
    assert content.count(attributes) == 1
    path.write_bytes(content.replace(attributes, attributes[:-4] + np.float32(np.nan).tobytes()))
    shards = joao.read(tmp_path)
    assert len(shards[:5]) == 5
    with refused("node_attributes", "nan"):
        shards[5]


def _twelve(path, classes, names):
    """Twelve graphs of two nodes and an edge, in classes."""
    count = 12
    arrays = {
        "first_node": np.full(count, 2),
        "first_edge": np.full(count, 2),
        "source": np.array([1, 0] * count),
        "degrees": np.ones(2 * count, dtype=np.int64),
        "node_labels": np.array([[number % 3] for number in range(2 * count)]),
        "classes": np.array(classes),
    }
    return write_packed(path, arrays, class_names=names, counts={**ABOUT["counts"], "graphs": count})


@pytest.mark.parametrize(
    ("classes", "names", "expected"),
    [
        ([0, 2] * 6, ["a", "never", "c"], ("a", "c")),
        ([0, 1] * 6, ["a", "b", "never"], ("a", "b")),
        ([0, -1] * 6, ["a", "b"], ("a",)),
        ([0, 1] * 6, ["a", ""], ("a", "")),
    ],
)
def test_unused_class_names_are_dropped(classes, names, expected, tmp_path):
    dataset = joao.read(_twelve(tmp_path / "classes.safetensors", classes, names))
    assert dataset.class_names == expected
    assert dataset.labels.tolist() == ["" if each < 0 else names[each] for each in classes]


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "a"]])
def test_repeated_class_names_are_refused(names, tmp_path):
    with refused("classes.safetensors"):
        joao.read(_twelve(tmp_path / "classes.safetensors", [0, 1] * 6, names))


LONG = 100_000


def test_long_label_does_not_widen_the_others(tmp_path):
    """In an array of fixed width, these labels and classes would take 8 GB."""
    labels = ["C" * LONG, *("CNO"[number % 3] for number in range(9_999))]
    lines = [{"edges": [[0, 1]], "node_labels": labels, "label": "D" * LONG}]
    lines += [{"edges": [], "node_labels": ["C"], "label": "c"} for _ in range(9_999)]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    dataset = joao.read(path)
    assert dataset.node_labels[:10_000, 0].tolist() == labels
    assert dataset.class_names == ("D" * LONG, "c")
    assert len(dataset.fingerprint) == 16
    assert dataset.fingerprint != replace(dataset, node_labels=dataset.node_labels[::-1]).fingerprint
    for use in (lambda: pack(tmp_path / "long.safetensors", dataset), lambda: dataset.labels):
        with pytest.raises(UserError):
            use()


@pytest.mark.parametrize("label", ["C\0", "\ud800"])
def test_labels_that_files_cannot_hold_are_refused(label):
    import networkx

    graph = networkx.path_graph(2)
    networkx.set_node_attributes(graph, {0: "C", 1: label}, "label")
    with refused("label"):
        joao.read([graph])
