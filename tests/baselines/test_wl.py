"""Weisfeiler-Lehman counts, beside a plain one with a dictionary of tuples and beside GraKeL."""

from dataclasses import replace

import numpy as np
import pytest

from joao.baselines import WL
from joao.data import read
from joao.data.names import BUNDLED
from joao.data.refinement import label_indices, number_labels, refine_labels
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from joao.evaluation.svm import normalised_gram
from tests.messages import refused


def plain_labels(graph, iterations):
    """Nested tuples of own label and sorted labels around, a list for each refinement."""
    around = [[] for _ in range(graph.num_nodes)]
    for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        around[target].append(source)
    labels = [()] * graph.num_nodes if graph.node_labels is None else [tuple(row) for row in graph.node_labels.tolist()]
    refinements = [labels]
    for _ in range(iterations):
        labels = [(label, tuple(sorted(labels[other] for other in around[v]))) for v, label in enumerate(labels)]
        refinements.append(labels)
    return refinements


def plain_counts(old, new, iterations):
    """``(G, V)``, a column for each label of the old graphs as it is met."""
    column, cells = {}, []
    for graph in old:
        for number, labels in enumerate(plain_labels(graph, iterations)):
            for label in labels:
                column.setdefault((number, label), len(column))
    for row, graph in enumerate(new):
        for number, labels in enumerate(plain_labels(graph, iterations)):
            cells += [(row, column[number, label]) for label in labels if (number, label) in column]
    counts = np.zeros((len(new), len(column)))
    np.add.at(counts, tuple(np.array(cells).T), 1)
    return counts


def in_order(rows):
    """Columns in an order that does not depend on the one they had."""
    return rows[:, np.lexsort(rows)]


@pytest.fixture(params=["numbers", "none", "two columns", "text"])
def graphs(request):
    graphs = random_graphs(30, mean_nodes=7, num_node_labels=0 if request.param == "none" else 3, seed=4)
    numbers = graphs.node_labels
    if request.param == "two columns":
        return replace(graphs, node_labels=np.concatenate([numbers, numbers[::-1]], axis=1))
    return replace(graphs, node_labels=numbers.astype(str)) if request.param == "text" else graphs


@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_counts_match_a_dictionary(graphs, iterations):
    rows = WL(iterations=iterations).fit_transform(graphs)
    np.testing.assert_array_equal(in_order(rows.toarray()), in_order(plain_counts(graphs, graphs, iterations)))


def test_new_labels_have_no_column(graphs):
    old, new = graphs[:10], graphs[10:]
    method = WL(iterations=2).fit(old)
    expected = np.vstack([plain_counts(old, each, 2) for each in (old, new)])
    assert 0 < expected[10:].sum() < 3 * new.num_nodes  # some labels are new
    found = np.vstack([method.transform(each).toarray() for each in (old, new)])
    np.testing.assert_array_equal(in_order(found), in_order(expected))


def test_without_labels_the_first_refinement_counts_degrees():
    # A star of three leaves and a path of three nodes: one label, then degrees 1, 2 and 3.
    stars = make_dataset("two", np.array([4, 3]), ([0, 0, 0, 4, 5], [1, 2, 3, 5, 6]), report_directed=False)
    rows = WL(iterations=1).fit_transform(stars).toarray()
    assert rows[:, 0].tolist() == [4, 3]
    assert sorted(rows[:, 1:].T.tolist()) == [[0, 1], [1, 0], [3, 2]]


def test_labels_with_an_equal_half_are_distinguished():
    random = np.random.default_rng(0)
    known, labels = np.unique(random.integers(4, size=(8, 2)), axis=0), random.integers(5, size=(200, 2))
    known = random.permutation(known).astype(np.uint64)
    positions = {tuple(row): place for place, row in enumerate(known.tolist())}
    assert label_indices(labels.astype(np.uint64), known).tolist() == [
        positions.get(tuple(row), -1) for row in labels.tolist()
    ]
    assert sorted(number_labels(labels.astype(np.uint64))[1].tolist()) == np.unique(labels, axis=0).tolist()


def test_numeric_and_text_labels_are_equal():
    """So that it does not matter how a file spells them."""
    graphs = random_graphs(5, seed=1)
    texts = replace(graphs, node_labels=graphs.node_labels.astype(str))
    for one, other in zip(refine_labels(graphs, 2), refine_labels(texts, 2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_negative_iterations_are_rejected():
    with refused("WL", "iterations", -1):
        WL(iterations=-1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("iterations", [1, 4])
def test_kernel_matches_grakel_on_mutag(iterations):
    grakel = pytest.importorskip("grakel")
    graphs = read(BUNDLED / "MUTAG.zip")
    theirs = [
        grakel.Graph(
            {(int(u), int(v)): 1 for u, v in zip(graph.source, graph.target, strict=True)},
            node_labels=dict(enumerate(graph.node_labels[:, 0].tolist())),
        )
        for graph in graphs
    ]
    rows = WL(iterations=iterations).fit_transform(graphs)
    kernel = grakel.WeisfeilerLehman(n_iter=iterations, normalize=False, base_graph_kernel=grakel.VertexHistogram)
    np.testing.assert_array_equal((rows @ rows.T).toarray(), kernel.fit_transform(theirs))
    kernel = grakel.WeisfeilerLehman(n_iter=iterations, normalize=True, base_graph_kernel=grakel.VertexHistogram)
    np.testing.assert_allclose(normalised_gram(rows), kernel.fit_transform(theirs), rtol=1e-12)
