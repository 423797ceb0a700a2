"""One interval for every gain: the seed of the pre-training and the parts of its score are both sources of variance."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from joao.core.errors import UserError
from joao.evaluation import statistics
from joao.evaluation.statistics import Estimate

Parts = Literal["folds", "runs"]


def p_value(estimate: Estimate, null: float = 0.0) -> float:
    """Two-sided: how likely a mean at least as far from ``null`` is, if ``null`` is the truth.

    The interval of level ``1 - p`` ends at ``null``.
    """
    return 2 * min(p_above(estimate, null), 1 - p_above(estimate, null))


def p_above(estimate: Estimate, null: float = 0.0) -> float:
    """One-sided, for the claim that the truth is above ``null``: -1 tests "at most one point worse"."""
    distance = estimate.mean - null
    if not estimate.variance:
        return 0.0 if distance > 0 else 1.0 if distance < 0 else 0.5
    return float(stdtr(estimate.freedom, -distance / np.sqrt(estimate.variance)))


def estimate_gain(scores: ArrayLike, baseline: ArrayLike) -> Estimate:
    """The gain of a method over a baseline that was scored on the same parts of the same seeds.

    See :func:`estimate_mean` for the variance, which is that of the differences.

    Args:
        scores, baseline: ``(r, k)``, a row for each seed, or ``(r,)``; the same seeds and parts in the same order.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise UserError(
            f"gain: needs the same seeds and parts on both sides, got shapes {first.shape} and {second.shape}. "
            "Use estimate_difference for sides that are not paired."
        )
    return estimate_mean(first - second)


def estimate_difference(scores: ArrayLike, baseline: ArrayLike, *, parts: Parts = "folds") -> Estimate:
    r"""The gain of a method over a baseline with other seeds or other parts: both variances add up.

    With the estimates :math:`(m_1, V_1, \nu_1)` and :math:`(m_2, V_2, \nu_2)` of both sides,

    .. math:: m_1 - m_2, \quad V = V_1 + V_2, \quad \nu = V^2 \big/ (V_1^2 / \nu_1 + V_2^2 / \nu_2)

    (Welch 1947, Satterthwaite 1946). A method with three pre-trainings of ten fine-tuning runs each, ``(3, 10)``,
    compares in this way with ten runs from scratch, ``(10,)``.
    """
    ours, theirs = estimate_mean(scores, parts=parts), estimate_mean(baseline, parts=parts)
    variance = ours.variance + theirs.variance
    terms = ours.variance**2 / ours.freedom + theirs.variance**2 / theirs.freedom
    freedom = variance**2 / terms if terms else min(ours.freedom, theirs.freedom)
    return Estimate(ours.mean - theirs.mean, variance, freedom)


def estimate_mean(values: ArrayLike, *, parts: Parts = "folds") -> Estimate:
    """The mean over seeds and their parts, by the model of :func:`joao.evaluation.statistics.estimate_mean`.

    Runs of fine-tuning share one split: they say nothing about other graphs, so only the means of the seeds count.

    Args:
        values: ``(r, k)``, a row for each seed of the pre-training, or ``(r,)``; two seeds or more.
        parts: ``folds`` of one partition per seed, or ``runs`` of fine-tuning from one pre-training.
    """
    table = np.asarray(values, dtype=np.float64)
    if not table.ndim or len(table) < 2:
        raise UserError(
            f"gain: needs two seeds of the pre-training or more, got shape {table.shape}. One pre-training does not "
            "tell what another one would give."
        )
    return statistics.estimate_mean(table.mean(axis=1) if parts == "runs" and table.ndim == 2 else table)


def estimate_over_sets(gains: ArrayLike) -> Estimate:
    r"""The mean gain over data sets, with the data set as its unit.

    With the gains :math:`g_1 \dots g_D`, each the mean over all seeds and parts of one data set,

    .. math:: \bar g, \quad V = s_g^2 / D, \quad \nu = D - 1

    It says what other data sets of the same kind would give. Seeds are averaged first, so that their spread is part of
    that between the sets.

    >>> estimate_over_sets([1.0, 2.5, 4.0])
    Estimate(mean=2.5, variance=0.75, freedom=2)
    """
    values = np.asarray(gains, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise UserError(f"gain over data sets: needs one gain each of two data sets or more, got shape {values.shape}.")
    return Estimate(float(values.mean()), float(values.var(ddof=1) / len(values)), len(values) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    r"""The p-values of several claims, corrected for their number (Holm 1979).

    With the p-values in ascending order, :math:`p_{(1)} \le \dots \le p_{(m)}`,

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1) \, p_{(j)})

    The probability that one true null hypothesis or more has :math:`\tilde p \le \alpha` is at most :math:`\alpha`,
    however the claims depend on each other.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values, order = _sorted(p_values)
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return [float(each) for each in adjusted]


def holm_levels(p_values: Sequence[float], chance: float = 0.05) -> list[float]:
    r"""The level of the interval of each claim that belongs to its place in Holm's order.

    It is :math:`1 - \alpha / (m - i + 1)` for the i-th smallest p-value. Claims after the first that is not significant
    keep the level of that one, so that an interval excludes the null hypothesis exactly if :func:`holm` rejects it.

    >>> [round(each, 4) for each in holm_levels([0.01, 0.04, 0.03])]
    [0.9833, 0.975, 0.975]
    """
    values, order = _sorted(p_values)
    count = len(values)
    levels, place, stopped = np.empty(count), 0, False
    for step, claim in enumerate(order):
        if not stopped:
            place = step
            stopped = bool(values[claim] > chance / (count - step))
        levels[claim] = 1 - chance / (count - place)
    return [float(each) for each in levels]


def _sorted(p_values: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
        raise UserError(f"Holm: needs p-values between 0 and 1, got {list(p_values)}.")
    return values, np.argsort(values, kind="stable")
