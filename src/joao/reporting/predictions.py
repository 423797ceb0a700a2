"""Predictions as files: of the class of each graph, or of several tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset
from joao.reporting._rows import Arrays, csv_of, npz_of, rows_of_source

Predicted = NDArray[np.float32]


def as_npz(probabilities: Predicted, class_names: Sequence[str], dataset: Dataset) -> bytes:
    """``predicted`` ``(G,)`` names of classes, ``probabilities`` ``(G, C)`` and ``class_names`` ``(C,)``, its columns.

    Where the data has them, also ``labels`` ``(G,)``, the names of their own classes, and ``graph_names``. Rows are as
    those of :func:`tasks_as_npz`.
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
    return npz_of(arrays, dataset)


def as_csv(probabilities: Predicted, class_names: Sequence[str], dataset: Dataset) -> str:
    """A header, then a line a graph: name or number, class where it has one, predicted class, all probabilities."""
    own = [] if dataset.classes is None else ["class"]
    labels = [[label] if own else [] for label in dataset.labels.tolist()]
    cells = [
        [*label, class_names[row.argmax()], *_numbers(row)] for label, row in zip(labels, probabilities, strict=True)
    ]
    return _csv([*own, "predicted", *(f"p_{name}" for name in class_names)], cells, dataset)


def tasks_as_npz(predicted: Predicted, columns: Sequence[str], dataset: Dataset) -> bytes:
    """``predicted`` ``(G, T)`` and ``columns`` ``(T,)``, their names.

    Where the data has them, also ``graph_names`` ``(G,)``. Where rows of the source gave no graph, both have a row for
    each row of the source, NaN in those, and ``row`` ``(G,)`` has the numbers of the others, from 0 on.
    """
    return npz_of({"predicted": dataset.in_rows(predicted), "columns": np.array(columns)}, dataset)


def tasks_as_csv(predicted: Predicted, columns: Sequence[str], dataset: Dataset) -> str:
    """A header, then a line for each row of the source: name or number, and what is predicted for each task."""
    return _csv(columns, [_numbers(row) for row in predicted], dataset)


def _csv(columns: Sequence[str], cells: Sequence[Sequence[str]], dataset: Dataset) -> str:
    return csv_of([["graph", *columns], *rows_of_source(dataset, cells)])


def _numbers(row: Predicted) -> list[str]:
    return [f"{value:.9g}" for value in row]
