"""Predictions as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset


def as_npz(probabilities: NDArray[np.float32], class_names: Sequence[str], dataset: Dataset) -> bytes:
    """``predicted`` ``(G,)`` names of classes, ``probabilities`` ``(G, C)`` and ``class_names`` ``(C,)``, its columns.

    Where the data has them, also ``graph_names`` ``(G,)`` and ``labels`` ``(G,)``, the names of their own classes.
    """
    names = np.array(class_names)
    arrays: dict[str, NDArray[np.generic]] = {
        "predicted": names[probabilities.argmax(axis=1)],
        "probabilities": probabilities,
        "class_names": names,
    }
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.graph_names)
    if dataset.classes is not None:
        arrays["labels"] = dataset.labels
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def as_csv(probabilities: NDArray[np.float32], class_names: Sequence[str], dataset: Dataset) -> str:
    """A header, then a line a graph: name or number, class where it has one, predicted class, all probabilities."""
    own, labels = [] if dataset.classes is None else ["class"], dataset.labels.tolist()
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["graph", *own, "predicted", *(f"p_{name}" for name in class_names)])
    for number, row in enumerate(probabilities):
        graph = dataset.graph_names[number] if dataset.graph_names else number
        label = [labels[number]] if own else []
        writer.writerow([graph, *label, class_names[row.argmax()], *(f"{value:.9g}" for value in row)])
    return buffer.getvalue()
