"""Rank statistics of the paper's tables. :mod:`repro.intervals` has the intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from joao.core.errors import UserError
from joao.evaluation.statistics import mean


@final
@dataclass(frozen=True)
class TableCorrelation:
    """Rank correlation of two tables, and its p-value by relabelling."""

    value: float
    p_value: float


def table_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> TableCorrelation:
    r"""Compute Spearman's :math:`\rho` of the entries of two ``(K, K)`` tables over pairs of the same K items.

    Entries of a table are not independent, because pairs share items. So :math:`p` is that of the quadratic assignment
    procedure (Mantel 1967, Hubert 1987): the share of all :math:`K!` permutations of the items of the second table,
    rows and columns together, for which :math:`|\rho|` is at least as large. It is never below :math:`1 / K!`.
    """
    if first.shape != second.shape or first.ndim != 2 or first.shape[0] != first.shape[1]:
        raise UserError(f"table correlation: expected two square tables, got shapes {first.shape} and {second.shape}.")
    if first.min() == first.max() or second.min() == second.max():
        raise UserError("table correlation: the entries of a table are all equal, so they have no ranks.")
    one, other = (rankdata(each).reshape(each.shape) for each in (first, second))
    orders = [np.array(order) for order in permutations(range(len(first)))]  # the first is the identity
    found = [float(np.corrcoef(one.ravel(), other[np.ix_(order, order)].ravel())[0, 1]) for order in orders]
    as_large = np.abs(found) >= abs(found[0]) - 1e-12
    return TableCorrelation(found[0], float(as_large.mean()))


def average_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Compute each method's mean rank over the data sets that it has a score on, from scores by data set and method.

    The best method of a data set has rank 1; equal scores share their mean rank.

    >>> average_ranks({"one": {"a": 70.0, "b": 80.0}, "other": {"a": 60.0}})
    {'a': 1.5, 'b': 1.0}
    """
    ranks: dict[str, list[float]] = {}
    for by_method in scores.values():
        for method, rank in zip(by_method, rankdata([-score for score in by_method.values()]), strict=True):
            ranks.setdefault(method, []).append(float(rank))
    return {method: mean(found) for method, found in ranks.items()}
