"""Baselines that treat a graph as a document and learn its paragraph vector with gensim."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline
from joao.baselines.walks import NO_NODE, find_neighbours, random_walks
from joao.baselines.word2vec import MAX_WORDS, gensim_seed, reading_order, require_gensim, to_words
from joao.core.errors import UserError, suggest
from joao.core.randomness import numpy_generator
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset
from joao.data.refinement import refine_labels

Document = Sequence[str]


class ParagraphVectors(Baseline):
    """Base class: the row of a graph is the paragraph vector (Le and Mikolov, 2014) of its document.

    :meth:`transform` returns the learned vectors for the graphs it was fitted on. For other graphs it infers them:
    starting from zero, each document by itself, with the rest of the model fixed; unknown words are ignored.

    Attributes:
        seed: of the model.
    """

    needs: ClassVar[str | None] = "gensim"
    seed: int

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of gensim's ``Doc2Vec``. PV-DBOW (``dm=0``): the vector of a document predicts its words;
        PV-DM (``dm=1``): it predicts a word together with the vectors of the words around it."""

    @abstractmethod
    def documents(self, graphs: Dataset) -> Sequence[Document]:
        """Return the words of each graph."""

    def learn(self, graphs: Dataset) -> None:
        require_gensim()
        from gensim.models.doc2vec import Doc2Vec, TaggedDocument

        model = Doc2Vec(**self.options, workers=1, seed=gensim_seed(self.seed, "documents"))
        documents = self.documents(graphs)
        tagged = [
            TaggedDocument(piece, [number])
            for number in reading_order(len(documents), self.seed)
            for piece in _split_document(documents[number])
        ]
        model.build_vocab(tagged)
        if not len(model.wv):
            raise UserError(f"{graphs.name}: no word occurs {model.min_count} times. Use a smaller min_count.")
        model.train(tagged, total_examples=model.corpus_count, epochs=model.epochs)
        self._model, self._fitted_on = model, graphs.fingerprint

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        if graphs.fingerprint == self._fitted_on:
            learned: NDArray[np.float64] = self._model.dv.vectors.astype(np.float64)
            return learned
        rows = np.zeros((len(graphs), self._model.vector_size), dtype=np.float32)
        for row, document in zip(rows, self.documents(graphs), strict=True):
            self._infer(row, _split_document(document))
        return rows.astype(np.float64)

    def _infer(self, row: NDArray[np.float32], pieces: Sequence[Document]) -> None:
        """Infer a vector like gensim's ``infer_vector``, which starts from a hash that differs between processes."""
        from gensim.models.doc2vec import train_document_dbow, train_document_dm

        learn = train_document_dbow if self.options["dm"] == 0 else train_document_dm
        model = self._model
        fixed = {"learn_words": False, "learn_hidden": False, "doctags_lockf": np.ones(1, dtype=np.float32)}
        model.random.seed(gensim_seed(self.seed, "inference"))
        for rate in np.linspace(model.alpha, model.min_alpha, model.epochs).tolist():
            for piece in pieces:
                learn(model, piece, [0], rate, doctag_vectors=row[None], **fixed)


def _split_document(document: Document) -> list[Document]:
    return [document[first : first + MAX_WORDS] for first in range(0, len(document), MAX_WORDS)]


@final
class Graph2vec(ParagraphVectors):
    """Paragraph vectors of rooted subtrees (Narayanan et al., 2017).

    The words of a graph are the Weisfeiler-Lehman labels of its nodes before and after each refinement: the subtrees of
    depth 0, 1, ... around each node. PV-DBOW learns the vector that predicts them. Without node labels, degrees are
    used. Attributes are ignored.

    Args:
        dimensions: length of the rows.
        iterations: number of refinements.
        epochs: passes over all graphs.
        min_count: rarer subtrees are ignored.
        seed: of the word order and the model.

    >>> import networkx
    >>> graphs = [networkx.path_graph(size) for size in range(2, 9)]
    >>> Graph2vec(dimensions=8, epochs=2, min_count=2).fit_transform(graphs).shape
    (7, 8)
    """

    title: ClassVar[str] = "graph2vec"

    def __init__(
        self, *, dimensions: int = 128, iterations: int = 2, epochs: int = 50, min_count: int = 5, seed: int = 0
    ) -> None:
        check_minimum("Graph2vec", 1, dimensions=dimensions, epochs=epochs, min_count=min_count)
        check_minimum("Graph2vec", 0, iterations=iterations)
        self.dimensions, self.iterations, self.epochs = dimensions, iterations, epochs
        self.min_count, self.seed = min_count, seed

    @property
    def options(self) -> dict[str, Any]:
        sizes = {"vector_size": self.dimensions, "epochs": self.epochs, "min_count": self.min_count}
        return {"dm": 0, "window": 1, "sample": 0.0, **sizes}

    def documents(self, graphs: Dataset) -> list[list[str]]:
        if graphs.node_labels is None:  # all labels are equal at first; the first refinement gives degrees
            labels = list(refine_labels(graphs, self.iterations + 1))[1:]
        else:
            labels = list(refine_labels(graphs, self.iterations))
        words = to_words(np.stack([label[:, 0] for label in labels], axis=1))
        return [self._shuffle(rows.ravel()) for rows in np.split(words, graphs.first_node[1:-1])]

    def _shuffle(self, words: NDArray[np.object_]) -> list[str]:
        """Shuffle the words, because a bag has no order and gensim remembers best what it reads last."""
        mixed: list[str] = numpy_generator(self.seed, "words").permutation(words).tolist()
        return mixed


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
        check_minimum("Sub2vec", 1, dimensions=dimensions, window=window, epochs=epochs)
        if not 1 <= walk_length <= MAX_WORDS:
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
