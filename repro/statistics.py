"""Statistics of the paper's tables: gains over seeds and data sets, correlations of pair tables, average ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit
from scipy.stats import rankdata

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain, mean


def gain_over_seeds(scores: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Gain:
    r"""Compute the mean difference of two methods over seeds, with Student's interval.

    With the differences :math:`d_1 \dots d_r` of the methods' means over all folds of each seed,

    .. math::
        \bar d \pm t_{r - 1} \, s_d / \sqrt r

    The interval covers other seeds on these graphs (other initial weights, partitions and labelled graphs), not other
    graphs.

    Args:
        scores, baseline: ``(r,)`` scores of the same seeds in the same order.
        level: coverage of the interval.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or first.size < 2:
        raise UserError(
            f"gain over seeds: expected one score for each of at least two seeds, got shapes {first.shape} and "
            f"{second.shape}."
        )
    differences = first - second
    centre = float(differences.mean())
    quantile = stdtrit(differences.size - 1, (1 + level) / 2)
    half_width = float(quantile * differences.std(ddof=1) / np.sqrt(differences.size))
    return Gain(centre, centre - half_width, centre + half_width, level)


def gain_over_sets(
    differences: Sequence[ArrayLike], weights: Sequence[float] | None = None, *, level: float = 0.95
) -> Gain:
    r"""Compute the mean over data sets of a mean difference over seeds, with an interval over seeds.

    With the mean :math:`\bar d_k` and the variance :math:`s_k^2` of the :math:`r_k` differences on data set k, the
    weights :math:`w_k` and :math:`v_k = w_k^2 s_k^2 / r_k`,

    .. math::
        \sum_k w_k \bar d_k \pm t_\nu \sqrt{v}, \quad v = \sum_k v_k, \quad
        \nu = v^2 \Big/ \sum_k \frac{v_k^2}{r_k - 1}

    (Welch 1947, Satterthwaite 1946). The interval covers other seeds on these data sets, not other data sets. With one
    set it equals :func:`gain_over_seeds`.

    Args:
        differences: ``(r_k,)`` for each data set, with at least two seeds.
        weights: one per data set; None: equal weights with sum 1.
        level: coverage of the interval.
    """
    values = [np.asarray(each, dtype=np.float64) for each in differences]
    if not values or any(each.ndim != 1 or each.size < 2 for each in values):
        raise UserError(
            f"gain over sets: expected at least two seeds per data set, got {[each.size for each in values]}."
        )
    shares = np.full(len(values), 1 / len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    centre = float(shares @ [each.mean() for each in values])
    numbers = np.array([each.size for each in values])
    parts = shares**2 * [each.var(ddof=1) for each in values] / numbers
    variance = float(parts.sum())
    if variance == 0.0:
        return Gain(centre, centre, centre, level)
    freedom = variance**2 / float((parts**2 / (numbers - 1)).sum())
    half_width = float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance))
    return Gain(centre, centre - half_width, centre + half_width, level)


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
