"""Means and intervals of scores, and the verdict on whether pre-training helps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from joao.core.errors import UserError

Scores = NDArray[np.float64]


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


@final
@dataclass(frozen=True)
class Estimate:
    """A mean, its estimated variance and the degrees of freedom of that variance.

    >>> round(Estimate(mean=2.0, variance=0.25, freedom=4).interval().low, 4)
    0.6118
    """

    mean: float
    variance: float
    freedom: float

    def interval(self, level: float = 0.95) -> Gain:
        """Compute Student's interval, which covers the true mean with probability ``level``."""
        half_width = float(stdtrit(self.freedom, (1 + level) / 2) * np.sqrt(self.variance)) if self.variance else 0.0
        return Gain(self.mean, self.mean - half_width, self.mean + half_width, level)


def estimate_mean(values: ArrayLike) -> Estimate:
    r"""Estimate the mean over seeds and folds, with both as sources of variance.

    With :math:`x_{sj}` of fold j of seed s, r seeds and k folds, let B be the sample variance of the r seed means and W
    the mean over seeds of the sample variance of the k folds. The mean of all is Student's with

    .. math::
        V = \max\left(\frac{B}{r}, \frac{W}{k}\right), \quad
        \nu = \begin{cases} r - 1 & \text{if } B/r > W/k \\ r (k - 1) & \text{else} \end{cases}

    :math:`B/r` is the part of the variance that more seeds average out. Every seed tests the same graphs once, so that
    what is particular to these graphs stays however many seeds there are; :math:`W/k` stands for that part. The maximum
    was chosen by a simulation (``docs/results/coverage.md``). It is too small where both parts are equal and the folds
    have no other noise: the interval then misses the truth in about 10 % of all cases. With one seed, B is unknown and
    :math:`V = W/k`: the interval then says nothing about other seeds.

    Args:
        values: ``(r, k)``, one row per seed, or ``(r,)``, one score per seed.

    >>> estimate_mean([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]])
    Estimate(mean=3.0, variance=1.0, freedom=3)
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or table.size < 2:
        raise UserError(f"gain: expected at least two seeds, or two folds of one seed, got shape {np.shape(values)}.")
    seeds, folds = table.shape
    mean = float(table.mean())
    of_seeds = float(table.mean(axis=1).var(ddof=1) / seeds) if seeds > 1 else 0.0
    of_folds = float(table.var(axis=1, ddof=1).mean() / folds) if folds > 1 else 0.0
    if folds > 1 and of_folds >= of_seeds:
        return Estimate(mean, of_folds, seeds * (folds - 1))
    return Estimate(mean, of_seeds, seeds - 1)


def paired_gain(scores: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Gain:
    """Compute the gain over a baseline on the same folds, with the interval of :func:`estimate_mean`.

    Args:
        scores, baseline: ``(r, k)``, one row per seed or partition; the same folds in the same order.
        level: coverage of the interval.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise UserError(f"gain: expected the same folds on both sides, got shapes {first.shape} and {second.shape}.")
    return estimate_mean(first - second).interval(level)


def chance_level(classes: NDArray[np.int64]) -> float:
    """Compute the accuracy of always predicting the largest class."""
    counts = np.unique(classes, return_counts=True)[1]
    return float(counts.max() / counts.sum())


# Values of ``Verdict.helps``. They are stored in records, so their text must not change.
YES, NO, INCONCLUSIVE = "yes", "no", "cannot be told"


