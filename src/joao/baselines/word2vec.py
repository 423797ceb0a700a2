"""Word vectors by gensim, in one thread, so that results depend only on the seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.randomness import derive_seed, numpy_generator

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
    values, place = np.unique(numbers, return_inverse=True)
    return np.array([str(value) for value in values.tolist()], dtype=np.object_)[place].reshape(numbers.shape)


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
