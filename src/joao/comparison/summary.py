"""Summarise a record: one row per method, and the verdict on whether pre-training helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from joao.config.methods import UNTRAINED
from joao.evaluation.statistics import Gain, mean, paired_gain, sample_std

Scores = NDArray[np.float64]
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
        mean, low, high = (100 * each for each in (self.gain.mean, self.gain.low, self.gain.high))
        results = {YES: "Pre-training helps", NO: "Pre-training does not help", INCONCLUSIVE: "Inconclusive"}
        change = f"{abs(mean):.2f} points {'better' if mean > 0 else 'worse'} than"
        methods, baselines = self.tried
        return (
            f"{results[self.helps]} on {self.data}. "
            f"The {_describe_choice(self.method, methods, 'pre-trained method')} is "
            f"{'as good as' if abs(mean) < 0.005 else change} "
            f"the {_describe_choice(self.baseline, baselines, 'baseline')} "
            f"({100 * self.gain.level:.0f} % CI of the difference: {low:+.2f} to {high:+.2f})."
        )


def _describe_choice(name: str, number: int, what: str) -> str:
    return f"best of {number} {what}s, {name}," if number > 1 else f"{what} {name}"


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
    :func:`joao.evaluation.statistics.paired_gain`.

    Args:
        methods, baselines: accuracies of each on the same folds in the same order.
        level: :math:`1 - \alpha`.
    """

    def gains(ways: int) -> list[list[Gain]]:
        share = 1 - (1 - level) / ways
        return [[paired_gain(one, other, level=share) for other in baselines] for one in methods]

    low = max(min(gain.low for gain in over) for over in gains(len(methods)))
    high = min(max(gain.high for gain in of) for of in zip(*gains(len(baselines)), strict=True))
    best, strongest = (max(float(each.mean()) for each in group) for group in (methods, baselines))
    return Gain(best - strongest, low, high, level)


KINDS = ("pre-trained", "combination", "baseline", "cheap baseline")


@final
@dataclass(frozen=True)
class Row:
    """The result of a method.

    Attributes:
        kind: one of :data:`KINDS`.
        accuracy, deviation: mean and sample standard deviation over partitions, between 0 and 1.
        gain: gain over the calibrated untrained encoder on the same folds.
        seconds: seconds to compute the embeddings of one seed, mean over seeds.
        peak_bytes: peak memory of that, maximum over seeds; None if it cannot be measured.
        failure: reason why the method failed.
    """

    method: str
    kind: str
    accuracy: float | None = None
    deviation: float | None = None
    gain: Gain | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    failure: str = ""


def rows(record: Mapping[str, Any]) -> list[Row]:
    """Make one row per method: first the pre-trained methods, then the baselines, then the cheap baselines."""
    names = sorted(record["compared"], key=lambda name: KINDS.index(record["methods"][name]["kind"]))
    return [_row(record, name) for name in names]


def _row(record: Mapping[str, Any], name: str) -> Row:
    entry, accuracies = record["methods"][name], accuracies_of(record, name)
    if accuracies is None:
        return Row(name, entry["kind"], failure=entry.get("failure", "not computed yet."))
    means = [mean(part) for part in accuracies]
    costs = [entry["seeds"][str(seed)] for seed in range(record["partitions"])]
    peaks = [cost["peak bytes"] for cost in costs if cost["peak bytes"] is not None]
    untrained = accuracies_of(record, UNTRAINED) if name != UNTRAINED else None
    return Row(
        method=name,
        kind=entry["kind"],
        accuracy=mean(means),
        deviation=sample_std(means),
        gain=None if untrained is None else paired_gain(accuracies, untrained),
        seconds=mean([cost["seconds"] for cost in costs]),
        peak_bytes=max(peaks, default=None),
    )


def record_verdict(record: Mapping[str, Any]) -> Verdict | None:
    """Compute the verdict of a record; None without a pre-trained method or a cheap baseline."""
    groups: dict[str, dict[str, Scores]] = {kind: {} for kind in KINDS}
    for name in record["compared"]:
        if (accuracies := accuracies_of(record, name)) is not None:
            groups[record["methods"][name]["kind"]][name] = accuracies
    return make_verdict(record["data"]["name"], groups["pre-trained"], groups["cheap baseline"])


def accuracies_of(record: Mapping[str, Any], name: str) -> Scores | None:
    """Return ``(partitions, folds)`` accuracies of a method; None if some are missing."""
    seeds = record["methods"].get(name, {}).get("seeds", {})
    wanted = [str(seed) for seed in range(record["partitions"])]
    if any(seed not in seeds for seed in wanted):
        return None
    assert [seeds[seed]["fold_hash"] for seed in wanted] == record["fold hashes"]
    return np.array([seeds[seed]["accuracies"] for seed in wanted], dtype=np.float64)
