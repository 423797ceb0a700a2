"""Baselines that only the paper's unsupervised table has: DGK, node2vec and sub2vec."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines import BASELINES as PACKAGE_BASELINES
from joao.baselines import WL
from joao.baselines.base import Baseline
from joao.baselines.doc2vec import MAX_WORDS, ParagraphVectors, gensim_seed, reading_order, require_gensim, to_words
from joao.core.errors import UserError, suggest
from joao.core.randomness import numpy_generator
from joao.core.registry import catalogue, check_minimum
from joao.data.dataset import Dataset, sizes_to_offsets
from joao.data.refinement import label_indices, refine_labels

NO_NODE = -1


class Neighbours(NamedTuple):
    """The neighbours of every node; nodes are numbered through all graphs.

    Attributes:
        first: ``(N + 1,)`` offsets of the nodes in ``nodes``.
        nodes: ``(E,)`` neighbours, ascending for each node.
    """

    first: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.first)

    def edges(self) -> NDArray[np.int64]:
        """A number for every edge, ascending, ``(E,)``; see :meth:`number`."""
        return self.number(np.repeat(np.arange(len(self.first) - 1), self.degrees), self.nodes)

    def number(self, node: NDArray[np.int64], neighbour: NDArray[np.int64]) -> NDArray[np.int64]:
        return node * (len(self.first) - 1) + neighbour


def find_neighbours(dataset: Dataset) -> Neighbours:
    shift = np.repeat(dataset.first_node[:-1], np.diff(dataset.first_edge))
    return Neighbours(sizes_to_offsets(dataset.degrees), dataset.source + shift)


def random_walks(
    neighbours: Neighbours,
    starts: NDArray[np.int64],
    length: int,
    random: np.random.Generator,
    *,
    p: float = 1.0,
    q: float = 1.0,
) -> NDArray[np.int64]:
    """Draw node2vec walks (Grover and Leskovec, 2016), whose next step depends on the last two nodes.

    From :math:`v`, coming from :math:`t`, the next node is a neighbour :math:`x` of :math:`v` with a probability
    proportional to :math:`1/p` if :math:`x = t`, to 1 if :math:`x` is a neighbour of :math:`t`, and to :math:`1/q`
    otherwise. The first step, and every step if :math:`p = q = 1`, is uniform.

    Returns:
        ``(W, length)`` nodes, starting with ``starts``; :data:`NO_NODE` after a node without neighbours.
    """
    walks = np.full((len(starts), length), NO_NODE)
    walks[:, 0] = starts
    moving = np.flatnonzero(neighbours.degrees[starts])  # edges go both ways, so a walk that can start never gets stuck
    edges = neighbours.edges() if (p, q) != (1, 1) else None
    before = at = starts[moving]  # previous = current makes all neighbours equally near: the first step is uniform
    for step in range(1, length):
        if edges is None:
            at = _uniform_step(neighbours, at, random)
        else:
            before, at = at, _biased_step(neighbours, edges, before, at, (1 / p, 1.0, 1 / q), random)
        walks[moving, step] = at
    return walks


def _uniform_step(neighbours: Neighbours, at: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    first = neighbours.first[at]
    return neighbours.nodes[first + (random.random(len(at)) * (neighbours.first[at + 1] - first)).astype(np.int64)]


def _biased_step(
    neighbours: Neighbours,
    edges: NDArray[np.int64],
    before: NDArray[np.int64],
    at: NDArray[np.int64],
    weights: tuple[float, float, float],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Rejection sampling: propose uniform steps and accept each with its weight relative to the largest one."""
    back, near, far = weights
    largest = max(weights)
    to = np.empty_like(at)
    waiting = np.arange(len(at))
    while len(waiting):
        here, there = at[waiting], before[waiting]
        proposed = _uniform_step(neighbours, here, random)
        wanted = neighbours.number(there, proposed)
        place = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
        weight = np.where(proposed == there, back, np.where(edges[place] == wanted, near, far))
        accepted = random.random(len(waiting)) * largest < weight
        to[waiting[accepted]] = proposed[accepted]
        waiting = waiting[~accepted]
    return to


