"""Embeddings, predictions and failed rows as NPZ or CSV, with one row per row of the source."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from joao.data.dataset import Dataset

Arrays = dict[str, NDArray[np.generic]]


def source_rows(dataset: Dataset, cells: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield one line per row of the source, in order: name of the graph or number of the row, then its ``cells``.

    The cells of a row that could not be parsed are empty.

    Args:
        dataset: the whole data set, as it was read.
        cells: the same number of cells for each graph; read lazily.
    """
    failures = {failure.row: failure.name for failure in dataset.failures}
    names, remaining = iter(dataset.graph_names), iter(cells)
    first = next(remaining, ())
    remaining = chain([first], remaining)
    for row in range(len(dataset) + len(failures)):
        name = (failures[row] if row in failures else next(names)) if dataset.graph_names else str(row)
        yield [name, *([""] * len(first) if row in failures else next(remaining))]


def to_npz(arrays: Arrays, dataset: Dataset) -> bytes:
    """Write arrays, ``graph_names`` if known, and ``row`` (rows that could be parsed) if some rows failed."""
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.row_names)
    if dataset.failures and dataset.row_of_graph is not None:
        arrays["row"] = dataset.row_of_graph
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def to_csv(lines: Iterable[Iterable[object]]) -> str:
    """Format lines as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


_ROWS_AT_ONCE = 1024


def embeddings_npz(embeddings: NDArray[np.float32], dataset: Dataset) -> bytes:
    """Write ``embeddings`` ``(G, d)`` and, if known, ``graph_names`` ``(G,)``, ``classes`` and ``class_names``.

    If rows of the source could not be parsed, ``embeddings`` and ``graph_names`` have one row per row of the source,
    with NaN for failed rows, and ``row`` ``(G,)`` has the numbers of the other rows, from 0.
    """
    arrays: Arrays = {"embeddings": dataset.in_rows(embeddings)}
    if dataset.classes is not None:
        arrays |= {"classes": dataset.classes, "class_names": np.array(dataset.class_names)}
    return to_npz(arrays, dataset)


def embeddings_csv(embeddings: NDArray[np.float32], dataset: Dataset) -> Iterator[bytes]:
    """Yield CSV: a header, then one line per row of the source: name or number, class if known, embedding.

    It is written in pieces because the text may take ten times the memory of the array.
    """
    own = [] if dataset.classes is None else ["class"]
    header = ["graph", *own, *(f"e{i}" for i in range(embeddings.shape[1]))]
    lines = chain([header], source_rows(dataset, _cells(embeddings, dataset)))
    while piece := list(islice(lines, _ROWS_AT_ONCE)):
        yield to_csv(piece).encode()


def _cells(embeddings: NDArray[np.float32], dataset: Dataset) -> Iterator[list[str]]:
    labels = None if dataset.classes is None else dataset.labels
    for first in range(0, len(embeddings), _ROWS_AT_ONCE):
        for number, row in enumerate(embeddings[first : first + _ROWS_AT_ONCE].tolist(), first):
            own = [] if labels is None else [str(labels[number])]
            yield [*own, *(f"{value:.9g}" for value in row)]


Predicted = NDArray[np.float32]


def classes_npz(probabilities: Predicted, class_names: Sequence[str], dataset: Dataset) -> bytes:
    """Write ``predicted`` ``(G,)`` class names, ``probabilities`` ``(G, C)`` and ``class_names`` ``(C,)``.

    If known, also ``labels`` ``(G,)``, the true class names, and ``graph_names``. Rows are as in :func:`tasks_npz`.
    """
    names = np.array(class_names)
    rows = dataset.in_rows(probabilities)
    arrays: Arrays = {
        "predicted": np.where(np.isnan(rows[:, 0]), "", names[rows.argmax(axis=1)]),
        "probabilities": rows,
        "class_names": names,
    }
    if dataset.classes is not None:
        arrays["labels"] = dataset.labels
    return to_npz(arrays, dataset)


def classes_csv(probabilities: Predicted, class_names: Sequence[str], dataset: Dataset) -> str:
    """Write a header, then one line per row: name or number, class if known, predicted class, probabilities."""
    own = [] if dataset.classes is None else ["class"]
    labels = [[label] if own else [] for label in dataset.labels.tolist()]
    cells = [
        [*label, class_names[row.argmax()], *_numbers(row)] for label, row in zip(labels, probabilities, strict=True)
    ]
    return _csv([*own, "predicted", *(f"p_{name}" for name in class_names)], cells, dataset)


def tasks_npz(predicted: Predicted, columns: Sequence[str], dataset: Dataset) -> bytes:
    """Write ``predicted`` ``(G, T)``, ``columns`` ``(T,)`` and, if known, ``graph_names`` ``(G,)``.

    If rows of the source could not be parsed, there is one row per row of the source, with NaN for failed rows, and
    ``row`` ``(G,)`` has the numbers of the other rows, from 0.
    """
    return to_npz({"predicted": dataset.in_rows(predicted), "columns": np.array(columns)}, dataset)


def tasks_csv(predicted: Predicted, columns: Sequence[str], dataset: Dataset) -> str:
    """Write a header, then one line per row of the source: name or number, and the prediction for each task."""
    return _csv(columns, [_numbers(row) for row in predicted], dataset)


def _csv(columns: Sequence[str], cells: Sequence[Sequence[str]], dataset: Dataset) -> str:
    return to_csv([["graph", *columns], *source_rows(dataset, cells)])


def _numbers(row: Predicted) -> list[str]:
    return [f"{value:.9g}" for value in row]


def failures_csv(dataset: Dataset) -> str:
    """Write a header, then one line per failed row: line of the file (or row), name, SMILES and reason."""
    header = ["line" if any(each.line for each in dataset.failures) else "row", "name", "smiles", "reason"]
    return to_csv([header, *([each.line or each.row, each.name, each.text, each.reason] for each in dataset.failures)])
