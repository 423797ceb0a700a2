import sys
from itertools import chain

import numpy as np
import pytest

from joao.baselines import WL
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from repro.baselines import DGK
from tests.messages import refused


@pytest.fixture(autouse=True)
def _gensim(request):
    if "without_gensim" not in request.node.name:
        pytest.importorskip("gensim")


@pytest.fixture(scope="module")
def two_worlds():
    """Graphs of ten nodes without edges; those of even number have the labels 0 to 3, the others 4 to 7."""
    labels = np.random.default_rng(0).integers(4, size=(400, 10)) + 4 * (np.arange(400) % 2)[:, None]
    return make_dataset("two worlds", np.full(400, 10), ([], []), node_labels=labels.ravel())


def test_rows_are_counts_times_vectors():
    graphs, new = (random_graphs(20, mean_nodes=6, seed=seed) for seed in (0, 1))
    method = DGK(iterations=2, dimensions=5, epochs=1).fit(graphs)
    counts = WL(iterations=2).fit(graphs)
    assert method.vectors.shape == (counts.transform(graphs).shape[1], 5)
    for each in (graphs, new):
        np.testing.assert_allclose(method.transform(each), counts.transform(each).toarray() @ method.vectors)


def test_sentences_contain_the_labels_of_each_graph_and_refinement():
    graphs = random_graphs(15, mean_nodes=6, seed=0)
    method = DGK(iterations=2, dimensions=2, epochs=1).fit(graphs)
    counts = method.counts.transform(graphs).toarray()
    sentences = list(method._sentences(graphs))
    assert len(sentences) == 3 * 15
    for graph in range(15):
        words = np.concatenate([np.array(sentence, dtype=int) for sentence in sentences[graph::15]])
        np.testing.assert_array_equal(np.bincount(words, minlength=counts.shape[1]), counts[graph])


def test_labels_that_occur_together_become_similar(two_worlds):
    method = DGK(iterations=0, dimensions=8, epochs=20).fit(two_worlds)
    in_odd_graphs = method.counts.transform(two_worlds[1::2]).sum(axis=0) > 0
    assert in_odd_graphs.sum() == 4
    vectors = method.vectors / np.linalg.norm(method.vectors, axis=1, keepdims=True)
    cosines, same = vectors @ vectors.T, in_odd_graphs[:, None] == in_odd_graphs
    assert cosines[same].min() > cosines[~same].max() + 0.3


def test_vectors_come_from_the_sentences(two_worlds):
    """More epochs and a wider window change them; words that gensim does not know would leave them as they began."""
    base = DGK(iterations=0, dimensions=4, epochs=1, window=2).fit(two_worlds).vectors
    for options in ({"epochs": 2, "window": 2}, {"epochs": 1, "window": 9}):
        assert not np.allclose(DGK(iterations=0, dimensions=4, **options).fit(two_worlds).vectors, base)


def test_long_sentences_are_split(monkeypatch):
    graphs = random_graphs(8, mean_nodes=30, seed=0)
    method = DGK(iterations=1, dimensions=2, epochs=1).fit(graphs)
    whole = [sorted(sentence) for sentence in method._sentences(graphs)]
    monkeypatch.setattr("repro.baselines.MAX_WORDS", 7)
    pieces = list(method._sentences(graphs))
    assert max(map(len, pieces)) == 7
    assert sorted(chain(*pieces)) == sorted(chain(*whole))


@pytest.mark.parametrize("options", [{"iterations": -1}, {"dimensions": 0}, {"window": 0}, {"epochs": 0}])
def test_wrong_options_are_errors(options):
    ((name, value),) = options.items()
    with refused("DGK", name, value):
        DGK(**options)


def test_without_gensim_install_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    with refused("pip install gensim"):
        DGK().fit(random_graphs(4))
