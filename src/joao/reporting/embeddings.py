"""Embeddings as files."""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset
from joao.reporting._rows import rows_of_source


def as_npz(embeddings: NDArray[np.float32], dataset: Dataset) -> bytes:
    """``embeddings`` ``(G, d)``; where the data has them, ``graph_names`` ``(G,)``, ``classes`` and ``class_names``.

    Where rows of the source gave no graph, ``embeddings`` and ``graph_names`` have a row for each row of the source,
    NaN in those, and ``row`` ``(G,)`` has the numbers of the others, from 0 on.
    """
    arrays: dict[str, NDArray[np.generic]] = {"embeddings": dataset.in_rows(embeddings)}
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.row_names)
    if dataset.failures and dataset.row_of_graph is not None:
        arrays["row"] = dataset.row_of_graph
    if dataset.classes is not None:
        arrays |= {"classes": dataset.classes, "class_names": np.array(dataset.class_names)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def as_csv(embeddings: NDArray[np.float32], dataset: Dataset) -> str:
    """A header, then a line for each row of the source: name or number, class where it has one, embedding or blanks."""
    own = [] if dataset.classes is None else ["class"]
    labels = [[label] if own else [] for label in dataset.labels.tolist()]
    cells = [
        [*label, *(f"{value:.9g}" for value in row)] for label, row in zip(labels, embeddings.tolist(), strict=True)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["graph", *own, *(f"e{i}" for i in range(embeddings.shape[1]))])
    writer.writerows(rows_of_source(dataset, cells))
    return text.getvalue()
