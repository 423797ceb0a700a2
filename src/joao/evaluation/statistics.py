"""Means and intervals of scores. ``repro.statistics`` has those over seeds and data sets, and rank statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from joao.core.errors import UserError


@final
@dataclass(frozen=True)
class Gain:
    """A mean difference and its confidence interval at ``level``."""

    mean: float
    low: float
    high: float
    level: float = 0.95


def mean(values: Sequence[float]) -> float:
    """Compute the mean of per-partition mean accuracies, the figure in a table."""
    return float(np.mean(values))


def sample_std(values: Sequence[float]) -> float | None:
    r"""Compute the standard deviation over seeds or partitions, the figure behind the ± in a table.

    .. math::
        s = \sqrt{\tfrac{1}{r - 1} \sum_i (a_i - \bar a)^2}

    The seeds are a sample of all seeds, hence :math:`r - 1`. The result is None for a single value. With five seeds it
    is 1.12 times the population form (``numpy.std``), which published figures may use.
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_gain(scores: ArrayLike, baseline: ArrayLike, num_train_per_test: float = 9, *, level: float = 0.95) -> Gain:
    r"""Compute the gain over a baseline with the corrected interval of repeated k-fold cross-validation.

    With the differences :math:`d_1 \dots d_n` over all :math:`n = rk` folds of r partitions into k,

    .. math::
        \bar d \pm t_{n - 1} \sqrt{\left(\frac{1}{n} + \frac{n_{test}}{n_{train}}\right)
        \frac{1}{n - 1} \sum_i (d_i - \bar d)^2}

    where the second term accounts for overlapping training parts (Nadeau and Bengio 2003; Bouckaert and Frank 2004):
    more partitions do not shrink the interval to zero.

    Args:
        scores, baseline: scores on the same folds in the same order; any shape.
        num_train_per_test: training graphs per test graph, k - 1.
        level: coverage of the interval.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.size < 2:
        raise UserError(
            f"paired gain: expected at least two scores on the same folds on both sides, got shapes {first.shape} "
            f"and {second.shape}."
        )
    differences = (first - second).ravel()
    number, centre = differences.size, float(differences.mean())
    error = np.sqrt((1 / number + 1 / num_train_per_test) * differences.var(ddof=1))
    half_width = float(stdtrit(number - 1, (1 + level) / 2) * error)
    return Gain(centre, centre - half_width, centre + half_width, level)


def chance_level(classes: NDArray[np.int64]) -> float:
    """Compute the accuracy of always predicting the largest class."""
    counts = np.unique(classes, return_counts=True)[1]
    return float(counts.max() / counts.sum())
