"""Oracle: the objects that were written."""

import gzip
import json

import numpy as np
import pytest

from joao.core.errors import UserError
from joao.data import read

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
def test_objects_are_read_back(write, neighbours, name):
    dataset = read(write([json.dumps(GRAPHS[0]), "", json.dumps(GRAPHS[1])], name))
    assert neighbours(dataset, 0) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert neighbours(dataset, 1) == set()
    assert dataset.node_labels.ravel().tolist() == ["C", "N", "C", "O"]
    assert dataset.node_attributes.tolist() == [[0, 1.5], [2, 3], [4, 5], [6, 7]]
    assert dataset.edge_attr.ravel().tolist() == [3, 1, 2, 2]  # 1>0, 0>1, 2>1 and its reverse
    assert (dataset.classes.tolist(), dataset.class_names) == ([0, 1], ("active", "inert"))
    assert (dataset.name, dataset.notices) == ("graphs", ())


def test_the_least_object(write, neighbours):
    dataset = read(write(['{"edges": [[0, 1]], "num_nodes": 3}', '{"edges": [[1, 0]], "num_nodes": 2, "label": null}']))
    assert np.diff(dataset.first_node).tolist() == [3, 2]
    assert [neighbours(dataset, index) for index in range(2)] == [{(0, 1), (1, 0)}] * 2
    assert (dataset.node_labels, dataset.node_attributes, dataset.edge_attr, dataset.classes) == (None,) * 4


def test_several_columns_of_labels(write):
    dataset = read(write(['{"edges": [], "node_labels": [[1, 5], [2, 6]]}']))
    assert dataset.node_labels.tolist() == [[1, 5], [2, 6]]


GOOD = '{"edges": [[0, 1]], "node_labels": [1, 2]}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"graphs.jsonl:2: not JSON"),
        ("[1, 2]", r":2: a list where an object with 'edges' is expected"),
        ('{"num_nodes": 3}', r":2: no 'edges'. Write \[\]"),
        ('{"edges": []}', r":2: no 'num_nodes', and no rows of nodes"),
        ('{"edges": [], "num_node": 3}', r":2: unknown key 'num_node'. Did you mean 'num_nodes'\?"),
        ('{"edges": {}, "num_nodes": 3}', r":2: 'edges' must be a list, got \{\}"),
        ('{"edges": [], "num_nodes": 0}', r":2: 'num_nodes' must be a whole number from 1, got 0"),
        ('{"edges": [], "num_nodes": true}', r":2: 'num_nodes' must be a whole number from 1, got true"),
        ('{"edges": [[0, 2]], "num_nodes": 2}', r":2: edge \[0, 2\] is not a pair of node numbers from 0 to 1"),
        ('{"edges": [[0]], "num_nodes": 2}', r":2: edge \[0\] is not a pair"),
        ('{"edges": [[0, 1.0]], "num_nodes": 2}', r":2: edge \[0, 1.0\] is not a pair"),
        ('{"edges": [], "num_nodes": 2, "node_labels": [1]}', r":2: 1 rows of 'node_labels' for 2 nodes"),
        ('{"edges": [], "node_labels": [1, null]}', r":2: 'node_labels': null is not a whole number or text"),
        ('{"edges": [], "node_labels": [1, "a"]}', r":2: 'node_labels': \"a\" mixes numbers and text"),
        ('{"edges": [], "node_labels": [[1, 2]]}', r":2: 'node_labels': \[1, 2\] has 2 columns, not 1"),
        ('{"edges": [], "node_labels": [' + "9" * 30 + "]}", r":2: 'node_labels': 9+ is not a whole number"),
        ('{"edges": [], "num_nodes": 1}', r":2: no 'node_labels', but .*jsonl:1 has them"),
        ('{"edges": [], "node_labels": [1], "node_attributes": [["a"]]}', r":1: no 'node_attributes', but"),
        (
            '{"edges": [], "node_labels": [1], "label": [1]}',
            r":2: 'label' must be a whole number or text, got \[1\]",
        ),
        ('{"edges": [], "node_labels": [1], "label": 0.5}', r":2: 'label' must be a whole number or text, got 0.5"),
        (
            '{"edges": [[0, 0]], "node_labels": [1], "edge_attributes": []}',
            r"0 rows of 'edge_attributes' for 1 edges",
        ),
        ("[" * 100_000, r":2: not JSON"),
    ],
)
def test_faults_are_told_with_their_line(write, line, message):
    with pytest.raises(UserError, match=message) as told:
        read(write([GOOD, line]))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"graphs: no graphs in it"),
        (b"\xff\xfe\x00", r"graphs.jsonl:1: not text in UTF-8"),
        (b'{"edges": [], "node_attributes": [[NaN]]}', r"node attribute 0 of row 0 is nan"),
        (
            b'{"edges": [], "node_attributes": [["a"]]}',
            r":1: 'node_attributes': \[\"a\"\] is not a list of numbers",
        ),
        (b'{"edges": [], "node_attributes": [[]]}', r":1: 'node_attributes': \[\] is not a list of numbers"),
    ],
)
def test_odd_files_are_told(write, content, message):
    with pytest.raises(UserError, match=message):
        read(write(content))
