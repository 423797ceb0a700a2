"""Baselines that count labels and degrees, without further structure."""

from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline
from joao.core.registry import check_minimum
from joao.data.dataset import Array, Dataset


@final
class Histogram(Baseline):
    """Counts the nodes of every label and of every degree.

    The columns are the values of each column of node labels in :meth:`fit`, ascending, and the degrees 0 to
    ``max_degree``. Labels that did not occur in :meth:`fit` are ignored.

    Args:
        max_degree: larger degrees count as this one.

    >>> import networkx
    >>> Histogram(max_degree=3).fit_transform([networkx.path_graph(3), networkx.cycle_graph(3)])
    array([[0., 2., 1., 0.],
           [0., 0., 3., 0.]])
    """

    title: ClassVar[str] = "label and degree histogram"
    uses_labels: ClassVar[bool] = True

    def __init__(self, *, max_degree: int = 64) -> None:
        check_minimum("Histogram", 0, max_degree=max_degree)
        self.max_degree = max_degree

    def learn(self, graphs: Dataset) -> None:
        self.values = [np.unique(column) for column in _label_columns(graphs)]

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        columns = zip(_label_columns(graphs), self.values, strict=True)
        parts = [_counts(graphs, column, values) for column, values in columns]
        degrees = np.minimum(graphs.degrees, self.max_degree)
        return np.concatenate([*parts, _counts(graphs, degrees, np.arange(self.max_degree + 1))], axis=1)


def _label_columns(graphs: Dataset) -> list[Array]:
    return [] if graphs.node_labels is None else list(graphs.node_labels.T)


def _counts(graphs: Dataset, column: Array, values: Array) -> NDArray[np.float64]:
    """Count the nodes of each graph that have each of the ascending ``values``, ``(G, values)``."""
    code = np.minimum(np.searchsorted(values, column), len(values) - 1)
    known = values[code] == column
    cells = graphs.graph_of_node[known] * len(values) + code[known]
    counts = np.bincount(cells, minlength=len(graphs) * len(values))
    return counts.reshape(len(graphs), len(values)).astype(np.float64)


@final
class LDP(Baseline):
    r"""Local degree profiles (Cai and Wang, 2018): the degree of a node compared with those of its neighbours.

    For every node :math:`v` with neighbour degrees :math:`D = \{d_u : u \sim v\}`, five numbers,

    .. math:: d_v, \min D, \max D, \operatorname{mean} D, \operatorname{std} D,

    which are 0 without neighbours, and for every graph a histogram of each over its nodes. The ``bins`` intervals
    divide :math:`\log(1 + x)` equally from 0 to the largest value in :meth:`fit`; larger values count as that. Labels
    and attributes are ignored.

    Args:
        bins: number of intervals for each of the five numbers.

    >>> import networkx
    >>> LDP(bins=2).fit_transform([networkx.path_graph(3), networkx.cycle_graph(3)])[:, :2]  # small and large degrees
    array([[0., 3.],
           [0., 3.]])
    """

    title: ClassVar[str] = "local degree profile"

    def __init__(self, *, bins: int = 50) -> None:
        check_minimum("LDP", 1, bins=bins)
        self.bins = bins

    def learn(self, graphs: Dataset) -> None:
        self.largest = np.maximum(np.log1p(degree_profiles(graphs)).max(axis=0), np.log(2))

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        shares = np.log1p(degree_profiles(graphs)) / self.largest
        interval = np.minimum((shares * self.bins).astype(np.int64), self.bins - 1) + self.bins * np.arange(5)
        cells = graphs.graph_of_node[:, None] * (5 * self.bins) + interval
        counts = np.bincount(cells.ravel(), minlength=len(graphs) * 5 * self.bins)
        return counts.reshape(len(graphs), -1).astype(np.float64)


def degree_profiles(graphs: Dataset) -> NDArray[np.float64]:
    """Degree of each node, and minimum, maximum, mean and standard deviation of its neighbours' degrees: ``(N, 5)``."""
    degrees = graphs.degrees
    profiles = np.zeros((graphs.num_nodes, 5))
    profiles[:, 0] = degrees
    has = degrees > 0
    if not has.any():
        return profiles
    node = graphs.source + np.repeat(graphs.first_node[:-1], np.diff(graphs.first_edge))  # edges are sorted by target
    around, first, number = degrees[node], (np.cumsum(degrees) - degrees)[has], degrees[has]
    profiles[has, 1] = np.minimum.reduceat(around, first)
    profiles[has, 2] = np.maximum.reduceat(around, first)
    profiles[has, 3] = mean = np.add.reduceat(around, first) / number
    profiles[has, 4] = np.sqrt(np.add.reduceat((around - np.repeat(mean, number)) ** 2, first) / number)
    return profiles
