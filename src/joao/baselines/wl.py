"""Kernels on Weisfeiler-Lehman labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from joao.baselines.base import Baseline
from joao.baselines.word2vec import MAX_WORDS, reading_order, require_gensim, word_vectors
from joao.core.randomness import numpy_generator
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset
from joao.data.refinement import Labels, label_indices, number_labels, refine_labels


@final
class WL(Baseline):
    r"""The Weisfeiler-Lehman subtree kernel (Shervashidze et al., 2011).

    The label of a node describes its surroundings, one step further after each refinement. The row of a graph counts
    the nodes with each label :math:`\sigma` after each refinement :math:`t = 0, \dots, h`:

    .. math:: \phi_{t \sigma}(G) = | \{ v \in G : l_t(v) = \sigma \} |

    Initial labels are the node labels or, without any, all equal (then :math:`t = 1` counts degrees). Attributes of
    nodes and edges are ignored. Labels that did not occur in :meth:`fit` have no column.

    Args:
        iterations: number of refinements :math:`h`.

    >>> import networkx
    >>> WL(iterations=1).fit_transform([networkx.path_graph(3), networkx.cycle_graph(3)]).toarray()  # nodes; degrees
    array([[3., 1., 2.],
           [3., 3., 0.]])
    """

    title: ClassVar[str] = "WL (subtree kernel)"
    kernel: ClassVar[bool] = True

    def __init__(self, *, iterations: int = 3) -> None:
        check_minimum("WL", 0, iterations=iterations)
        self.iterations = iterations

    def learn(self, graphs: Dataset) -> None:
        self.labels: list[Labels] = [number_labels(labels)[1] for labels in refine_labels(graphs, self.iterations)]

    def rows(self, graphs: Dataset) -> csr_array:
        refinements = zip(refine_labels(graphs, self.iterations), self.labels, strict=True)
        return hstack([label_counts(graphs, labels, known) for labels, known in refinements], format="csr")


def label_counts(graphs: Dataset, labels: Labels, known: Labels) -> csr_array:
    """Count the nodes of each graph that have each of the known labels ``(V, 2)``: ``(G, V)``."""
    columns = label_indices(labels, known)
    seen = columns >= 0
    # scikit-learn takes 32-bit indices only
    cells = graphs.graph_of_node[seen].astype(np.int32), columns[seen].astype(np.int32)
    return csr_array((np.ones(len(cells[0])), cells), shape=(len(graphs), len(known)))


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
