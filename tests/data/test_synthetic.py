"""Oracle: the expectations of the distributions."""

import numpy as np
import pytest

from joao.data.synthetic import random_graphs
from tests.data.refusals import refused


def test_sizes_and_degrees_are_close_to_the_requested_ones():
    dataset = random_graphs(2000, 30, 4, seed=0)
    sizes = np.diff(dataset.first_node)
    assert (sizes[0], dataset.first_edge[2]) == (1, 0)
    assert sizes[1:].min() >= 2
    assert sizes.mean() == pytest.approx(30, abs=0.5)  # deviation of the mean 0.12
    # loops and repeats cost about 1/30 and 4/30/2 of the draws
    assert 2 * dataset.num_edges / dataset.num_nodes == pytest.approx(4 * (1 - 1 / 30 - 2 / 30), abs=0.1)


def test_graphs_depend_on_the_seed():
    assert random_graphs(seed=1).fingerprint == random_graphs(seed=1).fingerprint
    assert random_graphs(seed=1).fingerprint != random_graphs(seed=2).fingerprint


def test_classes_differ_in_their_node_labels():
    dataset = random_graphs(400, num_classes=3, num_node_labels=5)
    class_of_node = dataset.classes[dataset.graph_of_node]
    assert (dataset.node_labels[:, 0] == class_of_node).mean() == pytest.approx(0.5 + 0.5 / 5, abs=0.03)
    assert np.bincount(dataset.classes).tolist() == [134, 133, 133]


def test_labels_attributes_and_classes_are_optional():
    bare = random_graphs(num_node_labels=0, num_classes=0)
    assert (bare.node_labels, bare.node_attributes, bare.edge_attr, bare.classes) == (None,) * 4
    full = random_graphs(num_attributes=2, num_edge_attributes=3)
    assert full.node_attributes.shape == (full.num_nodes, 2)
    assert full.edge_attr.shape == (2 * full.num_edges, 3)


def test_impossible_sizes_are_rejected():
    with refused("mean_nodes", 2, 5, 1):
        random_graphs(5, 1)
