"""graph2vec, and its base class for methods that treat a graph as a document and learn its vector with gensim.

gensim runs in one thread, so that results depend only on the seed.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline
from joao.core.errors import UserError
from joao.core.randomness import derive_seed, numpy_generator
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset
from joao.data.refinement import refine_labels

Document = Sequence[str]
MAX_WORDS = 10_000  # gensim ignores the rest of a longer sentence or document


def require_gensim() -> None:
    """Raise a :class:`UserError` if gensim is not installed."""
    try:
        import gensim  # noqa: F401
    except ImportError as error:
        raise UserError("gensim is not installed: pip install gensim") from error


def gensim_seed(seed: int, purpose: str) -> int:
    """Derive a seed for one purpose, in the range that gensim accepts."""
    return derive_seed(seed, purpose) % 2**31


def reading_order(number: int, seed: int) -> list[int]:
    """A random order in which to read ``number`` texts.

    Texts that are read at the same time get similar vectors, because the model changes while it learns. Data sets are
    often sorted by class, so reading them in order would leak the classes.
    """
    order: list[int] = numpy_generator(seed, "order of reading").permutation(number).tolist()
    return order


def to_words(numbers: NDArray[np.integer]) -> NDArray[np.object_]:
    """Convert numbers to text, because gensim confuses words that are numbers with positions in its vocabulary."""
    values, position = np.unique(numbers, return_inverse=True)
    return np.array([str(value) for value in values.tolist()], dtype=np.object_)[position].reshape(numbers.shape)


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
            raise UserError(
                f"{graphs.name}: {type(self).__name__}: no word occurs {model.min_count} times. Use more graphs or, in "
                "Python, a smaller min_count."
            )
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
    uses_labels: ClassVar[bool] = True

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
        bags = (rows.ravel() for rows in np.split(words, graphs.first_node[1:-1]))
        # A bag has no order, and gensim remembers best what it reads last.
        return [numpy_generator(self.seed, "words").permutation(bag).tolist() for bag in bags]
