"""The mean of what skip-gram learns from walks, each part beside a plain form of it."""

from collections import Counter

import numpy as np
import pytest

from joao.baselines.doc2vec import gensim_seed
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from repro.baselines import Node2vec, _Walks, find_neighbours, word_vectors

pytest.importorskip("gensim")
GRAPHS = random_graphs(8, mean_nodes=6, seed=2)


def test_a_row_is_the_mean_of_its_nodes():
    method = Node2vec(dimensions=6, walk_length=5)
    vectors, rows = method.node_vectors(GRAPHS), method.fit_transform(GRAPHS)
    for number, row in enumerate(rows):
        nodes = range(GRAPHS.first_node[number], GRAPHS.first_node[number + 1])
        np.testing.assert_allclose(row, sum(vectors[node].astype(float) for node in nodes) / len(nodes), atol=1e-12)


def test_every_node_starts_reproducible_walks():
    walks = _Walks(find_neighbours(GRAPHS), Node2vec(walks_per_node=3, walk_length=7, p=0.5))
    texts = list(walks)
    assert texts == list(walks)
    sentences = [[int(word) for word in text] for text in texts]
    assert Counter(sentence[0] for sentence in sentences) == dict.fromkeys(range(GRAPHS.num_nodes), 3)
    assert {len(sentence) for sentence in sentences if GRAPHS.degrees[sentence[0]]} == {7}
    assert {len(sentence) for sentence in sentences if not GRAPHS.degrees[sentence[0]]} == {1}
    assert Counter(word for sentence in sentences for word in sentence) == dict(enumerate(walks.counts().tolist()))
    assert sentences[:9] != sorted(sentences[:9])  # in a random order


def test_word_vectors_match_plain_gensim():
    from gensim.models import Word2Vec

    random = np.random.default_rng(0)
    counts = np.arange(30, 0, -2)[random.permutation(15)]  # all different: words that are as frequent have no order
    sentences = random.permutation(np.repeat(np.arange(15), counts)).reshape(-1, 8).tolist()
    texts, named = ([[name(word) for word in each] for each in sentences] for name in (str, "word {}".format))
    plain = Word2Vec(
        named, sg=1, vector_size=5, window=2, epochs=3, min_count=1, workers=1, seed=gensim_seed(4, "words")
    )
    found = word_vectors(texts, counts, len(sentences), 4, vector_size=5, window=2, epochs=3)
    np.testing.assert_array_equal(found, [plain.wv[f"word {word}"] for word in range(15)])


def test_nodes_of_a_community_are_near_each_other():
    clique = [(u, v) for v in range(8) for u in range(v)]
    ends = np.array([*clique, *((u + 8, v + 8) for u, v in clique), (0, 8)])
    graphs = make_dataset("two cliques", np.array([16]), (ends[:, 0], ends[:, 1]), report_directed=False)
    vectors = Node2vec(dimensions=16, window=3, epochs=5).node_vectors(graphs)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T
    np.fill_diagonal(near, -1)
    assert ((near.argmax(axis=1) < 8) == (np.arange(16) < 8)).all()
