import numpy as np
import pytest

from joao.baselines.histogram import Histogram
from joao.data.validation import make_dataset
from tests.messages import refused


def random_dataset(seed, labels):
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 9, size=12)
    first = np.cumsum(nodes) - nodes
    ends = [rng.integers(n, size=(2, 2 * n)) + start for n, start in zip(nodes, first, strict=True)]
    source, target = np.concatenate(ends, axis=1)
    return make_dataset(
        "random", nodes, (source, target), node_labels=labels and labels(rng, nodes.sum()), report_directed=False
    )


def naive(dataset, max_degree):
    rows = []
    columns = [] if dataset.node_labels is None else list(dataset.node_labels.T)
    for graph in range(len(dataset)):
        nodes = range(dataset.first_node[graph], dataset.first_node[graph + 1])
        edges = range(dataset.first_edge[graph], dataset.first_edge[graph + 1])
        row = [sum(column[n] == value for n in nodes) for column in columns for value in sorted(set(column))]
        degrees = [sum(dataset.source[e] == n for e in edges) for n in range(len(nodes))]
        row += [sum(min(d, max_degree) == wanted for d in degrees) for wanted in range(max_degree + 1)]
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("max_degree", [3, 64])
@pytest.mark.parametrize(
    "labels",
    [None, lambda rng, n: rng.choice([-1, 4, 9], size=n), lambda rng, n: rng.choice(["C", "N", "O"], size=(n, 2))],
)
def test_counts_match_a_loop_over_nodes(labels, max_degree):
    for seed in range(3):
        dataset = random_dataset(seed, labels)
        np.testing.assert_array_equal(
            Histogram(max_degree=max_degree).fit_transform(dataset), naive(dataset, max_degree)
        )


def test_a_star_of_seventy_leaves():
    star = make_dataset("star", np.array([71, 1]), (np.zeros(70, dtype=int), np.arange(1, 71)), report_directed=False)
    counts = Histogram().fit_transform(star)
    assert counts.shape == (2, 65)
    assert counts.dtype == np.float64
    assert counts[0, 1] == 70
    assert counts[0, 64] == 1  # the centre, capped
    assert counts[1, 0] == 1  # a graph without edges
    assert counts.sum() == 72


def test_new_graphs_are_counted_in_the_columns_of_the_fitted_ones():
    known = make_dataset("known", np.array([3]), ([], []), node_labels=np.array([[4, 1], [9, 1], [4, 2]]))
    new = make_dataset("new", np.array([2, 1]), ([0], [1]), node_labels=np.array([[9, 3], [5, 2], [10, 0]]))
    rows = Histogram(max_degree=1).fit(known).transform(new)
    # labels 4 and 9, then 1 and 2, then degrees 0 and 1
    np.testing.assert_array_equal(rows, [[0, 1, 0, 1, 0, 2], [0, 0, 0, 0, 1, 0]])
    with refused("plain", 0, 2):
        Histogram().fit(known).transform(make_dataset("plain", np.array([1]), ([], [])))
