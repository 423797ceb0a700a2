from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline
from joao.baselines.walks import NO_NODE, Neighbours, find_neighbours, random_walks
from joao.baselines.word2vec import require_gensim, to_words, word_vectors
from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset

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
        p, q: return and in-out parameter of the walks, see :func:`joao.baselines.walks.random_walks`.
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
