"""What a set of accuracies says, and how surely."""

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


@final
@dataclass(frozen=True)
class Gain:
    """A mean difference and the interval that covers the true one with probability ``level``."""

    mean: float
    low: float
    high: float
    level: float = 0.95


def mean(values: Sequence[float]) -> float:
    """The mean of per-partition mean accuracies: the figure of a table.

    >>> mean([0.5, 0.75])
    0.625
    """
    return float(np.mean(values))


def sample_std(values: Sequence[float]) -> float | None:
    r"""The figure behind the ± of a table, over seeds or partitions.

    .. math::
        s = \sqrt{\tfrac{1}{r - 1} \sum_i (a_i - \bar a)^2}

    The seeds are a sample of all seeds, hence :math:`r - 1`; of one value nothing is known, and it is None.
    With five seeds it is 1.12 times the population form (``numpy.std``), which published figures may be.

    >>> sample_std([1.0, 3.0, 5.0])
    2.0
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_gain(scores: ArrayLike, baseline: ArrayLike, num_train_per_test: float = 9, *, level: float = 0.95) -> Gain:
    r"""The corrected interval of repeated k-fold cross-validation for the gain over a baseline.

    With the differences :math:`d_1 \dots d_n` over all :math:`n = rk` folds of r partitions into k,

    .. math::
        \bar d \pm t_{n - 1} \sqrt{\left(\frac{1}{n} + \frac{n_{test}}{n_{train}}\right)
        \frac{1}{n - 1} \sum_i (d_i - \bar d)^2}

    where the second term accounts for training parts that overlap (Nadeau and Bengio 2003; Bouckaert and Frank
    2004): more partitions do not shrink the interval to nothing.

    Args:
        scores, baseline: of the same folds in the same order; any shape.
        num_train_per_test: training graphs per test graph, k - 1.
        level: the interval's coverage.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.size < 2:
        raise UserError(
            f"paired gain: needs two scores or more of the same folds on both sides, got shapes {first.shape} "
            f"and {second.shape}."
        )
    differences = (first - second).ravel()
    number, centre = differences.size, float(differences.mean())
    variance = differences.var(ddof=1)
    quantile = stdtrit(number - 1, (1 + level) / 2)
    half_width = float(quantile * np.sqrt((1 / number + 1 / num_train_per_test) * variance))
    return Gain(centre, centre - half_width, centre + half_width, level)


def gain_over_seeds(scores: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Gain:
    r"""The mean difference of two methods over seeds, with Student's interval.

    With the differences :math:`d_1 \dots d_r` of the methods' means over all folds of each seed,

    .. math::
        \bar d \pm t_{r - 1} \, s_d / \sqrt r

    It says what other seeds would give on these graphs (other first weights, partitions and labelled graphs), not what
    other graphs would.

    Args:
        scores, baseline: ``(r,)`` of the same seeds in the same order.
        level: the interval's coverage.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or first.size < 2:
        raise UserError(
            f"gain over seeds: needs one score each of two seeds or more on both sides, got shapes {first.shape} and "
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
    r"""The mean over data sets of a mean difference over seeds, with an interval over seeds.

    With the mean :math:`\bar d_k` and the variance :math:`s_k^2` of the :math:`r_k` differences on data set k, the
    weights :math:`w_k` and :math:`v_k = w_k^2 s_k^2 / r_k`,

    .. math::
        \sum_k w_k \bar d_k \pm t_\nu \sqrt{v}, \quad v = \sum_k v_k, \quad
        \nu = v^2 \Big/ \sum_k \frac{v_k^2}{r_k - 1}

    (Welch 1947, Satterthwaite 1946). The sets are taken as given: it says what other seeds would give on them, not what
    other sets would. With one set it is :func:`gain_over_seeds`.

    Args:
        differences: of each set, ``(r_k,)``, two seeds or more.
        weights: of each set; equal ones that add up to 1 where it is None.
        level: the interval's coverage.
    """
    values = [np.asarray(each, dtype=np.float64) for each in differences]
    if not values or any(each.ndim != 1 or each.size < 2 for each in values):
        raise UserError(f"gain over sets: needs two seeds or more of each set, got {[each.size for each in values]}.")
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
    """A rank correlation of two tables, and how often relabelling gives one as large."""

    value: float
    p_value: float


def table_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> TableCorrelation:
    r"""Spearman's :math:`\rho` of the entries of two ``(K, K)`` tables over pairs of the same K things.

    Entries of a table are not independent: pairs share their members. So :math:`p` is that of the quadratic assignment
    procedure (Mantel 1967, Hubert 1987): the share of all :math:`K!` ways to rename the things of the second table,
    rows and columns together, in which :math:`|\rho|` is at least as large. It is never below :math:`1 / K!`.
    """
    if first.shape != second.shape or first.ndim != 2 or first.shape[0] != first.shape[1]:
        raise UserError(f"table correlation: needs two square tables, got shapes {first.shape} and {second.shape}.")
    if first.min() == first.max() or second.min() == second.max():
        raise UserError("table correlation: a table whose entries are all equal has no ranks.")
    one, other = (rankdata(each).reshape(each.shape) for each in (first, second))
    ways = [np.array(way) for way in permutations(range(len(first)))]
    found = [float(np.corrcoef(one.ravel(), other[np.ix_(way, way)].ravel())[0, 1]) for way in ways]
    as_large = np.abs(found) >= abs(found[0]) - 1e-12
    return TableCorrelation(found[0], float(as_large.mean()))


def average_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean, over the data sets that a method has a score on, of its place among the methods that have one there.

    The best has place 1; equal ones share the mean of their places.

    Args:
        scores: of each data set, by method.

    >>> average_ranks({"one": {"a": 70.0, "b": 80.0}, "other": {"a": 60.0}})
    {'a': 1.5, 'b': 1.0}
    """
    places: dict[str, list[float]] = {}
    for of_methods in scores.values():
        for method, place in zip(of_methods, rankdata([-score for score in of_methods.values()]), strict=True):
            places.setdefault(method, []).append(float(place))
    return {method: mean(found) for method, found in places.items()}


def chance_level(classes: NDArray[np.int64]) -> float:
    """The share of the largest class, which answering always the same gets right.

    >>> chance_level(np.array([0, 1, 1, 2]))
    0.5
    """
    counts = np.unique(classes, return_counts=True)[1]
    return float(counts.max() / counts.sum())