def word_vectors(
    sentences: Iterable[Sequence[str]], counts: NDArray[np.int64], num_sentences: int, seed: int, **options: int
) -> NDArray[np.float32]:
    """Learn a vector of each of the words ``"0"`` to ``"N - 1"`` with skip-gram, ``(N, d)``.

    Args:
        sentences: must be iterable once per epoch.
        counts: ``(N,)`` number of occurrences of each word, at least 1.
        num_sentences: number of sentences.
        seed: of the initial weights and the negative samples.
        options: ``vector_size``, ``window`` and ``epochs`` of gensim's ``Word2Vec``.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(sg=1, min_count=1, workers=1, seed=gensim_seed(seed, "words"), **options)
    frequencies = {str(word): count for word, count in enumerate(counts.tolist())}
    model.build_vocab_from_freq(frequencies, corpus_count=num_sentences)
    model.train(sentences, total_examples=num_sentences, epochs=model.epochs)
    vectors: NDArray[np.float32] = np.empty_like(model.wv.vectors)
    vectors[np.array(model.wv.index_to_key, dtype=np.int64)] = model.wv.vectors
    return vectors


@final
class DGK(Baseline):
    r"""The deep graph kernel (Yanardag and Vishwanathan, 2015) on Weisfeiler-Lehman labels.

    :class:`WL` treats different labels as unrelated; here, labels that occur in the same graphs are similar. The labels
    of one refinement in one graph form a sentence, and skip-gram learns a vector of every label, the rows of :math:`E`:

    .. math:: k(G, H) = \phi(G)^\top M \phi(H), \qquad M = E E^\top,

    with the counts :math:`\phi` of :class:`WL`. The row of a graph is :math:`\phi(G)^\top E`. Labels in a graph have no
    order, so the words of a sentence are shuffled. Labels that did not occur in :meth:`fit` are ignored.

    Args:
        iterations: number of refinements.
        dimensions: length of the vectors.
        window: largest distance of words in a sentence that predict each other.
        epochs: passes over all sentences.
        seed: of the word order and the model.
    """

    title: ClassVar[str] = "DGK (deep graph kernel)"
    kernel: ClassVar[bool] = True
    uses_labels: ClassVar[bool] = True
    needs: ClassVar[str | None] = "gensim"

    def __init__(
        self, *, iterations: int = 3, dimensions: int = 128, window: int = 25, epochs: int = 10, seed: int = 0
    ) -> None:
        check_minimum("DGK", 0, iterations=iterations)
        check_minimum("DGK", 1, dimensions=dimensions, window=window, epochs=epochs)
        self.iterations, self.dimensions, self.window = iterations, dimensions, window
        self.epochs, self.seed = epochs, seed

    def learn(self, graphs: Dataset) -> None:
        require_gensim()
        self.counts = WL(iterations=self.iterations)
        occurrences = self.counts.fit_transform(graphs).sum(axis=0).astype(np.int64)
        in_order = list(self._sentences(graphs))
        sentences = [in_order[number] for number in reading_order(len(in_order), self.seed)]
        options = {"vector_size": self.dimensions, "window": self.window, "epochs": self.epochs}
        vectors = word_vectors(sentences, occurrences, len(sentences), self.seed, **options)
        self.vectors = vectors.astype(np.float64)

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        rows: NDArray[np.float64] = self.counts.rows(graphs) @ self.vectors
        return rows

    def _sentences(self, graphs: Dataset) -> Iterator[list[str]]:
        """The labels of each refinement in each graph as column numbers, independent of the order of the nodes."""
        random = numpy_generator(self.seed, "order of words")
        first_column = 0
        refinements = zip(refine_labels(graphs, self.iterations), self.counts.labels, strict=True)
        for labels, known in refinements:
            columns = label_indices(labels, known) + first_column
            first_column += len(known)
            for words in np.split(columns, graphs.first_node[1:-1]):
                shuffled = list(map(str, random.permutation(np.sort(words)).tolist()))
                for first in range(0, len(shuffled), MAX_WORDS):
                    yield shuffled[first : first + MAX_WORDS]


WALKERS_AT_ONCE = 1 << 15


@final
class Node2vec(Baseline):
    r"""The mean of node2vec node vectors (Grover and Leskovec, 2016) over each graph.

    Random walks are sentences and nodes are words. Skip-gram with negative sampling learns a vector :math:`z_v` of
    every node, one model for all graphs. The row of a graph is :math:`\frac{1}{n} \sum_v z_v`. Labels and attributes
    are ignored.

    The method is transductive: :meth:`fit` learns nothing, and :meth:`transform` learns the vectors of the graphs it
    gets. Rows of two calls cannot be compared, so pass all graphs at once.

    Args:
        dimensions: length of the rows.
        walks_per_node, walk_length, window: published are 10, 80 and 10, at five times the cost; on development data,
            the rows are no better than chance with either.
        p, q: return and in-out parameter of the walks, see :func:`random_walks`.
        epochs: passes over all walks.
        seed: of the walks and the model.
    """

    title: ClassVar[str] = "node2vec"
    needs: ClassVar[str | None] = "gensim"

    def __init__(
        self,
        *,
        dimensions: int = 128,
        walks_per_node: int = 10,
        walk_length: int = 20,
        window: int = 5,
        p: float = 1.0,
        q: float = 1.0,
        epochs: int = 1,
        seed: int = 0,
    ) -> None:
        check_minimum("Node2vec", 1, dimensions=dimensions, walks_per_node=walks_per_node, walk_length=walk_length)
        check_minimum("Node2vec", 1, window=window, epochs=epochs)
        for name, weight in {"p": p, "q": q}.items():
            if not weight > 0:
                raise UserError(f"Node2vec: {name} must be above 0, got {weight}.")
        self.dimensions, self.window, self.epochs = dimensions, window, epochs
        self.walks_per_node, self.walk_length = walks_per_node, walk_length
        self.p, self.q, self.seed = p, q, seed

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        vectors = self.node_vectors(graphs).astype(np.float64)
        return np.add.reduceat(vectors, graphs.first_node[:-1]) / np.diff(graphs.first_node)[:, None]

    def node_vectors(self, graphs: Dataset) -> NDArray[np.float32]:
        """Learn the vectors of the nodes of all graphs, ``(N, d)``."""
        require_gensim()
        walks = _Walks(find_neighbours(graphs), self)
        num_walks = graphs.num_nodes * self.walks_per_node
        options = {"vector_size": self.dimensions, "window": self.window, "epochs": self.epochs}
        return word_vectors(walks, walks.counts(), num_walks, self.seed, **options)


class _Walks:
    """All walks, drawn again and identically in every iteration, because they would not fit into memory."""

    def __init__(self, neighbours: Neighbours, method: Node2vec) -> None:
        self.neighbours, self.method = neighbours, method

    def __iter__(self) -> Iterator[list[str]]:
        words = to_words(np.arange(len(self.neighbours.degrees)))
        for walks in self._blocks():
            ends = np.where(walks[:, -1] == NO_NODE, 1, self.method.walk_length)
            for walk, end in zip(words[walks].tolist(), ends.tolist(), strict=True):
                yield walk[:end]

    def counts(self) -> NDArray[np.int64]:
        """Count how often each node is in a walk, ``(N,)``."""
        counts = np.zeros(len(self.neighbours.degrees), dtype=np.int64)
        for walks in self._blocks():
            counts += np.bincount(walks[walks != NO_NODE], minlength=len(counts))
        return counts

    def _blocks(self) -> Iterator[NDArray[np.int64]]:
        method = self.method
        random = numpy_generator(method.seed, "walks")
        for _ in range(method.walks_per_node):
            nodes = random.permutation(len(self.neighbours.degrees))
            for first in range(0, len(nodes), WALKERS_AT_ONCE):
                starts = nodes[first : first + WALKERS_AT_ONCE]
                yield random_walks(self.neighbours, starts, method.walk_length, random, p=method.p, q=method.q)


PROPERTIES = ("structural", "neighbourhood")
DEGREE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75)


@final
class Sub2vec(ParagraphVectors):
    """Paragraph vectors of random walks (Adhikari et al., 2018), with whole graphs as subgraphs.

    The document of a graph is one long uniform walk from a uniformly drawn node. PV-DM learns its vector. Labels and
    attributes are ignored. The words of the walk are

    - ``structural``: the degree of the node divided by the number of nodes, in eight intervals (as published, up to
      0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75 and 1). Only these compare graphs without common nodes.
    - ``neighbourhood``: the number of the node in its graph.

    Args:
        property: ``structural`` or ``neighbourhood``.
        dimensions: length of the rows.
        walk_length: in nodes.
        window: largest distance of the words that predict a word.
        epochs: passes over all walks.
        seed: of the walks and the model.
    """

    title: ClassVar[str] = "sub2vec"

    def __init__(
        self,
        *,
        property: str = "structural",
        dimensions: int = 128,
        walk_length: int = 1000,
        window: int = 2,
        epochs: int = 20,
        seed: int = 0,
    ) -> None:
        if property not in PROPERTIES:
            raise UserError(f"Sub2vec: unknown property '{property}'. {suggest(property, PROPERTIES)}")
        check_minimum("Sub2vec", 1, dimensions=dimensions, window=window, epochs=epochs, walk_length=walk_length)
        if walk_length is not None and walk_length > MAX_WORDS:
            raise UserError(f"Sub2vec: walk_length must be from 1 to {MAX_WORDS}, got {walk_length}.")
        self.property, self.dimensions, self.walk_length = property, dimensions, walk_length
        self.window, self.epochs, self.seed = window, epochs, seed

    @property
    def options(self) -> dict[str, Any]:
        sizes = {"vector_size": self.dimensions, "epochs": self.epochs, "window": self.window}
        return {"dm": 1, "min_count": 1, "sample": 1e-3, **sizes}

    def documents(self, graphs: Dataset) -> list[list[str]]:
        random = numpy_generator(self.seed, "walks")
        sizes = np.diff(graphs.first_node)
        starts = graphs.first_node[:-1] + (random.random(len(graphs)) * sizes).astype(np.int64)
        walks = random_walks(find_neighbours(graphs), starts, self.walk_length, random)
        if self.property == "structural":
            words = np.searchsorted(DEGREE_SHARES, graphs.degrees / sizes[graphs.graph_of_node])
        else:
            words = np.arange(graphs.num_nodes) - graphs.first_node[graphs.graph_of_node]
        texts = to_words(words)
        return [texts[walk[walk != NO_NODE]].tolist() for walk in walks]


PAPER_BASELINES: dict[str, type[Baseline]] = catalogue(
    Baseline, {kind.__name__: kind for kind in (DGK, Node2vec, Sub2vec)}
)
BASELINES: dict[str, type[Baseline]] = {**PACKAGE_BASELINES, **PAPER_BASELINES}
