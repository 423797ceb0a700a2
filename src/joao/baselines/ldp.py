from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline, check_least
from joao.baselines.walks import neighbours_in
from joao.data.dataset import Dataset


@final
class LDP(Baseline):
    r"""Local degree profiles (Cai and Wang, 2018): how a node's degree compares with those of its neighbours.

    Of every node :math:`v` with the degrees :math:`D = \{d_u : u \sim v\}` around it, five numbers,

    .. math:: d_v, \min D, \max D, \operatorname{mean} D, \operatorname{std} D,

    (zero where there are no neighbours), and of every graph a histogram of each over its nodes: how many of them are
    in each of ``bins`` intervals that divide :math:`\log(1 + x)` equally between zero and the largest value at
    :meth:`fit`; what is larger later counts as that. Node labels and attributes are not read.

    Args:
        bins: intervals for each of the five.
    """

    def __init__(self, *, bins: int = 50) -> None:
        check_least("LDP", 1, bins=bins)
        self.bins = bins

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        self.largest = np.maximum(np.log1p(degree_profiles(graphs)).max(axis=0), np.log(2))
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        shares = np.log1p(degree_profiles(graphs)) / self.largest
        interval = np.minimum((shares * self.bins).astype(np.int64), self.bins - 1) + self.bins * np.arange(5)
        cells = graphs.graph_of_node[:, None] * (5 * self.bins) + interval
        counts = np.bincount(cells.ravel(), minlength=len(graphs) * 5 * self.bins)
        return counts.reshape(len(graphs), -1).astype(np.float64)


def degree_profiles(graphs: Dataset) -> NDArray[np.float64]:
    """``(N, 5)`` of each node its degree, and the least, largest, mean and standard deviation of its neighbours'."""
    degrees = graphs.degrees
    profiles = np.zeros((graphs.num_nodes, 5))
    profiles[:, 0] = degrees
    has = degrees > 0
    if not has.any():
        return profiles
    neighbours = neighbours_in(graphs)
    around, first, number = degrees[neighbours.nodes], neighbours.first[:-1][has], degrees[has]
    profiles[has, 1] = np.minimum.reduceat(around, first)
    profiles[has, 2] = np.maximum.reduceat(around, first)
    profiles[has, 3] = mean = np.add.reduceat(around, first) / number
    profiles[has, 4] = np.sqrt(np.add.reduceat((around - np.repeat(mean, number)) ** 2, first) / number)
    return profiles
