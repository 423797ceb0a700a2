"""Word vectors by gensim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.randomness import derive_seed, numpy_generator

MAX_WORDS = 10_000  # gensim ignores the rest of a longer sentence or document


def require_gensim() -> None:
    """Tells the user how to get gensim where it is missing."""
    try:
        import gensim  # noqa: F401
    except ImportError as error:
        raise UserError("gensim is not installed: pip install gensim") from error


def gensim_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose, of the size that gensim takes."""
    return derive_seed(seed, purpose) % 2**31


def reading_order(number: int, seed: int) -> list[int]:
    """A random order of so many texts.

    What is read at one time gets vectors that are alike, as the model moves on. Data sets often come sorted by class,
    so that rows learned in their order would tell the classes.
    """
    order: list[int] = numpy_generator(seed, "order of reading").permutation(number).tolist()
    return order


def to_words(numbers: NDArray[np.integer]) -> NDArray[np.object_]:
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
