"""Embeddings as files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset
from joao.reporting._rows import Arrays, csv_of, npz_of, rows_of_source

_ROWS_AT_ONCE = 1024


def as_npz(embeddings: NDArray[np.float32], dataset: Dataset) -> bytes:
    """``embeddings`` ``(G, d)``; where the data has them, ``graph_names`` ``(G,)``, ``classes`` and ``class_names``.

    Where rows of the source gave no graph, ``embeddings`` and ``graph_names`` have a row for each row of the source,
    NaN in those, and ``row`` ``(G,)`` has the numbers of the others, from 0 on.
    """
    arrays: Arrays = {"embeddings": dataset.in_rows(embeddings)}
    if dataset.classes is not None:
        arrays |= {"classes": dataset.classes, "class_names": np.array(dataset.class_names)}
    return npz_of(arrays, dataset)


def as_csv(embeddings: NDArray[np.float32], dataset: Dataset) -> Iterator[bytes]:
    """A header, then a line for each row of the source: name or number, class where it has one, embedding or blanks.

    In pieces: as text, all of it may be ten times as large as in numbers.
    """
    own = [] if dataset.classes is None else ["class"]
    header = ["graph", *own, *(f"e{i}" for i in range(embeddings.shape[1]))]
    lines = chain([header], rows_of_source(dataset, _cells(embeddings, dataset)))
    while piece := list(islice(lines, _ROWS_AT_ONCE)):
        yield csv_of(piece).encode()


def _cells(embeddings: NDArray[np.float32], dataset: Dataset) -> Iterator[list[str]]:
    labels = None if dataset.classes is None else dataset.labels
    for first in range(0, len(embeddings), _ROWS_AT_ONCE):
        for number, row in enumerate(embeddings[first : first + _ROWS_AT_ONCE].tolist(), first):
            own = [] if labels is None else [str(labels[number])]
            yield [*own, *(f"{value:.9g}" for value in row)]
