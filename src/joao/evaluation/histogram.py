"""The baseline without structure: what the counts of labels and degrees alone tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset


def histogram(dataset: Dataset, max_degree: int = 64) -> NDArray[np.float64]:
    """Counts, in each graph, the nodes of every label and of every degree.

    Args:
        dataset: its classes are not read.
        max_degree: larger degrees count as this one.

    Returns:
        ``(G, d)``: the values of each label column, ascending, then the degrees 0 to ``max_degree``.
    """
    degrees = np.minimum(dataset.degrees, max_degree)
    parts = [_counts(dataset, degrees, max_degree + 1)]
    if dataset.node_labels is not None:
        label_parts = []
        for column in dataset.node_labels.T:
            values, codes = np.unique(column, return_inverse=True)
            label_parts.append(_counts(dataset, codes, len(values)))
        parts = label_parts + parts
    return np.concatenate(parts, axis=1)


def _counts(dataset: Dataset, codes: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    cells = dataset.graph_of_node * width + codes
    counts = np.bincount(cells, minlength=len(dataset) * width)
    return counts.reshape(len(dataset), width).astype(np.float64)
