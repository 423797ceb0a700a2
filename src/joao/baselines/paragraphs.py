"""What gensim learns of words, in one thread, so that one seed gives one result.

Paragraph vectors: graphs as documents, whatever their words are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline
from joao.core.errors import UserError
from joao.core.randomness import derive_seed, numpy_generator
from joao.data.dataset import Dataset


def require_gensim() -> None:
    """Tells the user how to get gensim where it is missing."""
    try:
        import gensim  # noqa: F401
    except ImportError as error:
        raise UserError("gensim is not installed: pip install gensim") from error


def gensim_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose, of the size that gensim takes."""
    return derive_seed(seed, purpose) % 2**31


def order_of_reading(number: int, seed: int) -> list[int]:
    """A random order of so many texts.

    What is read at one time gets vectors that are alike, as the model moves on. Data sets often come sorted by class,
    so that rows learned in their order would tell the classes.
    """
    order: list[int] = numpy_generator(seed, "order of reading").permutation(number).tolist()
    return order


def as_words(numbers: NDArray[np.integer]) -> NDArray[np.object_]:
    """Numbers as texts. (gensim takes numbers for words, and then mistakes them for places in its vocabulary.)"""
    values, place = np.unique(numbers, return_inverse=True)
    return np.array([str(value) for value in values.tolist()], dtype=np.object_)[place].reshape(numbers.shape)


class WordOptions(NamedTuple):
    """Of skip-gram with negative sampling."""

    dimensions: int
    window: int
    epochs: int


def word_vectors(
    sentences: Iterable[Sequence[str]], counts: NDArray[np.int64], num_sentences: int, options: WordOptions, seed: int
) -> NDArray[np.float32]:
    """``(N, d)`` the vector that skip-gram learns of each of the words ``"0"``, ``"1"``, ..., to N - 1.

    Args:
        sentences: can be gone through once for every epoch.
        counts: ``(N,)`` how often each word is in them, at least once.
        num_sentences: how many they are.
        options: of the model.
        seed: of the first weights and of the negative samples.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(
        sg=1,
        vector_size=options.dimensions,
        window=options.window,
        epochs=options.epochs,
        min_count=1,
        workers=1,
        seed=gensim_seed(seed, "words"),
    )
    frequencies = {str(word): count for word, count in enumerate(counts.tolist())}
    model.build_vocab_from_freq(frequencies, corpus_count=num_sentences)
    model.train(sentences, total_examples=num_sentences, epochs=options.epochs)
    vectors: NDArray[np.float32] = np.empty_like(model.wv.vectors)
    vectors[np.array(model.wv.index_to_key, dtype=np.int64)] = model.wv.vectors
    return vectors


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
