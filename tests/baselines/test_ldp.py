"""Local degree profiles against networkx and numpy's own histogram."""

import networkx as nx
import numpy as np
import pytest

from joao.baselines import LDP
from joao.baselines.histogram import degree_profiles
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset


def naive_profiles(graphs):
    """By loops over networkx's neighbours."""
    profiles = []
    for graph in graphs:
        network = nx.empty_graph(graph.num_nodes)
        network.add_edges_from(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
        for node in network:
            around = [network.degree[other] for other in network[node]] or [0]
            profiles.append([network.degree[node], min(around), max(around), np.mean(around), np.std(around)])
    return np.array(profiles)


@pytest.mark.parametrize("mean_degree", [1, 4])
def test_profiles_are_those_of_networkx(mean_degree):
    graphs = random_graphs(30, mean_nodes=9, mean_degree=mean_degree, seed=3)
    np.testing.assert_allclose(degree_profiles(graphs), naive_profiles(graphs), atol=1e-12)


@pytest.mark.parametrize("bins", [1, 7, 30])
def test_rows_are_histograms_with_the_bins_of_fit(bins):
    fitted, other = random_graphs(30, mean_nodes=9, seed=3), random_graphs(20, mean_nodes=12, mean_degree=6, seed=4)
    limits = [np.linspace(0, np.log1p(column.max()), bins + 1) for column in naive_profiles(fitted).T]
    for graphs in (fitted, other):
        rows = LDP(bins=bins).fit(fitted).transform(graphs).reshape(len(graphs), 5, bins)
        profiles = naive_profiles(graphs)
        for number in range(len(graphs)):
            own = profiles[graphs.first_node[number] : graphs.first_node[number + 1]]
            for column in range(5):
                values = np.minimum(np.log1p(own[:, column]), limits[column][-1])
                expected = np.histogram(values, limits[column])[0]
                np.testing.assert_array_equal(rows[number, column], expected)


def test_a_star_by_hand():
    star = make_dataset("star", np.array([5]), (np.zeros(4, dtype=int), np.arange(1, 5)), report_directed=False)
    expected = np.array([[4, 1, 1, 1, 0], *[[1, 4, 4, 4, 0]] * 4])
    np.testing.assert_array_equal(degree_profiles(star), expected)
    rows = LDP(bins=2).fit(star).transform(star).reshape(5, 2)
    # log 2 is less than half of log 5; nothing deviates
    np.testing.assert_array_equal(rows, [[4, 1], [1, 4], [1, 4], [1, 4], [5, 0]])
