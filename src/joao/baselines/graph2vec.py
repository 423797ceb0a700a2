from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import check_least
from joao.baselines.paragraphs import ParagraphOptions, ParagraphVectors, as_words
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.data.refinement import refine_labels


@final
class Graph2vec(ParagraphVectors):
    """Paragraph vectors of rooted subtrees (Narayanan et al., 2017).

    A graph is a document whose words are the Weisfeiler-Lehman labels of its nodes before and after each refinement:
    the subtrees of depth 0, 1, ... around each node. PV-DBOW learns the vector that foretells them. Node labels are
    read; where there are none, a node's degree is its label. Attributes are not read.

    Rows of graphs that it was not fitted on are inferred, from the subtrees that it knows.

    Args:
        dimensions: of the rows.
        iterations: refinements.
        epochs: how often the graphs are gone through.
        min_count: subtrees that are rarer than this in all graphs are left out.
        seed: of the order of words and of the model.
    """

    def __init__(
        self, *, dimensions: int = 128, iterations: int = 2, epochs: int = 50, min_count: int = 5, seed: int = 0
    ) -> None:
        check_least("Graph2vec", 1, dimensions=dimensions, epochs=epochs, min_count=min_count)
        check_least("Graph2vec", 0, iterations=iterations)
        self.iterations, self.seed = iterations, seed
        self.options = ParagraphOptions(dimensions, epochs, bag=True, min_count=min_count)

    def documents(self, graphs: Dataset) -> list[list[str]]:
        if graphs.node_labels is None:  # all nodes start alike, and the first refinement tells their degrees
            labels = list(refine_labels(graphs, self.iterations + 1))[1:]
        else:
            labels = list(refine_labels(graphs, self.iterations))
        words = as_words(np.stack([label[:, 0] for label in labels], axis=1))
        return [self._mixed(rows.ravel()) for rows in np.split(words, graphs.first_node[1:-1])]

    def _mixed(self, words: NDArray[np.object_]) -> list[str]:
        """In a random order, as a bag has none and gensim best remembers what it reads last."""
        mixed: list[str] = numpy_generator(self.seed, "words").permutation(words).tolist()
        return mixed
