"""Groups of equal graphs, beside networkx's search for isomorphisms."""

import os
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from joao.data import read
from joao.data.formats.graphml import from_networkx
from joao.data.names import BUNDLED
from joao.data.refinement import TwinCounts, count_twins, find_twins
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from tests.strategies import as_networkx, graph_lists

ROOT = os.environ.get("JOAO_DATA")


def as_graph(dataset):
    """One graph of a data set, for networkx, with its labels."""
    graph = nx.Graph(zip(dataset.source.tolist(), dataset.target.tolist(), strict=True))
    labels = [()] * dataset.num_nodes if dataset.node_labels is None else map(tuple, dataset.node_labels.tolist())
    graph.add_nodes_from((node, {"label": label}) for node, label in enumerate(labels))
    return graph


def by_isomorphism(dataset):
    """The first graph that each is isomorphic to, found by trying all."""
    graphs = [as_graph(each) for each in dataset]
    same = nx.algorithms.isomorphism.categorical_node_match("label", None)
    return [
        next(first for first, other in enumerate(graphs) if nx.is_isomorphic(graph, other, node_match=same))
        for graph in graphs
    ]


def renumbered(dataset, seed):
    """The same graphs with their nodes in another order, graph by graph."""
    random = np.random.default_rng(seed)
    sizes = np.diff(dataset.first_node)
    order = np.concatenate(
        [first + random.permutation(size) for first, size in zip(dataset.first_node[:-1], sizes, strict=True)]
    )
    first = np.repeat(dataset.first_node[:-1], np.diff(dataset.first_edge))
    labels = np.empty_like(dataset.node_labels)
    labels[order] = dataset.node_labels
    edges = order[dataset.source + first], order[dataset.target + first]
    return make_dataset("renumbered", sizes, edges, node_labels=labels)


def test_renumbered_copies_are_found():
    graphs = random_graphs(12, mean_nodes=9, seed=3)
    both = graphs[np.r_[0:12, 0:12]]
    mixed = renumbered(both, seed=1)
    assert by_isomorphism(mixed[:12]) == list(range(12))  # no two are equal before
    assert find_twins(mixed).tolist() == [*range(12), *range(12)]


@given(graph_lists(most_nodes=4))
@settings(max_examples=60, deadline=None)
def test_small_graphs_are_distinguished_as_in_networkx(drawn):
    """Up to four nodes: no two graphs of this size are confused by the refinement."""
    labelled = from_networkx(as_networkx(drawn), "drawn")
    for dataset in (labelled, replace(labelled, node_labels=None)):
        assert find_twins(dataset).tolist() == by_isomorphism(dataset)


def test_all_graphs_with_up_to_six_nodes():
    """Of the 208 of networkx's atlas, all different, four pairs are alike; networkx's own refinement says the same."""
    atlas = [graph for graph in nx.graph_atlas_g()[1:] if len(graph) <= 6]
    found = find_twins(from_networkx(atlas, "atlas")).tolist()
    for graph in atlas:
        nx.set_node_attributes(graph, "alike", "label")  # networkx warns without
    hashes = [nx.weisfeiler_lehman_graph_hash(graph, node_attr="label", iterations=6) for graph in atlas]
    assert found == [hashes.index(each) for each in hashes]
    assert (len(found), len(set(found))) == (208, 204)


def test_refinement_runs_until_it_is_stable():
    """Two paths with ends a and a, b and b, or twice with a and b: no node knows before it has heard from both ends."""

    def two_paths(*ends, length=30):
        paths = [nx.path_graph(length) for _ in ends]
        for path, (first, last) in zip(paths, ends, strict=True):
            nx.set_node_attributes(path, dict.fromkeys(path, "c") | {0: first, length - 1: last}, "label")
        return nx.disjoint_union_all(paths)

    graphs = [two_paths("aa", "bb"), two_paths("ab", "ab"), two_paths("ba", "ab")]
    assert find_twins(from_networkx(graphs, "paths")).tolist() == [0, 1, 1]


def test_attributes_do_not_distinguish_graphs():
    graphs = random_graphs(6, mean_nodes=6, num_attributes=2, num_edge_attributes=1, seed=2)
    both = graphs[np.r_[0:6, 0:6]]
    random = np.random.default_rng(0)
    other = replace(
        both,
        node_attributes=random.normal(size=both.node_attributes.shape),
        edge_attr=random.normal(size=both.edge_attr.shape),
    )
    assert find_twins(other).tolist() == [*range(6), *range(6)]


def test_labels_distinguish_graphs():
    edge = make_dataset(
        "edges", np.array([2, 2, 2]), ([0, 2, 4], [1, 3, 5]), node_labels=np.array([[1, 2, 2, 1, 1, 1]]).T
    )
    assert find_twins(edge).tolist() == [0, 0, 2]
    assert find_twins(replace(edge, node_labels=None)).tolist() == [0, 0, 0]


def test_counts_match_a_plain_loop():
    random = np.random.default_rng(0)
    groups, classes = random.integers(12, size=40), random.integers(-1, 3, size=40)
    first = np.array([groups.tolist().index(group) for group in groups])
    others = [[classes[j] for j in range(40) if j != i and groups[j] == groups[i]] for i in range(40)]
    labelled = [
        [c for c in each if c >= 0 and c != own and own >= 0] for each, own in zip(others, classes, strict=True)
    ]
    expected = TwinCounts(sum(map(bool, others)), sum(map(bool, labelled)))
    assert 0 < expected.with_twin_of_another_class < expected.with_twin < 40
    assert count_twins(first, classes) == expected
    assert count_twins(first, None) == (expected.with_twin, 0)
    assert count_twins(first, np.full(40, -1)) == (expected.with_twin, 0)


def test_real_molecules():
    """MUTAG by isomorphism: 12.8 % of its graphs have a twin, none one of another class."""
    dataset = read(BUNDLED / "MUTAG.zip")
    assert find_twins(dataset).tolist() == by_isomorphism(dataset)
    assert count_twins(find_twins(dataset), dataset.classes) == (24, 0)


@pytest.mark.skipif(not ROOT, reason="JOAO_DATA is not set")
def test_most_graphs_of_imdb_binary_have_a_twin():
    """By isomorphism inside the groups, too: the refinement confuses none of these graphs."""
    dataset = read("IMDB-BINARY", ROOT)
    found = find_twins(dataset)
    assert count_twins(found, dataset.classes) == (579, 318)
    for graph in np.flatnonzero(found != np.arange(len(dataset))):
        assert nx.is_isomorphic(as_graph(dataset[int(graph)]), as_graph(dataset[int(found[graph])]))
