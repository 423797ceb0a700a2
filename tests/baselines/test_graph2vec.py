"""Words against rooted subtrees written out, and inference against gensim's own."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from joao.baselines import Graph2vec
from joao.baselines.doc2vec import MAX_WORDS, _split_document, gensim_seed, reading_order
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from tests.messages import refused

pytest.importorskip("gensim")
GRAPHS = random_graphs(20, mean_nodes=8, seed=6)


def subtrees(graph, depth):
    """Every node's subtree up to this depth, as nested tuples, by loops."""
    network = nx.empty_graph(graph.num_nodes)
    network.add_edges_from(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    trees = [len(network[node]) for node in network] if graph.node_labels is None else graph.node_labels[:, 0].tolist()
    levels = [trees]
    for _ in range(depth):
        trees = [(trees[node], *sorted((trees[other] for other in network[node]), key=repr)) for node in network]
        levels.append(trees)
    return [(level, tree) for level, trees in enumerate(levels) for tree in trees]


@pytest.mark.parametrize("num_node_labels", [0, 3])
@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_words_are_subtrees(iterations, num_node_labels):
    graphs = random_graphs(15, mean_nodes=7, num_node_labels=num_node_labels, seed=8)
    documents = Graph2vec(iterations=iterations).documents(graphs)
    trees = [subtrees(graph, iterations) for graph in graphs]
    columns = {tree: [own.count(tree) for own in trees] for own in trees for tree in own}
    words = {word: [own.count(word) for own in documents] for own in documents for word in own}
    assert Counter(map(tuple, words.values())) == Counter(map(tuple, columns.values()))


def cosines(one, other):
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def texts(documents):
    return [[f"word {word}" for word in document] for document in documents]


def test_rows_match_plain_gensim():
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

    method = Graph2vec(dimensions=8, epochs=300, min_count=2, seed=3).fit(GRAPHS)
    documents = list(texts(method.documents(GRAPHS)))
    plain = Doc2Vec(
        [TaggedDocument(documents[number], [number]) for number in reading_order(len(documents), 3)],
        dm=0,
        vector_size=8,
        epochs=300,
        min_count=2,
        sample=0,
        workers=1,
        seed=gensim_seed(3, "documents"),
    )
    np.testing.assert_array_equal(method.transform(GRAPHS), plain.dv.vectors)
    new = random_graphs(12, mean_nodes=8, seed=7)
    inferred = np.array([plain.infer_vector(text) for text in texts(method.documents(new))])
    assert cosines(method.transform(new), inferred).min() > 0.97


def test_inferred_row_depends_only_on_its_graph():
    method = Graph2vec(dimensions=8, epochs=20).fit(GRAPHS)
    new = random_graphs(12, mean_nodes=8, seed=7)
    rows = method.transform(new)
    np.testing.assert_array_equal(rows[[5, 2]], method.transform(new[[5, 2]]))
    learned, again = method.transform(GRAPHS), method.transform(GRAPHS[::-1])[::-1]
    assert cosines(learned, again).min() > 0.5  # the words are the same, their model went on


@pytest.mark.parametrize("length", [1, MAX_WORDS, MAX_WORDS + 1, 3 * MAX_WORDS - 1])
def test_long_documents_are_split(length):
    words = [str(number) for number in range(length)]
    pieces = _split_document(words)
    assert sorted(word for piece in pieces for word in piece) == sorted(words)
    assert max(map(len, pieces)) <= MAX_WORDS
    assert len(pieces) == np.ceil(length / MAX_WORDS)


def test_large_graph_resembles_small_graphs_with_its_labels():
    """Labels 0 and 1 in turn: read in part or as a whole, it must be like the second of the small ones."""
    labels = np.concatenate([[0] * 40, [0, 1] * 20, [1] * 40, [0, 1] * (MAX_WORDS * 3 // 4)])[:, None]
    sizes = np.array([40, 40, 40, len(labels) - 120])
    graphs = make_dataset("sizes", sizes, ([], []), node_labels=labels)
    method = Graph2vec(iterations=0, dimensions=4, epochs=200, min_count=1).fit(graphs[:3])
    rows = method.transform(graphs[3]) * np.ones((3, 1))
    assert cosines(method.transform(graphs[:3]), rows).argmax() == 1


def test_min_count_without_frequent_words_is_rejected():
    with refused("synthetic", 1000, "min_count"):
        Graph2vec(min_count=1000).fit(GRAPHS)
