"""What the words of a walk are, by hand."""

from itertools import pairwise

import numpy as np
import pytest

from joao.data.validation import make_dataset
from repro.baselines import Sub2vec
from tests.messages import refused

pytest.importorskip("gensim")


@pytest.fixture
def graphs(shapes):
    made = [shapes[name] for name in ("star", "cycle", "complete", "single node", "edgeless", "path")]
    sizes = np.array([size for size, _ in made])
    first = np.cumsum(sizes) - sizes
    ends = [(start + u, start + v) for start, (_, edges) in zip(first, made, strict=True) for u, v in edges]
    source, target = np.array(ends).T
    return make_dataset("made", sizes, (source, target), report_directed=False)


def test_structural_words_are_degrees_over_sizes(graphs):
    star, cycle, complete, single, edgeless, path = map("".join, Sub2vec(walk_length=50).documents(graphs))
    # the centre of the star is next to 7 of 8 nodes, its leaves to 1 of 8: in (0.75, 1] and in (0.1, 0.15]
    assert star in ("72" * 25, "27" * 25)
    assert cycle == "3" * 50  # 2 of 10, in (0.15, 0.2]
    assert complete == "7" * 50
    assert single == edgeless == "0"
    assert set(path) == {"3", "5"}  # 1 of 6 at the ends, and 2 of 6, in (0.25, 0.5]


def test_neighbourhood_words_are_nodes_of_a_walk(graphs, shapes):
    documents = Sub2vec(property="neighbourhood", walk_length=50).documents(graphs)
    for document, name in zip(documents, ("star", "cycle", "complete"), strict=False):
        edges = {frozenset(map(str, edge)) for edge in shapes[name][1]}
        assert len(document) == 50
        assert all(frozenset(step) in edges for step in pairwise(document))
    assert len(documents[3]) == len(documents[4]) == 1


def test_similar_graphs_are_near_each_other(graphs):
    kinds = np.arange(24) % 3
    rows = Sub2vec(epochs=100, seed=1).fit_transform(graphs[kinds])
    distance = np.linalg.norm(rows[:, None] - rows, axis=2) + np.diag([np.inf] * 24)
    assert (kinds[distance.argmin(axis=1)] == kinds).mean() > 0.9


def test_invalid_options_are_rejected():
    with refused("Sub2vec", "property", "'structure'", "'structural'"):
        Sub2vec(property="structure")
    with refused("Sub2vec", "walk_length", "10000", "10001"):
        Sub2vec(walk_length=10_001)
