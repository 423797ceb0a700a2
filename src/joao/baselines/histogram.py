"""The baseline without structure: what the counts of labels and degrees alone tell."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline, check_least
from joao.core.errors import UserError
from joao.data.dataset import Array, Dataset


@final
class Histogram(Baseline):
    """Counts, in each graph, the nodes of every label and of every degree.

    Columns are the values that each column of node labels has at :meth:`fit`, ascending, then the degrees 0 to
    ``max_degree``. Other labels later are not counted.

    Args:
        max_degree: larger degrees count as this one.
    """

    def __init__(self, *, max_degree: int = 64) -> None:
        check_least("Histogram", 0, max_degree=max_degree)
        self.max_degree = max_degree

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        self.values = [np.unique(column) for column in _label_columns(graphs)]
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        columns = _label_columns(graphs)
        if len(columns) != len(self.values):
            raise UserError(
                f"{graphs.name}: {len(columns)} columns of node labels; the histogram was fitted on {len(self.values)}."
            )
        parts = [_counts(graphs, column, values) for column, values in zip(columns, self.values, strict=True)]
        degrees = np.minimum(graphs.degrees, self.max_degree)
        return np.concatenate([*parts, _counts(graphs, degrees, np.arange(self.max_degree + 1))], axis=1)


def _label_columns(graphs: Dataset) -> list[Array]:
    return [] if graphs.node_labels is None else list(graphs.node_labels.T)


def _counts(graphs: Dataset, column: Array, values: Array) -> NDArray[np.float64]:
    """``(G, values)`` how many nodes of each graph have each of the ascending ``values``."""
    code = np.minimum(np.searchsorted(values, column), len(values) - 1)
    known = values[code] == column
    cells = graphs.graph_of_node[known] * len(values) + code[known]
    counts = np.bincount(cells, minlength=len(graphs) * len(values))
    return counts.reshape(len(graphs), len(values)).astype(np.float64)