@final
@dataclass(frozen=True)
class Verdict:
    """Whether pre-training helps.

    Attributes:
        helps: ``yes``, ``no`` or, if the result is inconclusive, ``cannot be told``.
        method: the pre-trained method with the highest mean accuracy.
        baseline: the cheap baseline with the highest mean accuracy.
        gain: gain of ``method`` over ``baseline``, see :func:`best_over_best`, between -1 and 1.
        over: gain of ``method`` over each cheap baseline, with an ordinary interval.
        tried: number of pre-trained methods and of cheap baselines from which these were chosen.
        data: name of the data set.
    """

    helps: str
    method: str
    baseline: str
    gain: Gain
    over: Mapping[str, Gain]
    tried: tuple[int, int]
    data: str

    def __str__(self) -> str:
        return f"{self.answer}. {self.details}"

    @property
    def answer(self) -> str:
        """The answer in a few words, without a full stop."""
        results = {YES: "Pre-training helps", NO: "Pre-training does not help", INCONCLUSIVE: "Inconclusive"}
        return f"{results[self.helps]} on {self.data}"

    @property
    def details(self) -> str:
        """The difference of the best methods with its interval, without a word for its sign."""
        mean, low, high = (100 * each for each in (self.gain.mean, self.gain.low, self.gain.high))
        methods, baselines = self.tried
        return (
            f"{_describe_choice(self.method, methods, 'pre-trained methods')} minus "
            f"{_describe_choice(self.baseline, baselines, 'baselines')}: {round(mean, 2) + 0.0:+.2f} points "
            f"({100 * self.gain.level:.0f} % CI {low:+.2f} to {high:+.2f})."
        )


def _describe_choice(name: str, number: int, what: str) -> str:
    return f"{name} (best of {number} {what})" if number > 1 else name


def make_verdict(data: str, pretrained: Mapping[str, Scores], cheap: Mapping[str, Scores]) -> Verdict | None:
    """Compute the verdict from accuracies (0 to 1) of each method on the same folds; see :func:`best_over_best`."""
    if not pretrained or not cheap:
        return None
    gain = best_over_best(list(pretrained.values()), list(cheap.values()))
    method, baseline = (max(group, key=lambda name: float(group[name].mean())) for group in (pretrained, cheap))
    return Verdict(
        helps=YES if gain.low > 0 else NO if gain.high < 0 else INCONCLUSIVE,
        method=method,
        baseline=baseline,
        gain=gain,
        over={name: paired_gain(pretrained[method], each) for name, each in cheap.items()},
        tried=(len(pretrained), len(cheap)),
        data=data,
    )


def best_over_best(methods: Sequence[Scores], baselines: Sequence[Scores], *, level: float = 0.95) -> Gain:
    r"""Compute the gain of the best of m methods over the best of k baselines, chosen by the same scores.

    With the true gain :math:`\theta_{ij}` of method i over baseline j and an interval
    :math:`[l_{ij}(\alpha), h_{ij}(\alpha)]` that misses it on either side with probability :math:`\alpha / 2`,

    .. math::
        \max_i \min_j l_{ij}(\alpha / m) \;\le\; \max_i \min_j \theta_{ij} \;\le\; \min_j \max_i h_{ij}(\alpha / k)

    with probability at least :math:`1 - \alpha`. Lower bound: for a method, :math:`\min_j l_{ij}` is too large only if
    the interval of its truly strongest baseline is too high, which is one event. So there are m events, one for each
    method that may be chosen. For the upper bound, methods and baselines swap roles. With one of each it equals
    :func:`paired_gain`.

    Args:
        methods, baselines: accuracies of each on the same folds in the same order.
        level: :math:`1 - \alpha`.
    """

    def gains(num_events: int) -> list[list[Gain]]:
        """The gain of every method over every baseline, with intervals that miss with probability alpha / events."""
        level_of_each = 1 - (1 - level) / num_events
        return [[paired_gain(method, baseline, level=level_of_each) for baseline in baselines] for method in methods]

    low = max(min(gain.low for gain in of_method) for of_method in gains(len(methods)))
    high = min(max(gain.high for gain in over) for over in zip(*gains(len(baselines)), strict=True))
    best, strongest = (max(float(each.mean()) for each in group) for group in (methods, baselines))
    return Gain(best - strongest, low, high, level)
