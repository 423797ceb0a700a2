"""Embeddings as files."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset


def as_npz(embeddings: NDArray[np.float32], dataset: Dataset) -> bytes:
    """``embeddings`` ``(G, d)``; where the data has them, ``graph_names`` ``(G,)``, ``classes`` and ``class_names``."""
    arrays: dict[str, NDArray[np.generic]] = {"embeddings": embeddings}
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.graph_names)
    if dataset.classes is not None:
        arrays |= {"classes": dataset.classes, "class_names": np.array(dataset.class_names)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def as_csv(embeddings: NDArray[np.float32], dataset: Dataset) -> str:
    """A header, then a line a graph: its name or number, its class where it has one, and its embedding."""
    has_classes, labels = dataset.classes is not None, dataset.labels.tolist()
    header = ["graph", *(["class"] if has_classes else []), *(f"e{i}" for i in range(embeddings.shape[1]))]
    lines = [",".join(header)]
    for number, row in enumerate(embeddings.tolist()):
        graph = _quoted(dataset.graph_names[number]) if dataset.graph_names else str(number)
        name = [_quoted(labels[number])] if has_classes else []
        lines.append(",".join([graph, *name, *(f"{value:.9g}" for value in row)]))
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    special = any(character in text for character in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if special else text
