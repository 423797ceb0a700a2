"""Paragraph vectors: graphs as documents, whatever their words are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from joao.baselines._gensim import gensim_seed, order_of_reading, require_gensim
from joao.baselines.base import Baseline
from joao.data.base import Dataset
from joao.errors import UserError

LONGEST_DOCUMENT = 10_000  # gensim leaves out what is behind

Document = Sequence[str]


class ParagraphOptions(NamedTuple):
    """Of paragraph vectors (Le and Mikolov, 2014).

    Attributes:
        bag: PV-DBOW: a document's vector foretells its words. Else PV-DM: with the vectors of the words around, it
            foretells the one between.
        window: how far around.
        min_count: words that are rarer than this in all documents are left out.
        sample: of words that are a larger share of all, some occurrences are left out at random; 0: of none.
    """

    dimensions: int
    epochs: int
    bag: bool
    window: int = 1
    min_count: int = 1
    sample: float = 0.0


class ParagraphVectors(Baseline):
    """The row of a graph is the vector of a document that is made of it.

    Of the graphs it was fitted on, :meth:`transform` gives the vectors learned then. Those of others are inferred:
    learned from zero, each document alone, while the rest of the model stays as it is; unknown words are skipped.

    Attributes:
        options, seed: of the model; a method sets them.
    """

    needs: ClassVar[str | None] = "gensim"
    options: ParagraphOptions
    seed: int

    @abstractmethod
    def documents(self, graphs: Dataset) -> Sequence[Document]:
        """The words of each graph."""

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        require_gensim()
        from gensim.models.doc2vec import Doc2Vec, TaggedDocument

        dimensions, epochs, bag, window, min_count, sample = self.options
        model = Doc2Vec(
            dm=0 if bag else 1,
            vector_size=dimensions,
            epochs=epochs,
            window=window,
            min_count=min_count,
            sample=sample,
            workers=1,
            seed=gensim_seed(self.seed, "documents"),
        )
        documents = self.documents(graphs)
        tagged = [
            TaggedDocument(piece, [number])
            for number in order_of_reading(len(documents), self.seed)
            for piece in _pieces(documents[number])
        ]
        model.build_vocab(tagged)
        if not len(model.wv):
            raise UserError(f"{graphs.name}: no word is in its graphs {min_count} times. Take a smaller min_count.")
        model.train(tagged, total_examples=model.corpus_count, epochs=epochs)
        self._model, self._fitted_on = model, graphs.fingerprint
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        if graphs.fingerprint == self._fitted_on:
            learned: NDArray[np.float64] = self._model.dv.vectors.astype(np.float64)
            return learned
        rows = np.zeros((len(graphs), self.options.dimensions), dtype=np.float32)
        for row, document in zip(rows, self.documents(graphs), strict=True):
            self._infer(row, _pieces(document))
        return rows.astype(np.float64)

    def _infer(self, row: NDArray[np.float32], pieces: Sequence[Document]) -> None:
        """What gensim's ``infer_vector`` does, which starts from the hash of a text: another one in another process."""
        from gensim.models.doc2vec import train_document_dbow, train_document_dm

        learn = train_document_dbow if self.options.bag else train_document_dm
        model, everywhere = self._model, np.ones(1, dtype=np.float32)
        model.random.seed(gensim_seed(self.seed, "inference"))
        for rate in np.linspace(model.alpha, model.min_alpha, model.epochs).tolist():
            for piece in pieces:
                learn(
                    model,
                    piece,
                    [0],
                    rate,
                    learn_words=False,
                    learn_hidden=False,
                    doctag_vectors=row[None],
                    doctags_lockf=everywhere,
                )


def _pieces(document: Document) -> list[Document]:
    return [document[first : first + LONGEST_DOCUMENT] for first in range(0, len(document), LONGEST_DOCUMENT)]
