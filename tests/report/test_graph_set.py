"""Graphs encoded as short texts. Oracle: an independent decoder."""

from dataclasses import replace

import numpy as np
import pytest

from joao.data.molecules import make_molecules
from joao.data.synthetic import random_graphs
from joao.report.graphs import ALPHABET, MOST_NODES, GraphCodec, colourings, graph_set


def read_back(text, num_nodes):
    """Labels as numbers, and edges."""
    width = 1 if num_nodes <= 64 else 2
    numbers = [ALPHABET.index(character) for character in text[1]]
    if width == 2:
        numbers = [64 * high + low for high, low in zip(numbers[::2], numbers[1::2], strict=True)]
    return [ALPHABET.index(character) for character in text[0]], set(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.mark.parametrize("mean_nodes", [10, 90])
def test_graphs_can_be_decoded(mean_nodes):
    dataset = random_graphs(20, mean_nodes=mean_nodes, num_node_labels=5)
    codec = GraphCodec.of(dataset)
    for number, graph in enumerate(dataset):
        codes, edges = read_back(codec.encode(number), graph.num_nodes)
        assert [codec.labels[code] for code in codes] == [str(each) for each in graph.node_labels[:, 0]]
        assert edges == {(u, v) for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True) if u < v}
    counts = np.bincount(codec.codes)
    assert (np.diff(counts) <= 0).all()  # the most frequent label first


def test_more_labels_than_characters_become_other():
    dataset = random_graphs(40, mean_nodes=30, num_node_labels=200)
    codec = GraphCodec.of(dataset)
    assert len(codec.labels) == 64
    assert codec.labels[-1] == "other"
    assert codec.codes.max() == 63


def test_molecules_have_symbols_and_bonds():
    pytest.importorskip("rdkit")
    dataset = make_molecules("two", ["CC(=O)N", "C#CBr"])
    codec = GraphCodec.of(dataset)
    assert [codec.labels[code] for code in codec.codes] == ["C", "C", "O", "N", "C", "C", "Br"]
    assert codec.encode(0)[2] == "010"  # by target: C-C, C=O, C-N
    assert codec.encode(1)[2] == "20"


def test_size_limits_of_drawings():
    dataset = random_graphs(60, mean_nodes=12)
    everything = graph_set(dataset, range(60), 60, 10**6)
    assert everything["drawn"] == 60
    assert everything["numbers"] is None
    some = graph_set(dataset, range(60), 100, 600)
    assert 0 < some["drawn"] < 60
    assert some["drawn"] == sum(each is not None for each in some["drawings"])
    assert sum(len(part) + 3 for each in some["drawings"] if each for part in each) <= 600
    assert some["numbers"] == list(range(60))
    huge = random_graphs(2, mean_nodes=MOST_NODES + 100)
    assert graph_set(huge, range(2), 2, 10**6)["drawn"] == 1  # the first is a single node


def test_colourings():
    dataset = random_graphs(6, num_classes=3)
    assert colourings(dataset) == [{"name": "class", "classes": ["0", "1", "2"], "codes": [0, 1, 2, 0, 1, 2]}]
    assert colourings(random_graphs(6, num_classes=0)) == []
    targets = np.array([[1, 0.5], [0, np.nan], [np.nan, 2]], dtype=np.float32)
    tasks = replace(random_graphs(3, num_classes=0), targets=targets, target_names=("toxic", "weight"))
    assert colourings(tasks) == [
        {"name": "toxic", "classes": ["0", "1"], "codes": [1, 0, -1]},
        {"name": "weight", "values": [0.5, None, 2.0]},
    ]
    many = replace(dataset, classes=np.arange(6) * 20, class_names=tuple(map(str, range(101))))
    assert len(colourings(many)[0]["classes"]) == 48
    assert colourings(many)[0]["codes"] == [0, 20, 40, 47, 47, 47]
