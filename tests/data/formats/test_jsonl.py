"""Oracle: the objects that were written."""

import gzip
import json

import numpy as np
import pytest

from joao.data import read
from tests.data.refusals import refused

GRAPHS = [
    {
        "edges": [[0, 1], [2, 1], [1, 0]],
        "num_nodes": 3,
        "node_labels": ["C", "N", "C"],
        "node_attributes": [[0, 1.5], [2, 3], [4, 5]],
        "edge_attributes": [[1], [2], [3]],
        "label": "active",
    },
    {"edges": [], "node_labels": ["O"], "node_attributes": [[6, 7]], "label": "inert"},
]


@pytest.fixture
def write(tmp_path):
    def to(lines, name="graphs.jsonl"):
        text = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return tmp_path / name

    return to


@pytest.mark.parametrize("name", ["graphs.jsonl", "graphs.jsonl.gz"])
def test_objects_round_trip(write, neighbours, name):
    dataset = read(write([json.dumps(GRAPHS[0]), "", json.dumps(GRAPHS[1])], name))
    assert neighbours(dataset, 0) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert neighbours(dataset, 1) == set()
    assert dataset.node_labels.ravel().tolist() == ["C", "N", "C", "O"]
    assert dataset.node_attributes.tolist() == [[0, 1.5], [2, 3], [4, 5], [6, 7]]
    assert dataset.edge_attr.ravel().tolist() == [3, 1, 2, 2]  # 1>0, 0>1, 2>1 and its reverse
    assert (dataset.classes.tolist(), dataset.class_names) == ([0, 1], ("active", "inert"))
    assert (dataset.name, dataset.notices) == ("graphs", ())


def test_minimal_object(write, neighbours):
    dataset = read(write(['{"edges": [[0, 1]], "num_nodes": 3}', '{"edges": [[1, 0]], "num_nodes": 2, "label": null}']))
    assert np.diff(dataset.first_node).tolist() == [3, 2]
    assert [neighbours(dataset, index) for index in range(2)] == [{(0, 1), (1, 0)}] * 2
    assert (dataset.node_labels, dataset.node_attributes, dataset.edge_attr, dataset.classes) == (None,) * 4


def test_several_columns_of_labels(write):
    dataset = read(write(['{"edges": [], "node_labels": [[1, 5], [2, 6]]}']))
    assert dataset.node_labels.tolist() == [[1, 5], [2, 6]]


GOOD = '{"edges": [[0, 1]], "node_labels": [1, 2]}'


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("{", (2, "JSON")),
        ("[1, 2]", (2, "[1, 2]", "'edges'")),
        ('{"num_nodes": 3}', (2, "'edges'", "[]")),
        ('{"edges": []}', (2, "'num_nodes'")),
        ('{"edges": [], "num_node": 3}', (2, "'num_node'", "'num_nodes'")),
        ('{"edges": {}, "num_nodes": 3}', (2, "'edges'", "{}")),
        ('{"edges": [], "num_nodes": 0}', (2, "'num_nodes'", 1, 0)),
        ('{"edges": [], "num_nodes": true}', (2, "'num_nodes'", 1, "true")),
        ('{"edges": [[0, 2]], "num_nodes": 2}', (2, "[0, 2]", 0, 0, 1)),
        ('{"edges": [[0]], "num_nodes": 2}', (2, "[0]", 0, 1)),
        ('{"edges": [[0, 1.0]], "num_nodes": 2}', (2, "[0, 1.0]", 0, 1)),
        ('{"edges": [], "num_nodes": 2, "node_labels": [1]}', (2, 1, "'node_labels'", 2)),
        ('{"edges": [], "node_labels": [1, null]}', (2, "'node_labels'", "null")),
        ('{"edges": [], "node_labels": [1, "a"]}', (2, "'node_labels'", '"a"')),
        ('{"edges": [], "node_labels": [[1, 2]]}', (2, "'node_labels'", "[1, 2]", 2, 1, 1)),
        ('{"edges": [], "node_labels": [' + "9" * 30 + "]}", (2, "9" * 30)),
        ('{"edges": [], "node_labels": ["\\ud800"]}', (2, "JSON")),
        ('{"edges": [], "num_nodes": 1, "num_nodes": 1}', (2, "'num_nodes'")),
        ('{"edges": [], "num_nodes": 1}', (2, "'node_labels'", 1)),
        ('{"edges": [], "node_labels": [1], "node_attributes": [["a"]]}', (1, "'node_attributes'", 2)),
        ('{"edges": [], "node_labels": [1], "label": [1]}', (2, "'label'", "[1]")),
        ('{"edges": [], "node_labels": [1], "label": 0.5}', (2, "'label'", "0.5")),
        ('{"edges": [[0, 0]], "node_labels": [1], "edge_attributes": []}', (2, 0, "'edge_attributes'", 1)),
        ("[" * 100_000, (2, "JSON")),
    ],
)
def test_errors_name_the_line(write, line, values):
    with refused("graphs.jsonl", *values):
        read(write([GOOD, line]))


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", ("graphs",)),
        (b"\xff\xfe\x00", ("graphs.jsonl", 1, "UTF-8", "0xff")),
        (b'{"edges": [], "node_attributes": [[NaN]]}', ("graphs.jsonl", 1, "'NaN'")),
        (b'{"edges": [], "node_attributes": [[1e39]]}', ("graphs", "node attribute", 0, 0, "inf")),
        (b'{"edges": [], "node_attributes": [["a"]]}', ("graphs.jsonl", 1, "'node_attributes'", '["a"]')),
        (b'{"edges": [], "node_attributes": [[]]}', ("graphs.jsonl", 1, "'node_attributes'", "[]")),
    ],
)
def test_unusual_files_are_rejected(write, content, values):
    with refused(*values):
        read(write(content))
