"""Graphlets, beside the enumeration of all small subgraphs."""

from dataclasses import replace
from itertools import combinations
from math import comb

import networkx as nx
import numpy as np
import pytest

from joao.baselines import GL
from joao.baselines import graphlets as _graphlets
from joao.data.formats.graphml import from_networkx
from joao.data.synthetic import random_graphs

PAW = nx.lollipop_graph(3, 1)
DIAMOND = nx.complete_bipartite_graph(2, 2)
DIAMOND.add_edge(0, 1)
GRAPHLETS = [
    *(nx.path_graph(3), nx.complete_graph(3)),
    *(nx.star_graph(3), nx.path_graph(4), PAW, nx.cycle_graph(4), DIAMOND, nx.complete_graph(4)),
]


def enumerated(graph):
    """The graphlets among all sets of three and four nodes; degrees tell these eight apart."""
    whole = nx.Graph(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    whole.add_nodes_from(range(graph.num_nodes))
    parts = [whole.subgraph(nodes) for size in (3, 4) for nodes in combinations(whole, size)]
    degrees = [tuple(sorted(dict(part.degree).values())) for part in parts if nx.is_connected(part)]
    return [degrees.count(tuple(sorted(dict(kind.degree).values()))) for kind in GRAPHLETS]


@pytest.mark.parametrize("mean_degree", [2, 5, 8])
def test_counts_match_enumeration(mean_degree):
    graphs = random_graphs(25, mean_nodes=9, mean_degree=mean_degree, seed=mean_degree)
    rows = GL().fit_transform(graphs)
    np.testing.assert_array_equal(rows, [enumerated(graph) for graph in graphs])
    if mean_degree == 8:
        assert (rows.sum(axis=0) > 0).all()  # so that each formula is put to the test


@pytest.mark.parametrize("number", range(len(GRAPHLETS)))
def test_graphlet_contains_only_itself(number):
    (row,) = GL().fit_transform(from_networkx([GRAPHLETS[number]], "graphlet"))
    same_size = slice(0, 2) if number < 2 else slice(2, 8)
    assert np.flatnonzero(row[same_size]).tolist() == [number - same_size.start]


def test_large_graphs_by_closed_forms():
    complete, star = nx.complete_graph(60), nx.star_graph(1000)
    bipartite = nx.Graph(nx.complete_bipartite_graph(20, 30).edges)
    rows = GL().fit_transform(from_networkx([complete, bipartite, star], "large"))
    cycles, pairs = comb(20, 2) * comb(30, 2), 20 * comb(30, 2) + 30 * comb(20, 2)
    stars = 20 * comb(30, 3) + 30 * comb(20, 3)
    assert rows.tolist() == [
        [0, comb(60, 3), 0, 0, 0, 0, 0, comb(60, 4)],
        [pairs, 0, stars, 0, 0, cycles, 0, 0],
        [comb(1000, 2), 0, comb(1000, 3), 0, 0, 0, 0, 0],
    ]


def test_block_sizes_do_not_change_counts(monkeypatch):
    graphs = random_graphs(20, mean_nodes=12, mean_degree=6, seed=0)
    rows = GL().fit_transform(graphs)
    for limit in ("_PATHS_AT_ONCE", "_ENTRIES_AT_ONCE"):
        monkeypatch.setattr(_graphlets, limit, 100)
    assert len(list(_graphlets._blocks(graphs))) > 10
    np.testing.assert_array_equal(GL().fit_transform(graphs), rows)


def test_node_labels_are_ignored():
    graphs = random_graphs(10, seed=3)
    without = replace(graphs, node_labels=None)
    np.testing.assert_array_equal(GL().fit_transform(graphs), GL().fit_transform(without))
