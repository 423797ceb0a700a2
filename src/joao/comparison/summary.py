"""Does pre-training help on these data? Accuracies on shared folds to rows and a verdict.

What a record says: a row for each method, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from joao.comparison.methods import UNTRAINED
from joao.evaluation.statistics import Gain, mean, paired_gain, sample_std

Accuracies = Mapping[str, NDArray[np.float64]]
YES, NO, INCONCLUSIVE = "yes", "no", "cannot be told"


@final
@dataclass(frozen=True)
class Verdict:
    """Whether pre-training helps.

    Attributes:
        helps: ``yes``, ``no`` or ``cannot be told``.
        method: the pre-trained method with the highest mean.
        baseline: the cheap baseline with the highest mean.
        gain: of one over the other, see :func:`best_over_best`, as a share of 1.
        over: the gain of ``method`` over each cheap baseline, with an ordinary interval.
        tried: how many pre-trained methods and how many cheap baselines these were picked from.
        data: the name of the data.
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
        methods, baselines = self.tried
        method = _describe_choice(self.method, methods, "pre-trained methods", "the pre-trained method")
        baseline = _describe_choice(self.baseline, baselines, "cheap baselines", "the cheap baseline")
        level = f"{100 * self.gain.level:.0f} % interval"
        if self.helps == YES:
            return (
                f"Pre-training helps on {self.data}: {method}, is {mean:.2f} points better than {baseline} "
                f"({level} {low:.2f} to {high:.2f})."
            )
        if self.helps == NO:
            return (
                f"Pre-training does not help on {self.data}: {method}, is {-mean:.2f} points worse than {baseline} "
                f"({level} {-high:.2f} to {-low:.2f})."
            )
        than = "as good as" if abs(mean) < 0.005 else f"{abs(mean):.2f} points {'better' if mean > 0 else 'worse'} than"
        return (
            f"Whether pre-training helps on {self.data} cannot be told: {method}, is {than} {baseline}, and the "
            f"{level}, {low:+.2f} to {high:+.2f}, covers 0."
        )


def _describe_choice(name: str, number: int, several: str, one: str) -> str:
    return f"the best of {number} {several}, {name}" if number > 1 else f"{one}, {name}"


def make_verdict(data: str, pretrained: Accuracies, cheap: Accuracies, num_train_per_test: float) -> Verdict | None:
    """The verdict, from accuracies as shares of 1 on the same folds; None where there is nothing to make_verdict.

    Args:
        data: what the sentence calls the data.
        pretrained, cheap: by method, a number for each fold of each partition, in the same order everywhere.
        num_train_per_test: folds less one.
    """
    if not pretrained or not cheap:
        return None
    gain = best_over_best(list(pretrained.values()), list(cheap.values()), num_train_per_test)
    method, baseline = (max(group, key=lambda name: float(group[name].mean())) for group in (pretrained, cheap))
    return Verdict(
        helps=YES if gain.low > 0 else NO if gain.high < 0 else INCONCLUSIVE,
        method=method,
        baseline=baseline,
        gain=gain,
        over={name: paired_gain(pretrained[method], each, num_train_per_test) for name, each in cheap.items()},
        tried=(len(pretrained), len(cheap)),
        data=data,
    )


def best_over_best(
    methods: Sequence[NDArray[np.float64]],
    baselines: Sequence[NDArray[np.float64]],
    num_train_per_test: float = 9,
    *,
    level: float = 0.95,
) -> Gain:
    r"""How much the best of m methods gains over the best of k baselines, where the same scores say which these are.

    With the true gain :math:`\theta_{ij}` of method i over baseline j and an interval
    :math:`[l_{ij}(\alpha), h_{ij}(\alpha)]` that misses it on either side with probability :math:`\alpha / 2`,

    .. math::
        \max_i \min_j l_{ij}(\alpha / m) \;\le\; \max_i \min_j \theta_{ij} \;\le\; \min_j \max_i h_{ij}(\alpha / k)

    with probability :math:`1 - \alpha` at least. Below: for a method, :math:`\min_j l_{ij}` is wrong only if it is at
    the baseline that is truly the best for it, which is one; so there are m ways to be wrong, one for each method that
    may be picked. Above, methods and baselines change places. With one of each it is
    :func:`joao.evaluation.statistics.paired_gain`.

    Args:
        methods, baselines: accuracies of each, on the same folds in the same order.
        num_train_per_test: folds less one.
        level: :math:`1 - \alpha`.
    """

    def gains(ways: int) -> list[list[Gain]]:
        share = 1 - (1 - level) / ways
        return [[paired_gain(one, other, num_train_per_test, level=share) for other in baselines] for one in methods]

    low = max(min(gain.low for gain in over) for over in gains(len(methods)))
    high = min(max(gain.high for gain in of) for of in zip(*gains(len(baselines)), strict=True))
    best, strongest = (max(float(each.mean()) for each in group) for group in (methods, baselines))
    return Gain(best - strongest, low, high, level)


KINDS = ("pre-trained", "baseline", "cheap baseline")


@final
@dataclass(frozen=True)
class Row:
    """A method: accuracy and gain as shares of 1, seconds and bytes of making the rows of one seed.

    Attributes:
        kind: one of :data:`KINDS`.
        gain: over the calibrated untrained encoder, on the same folds.
        seconds: mean over seeds.
        peak_bytes: the largest over seeds; None where nobody can say.
        failure: why there is nothing of all this.
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
    """A row for each compared method: pre-trained ones, other baselines, cheap ones, each group in its order."""
    names = sorted(record["compared"], key=lambda name: KINDS.index(record["methods"][name]["kind"]))
    return [_row(record, name) for name in names]


def _row(record: Mapping[str, Any], name: str) -> Row:
    entry, accuracies = record["methods"][name], accuracies_of(record, name)
    if accuracies is None:
        return Row(name, entry["kind"], failure=entry.get("failure", "not done yet."))
    means = [mean(part) for part in accuracies]
    costs = [entry["seeds"][str(seed)] for seed in range(record["partitions"])]
    peaks = [cost["peak bytes"] for cost in costs if cost["peak bytes"] is not None]
    untrained = accuracies_of(record, UNTRAINED) if name != UNTRAINED else None
    return Row(
        method=name,
        kind=entry["kind"],
        accuracy=mean(means),
        deviation=sample_std(means),
        gain=None if untrained is None else paired_gain(accuracies, untrained, record["folds"] - 1),
        seconds=mean([cost["seconds"] for cost in costs]),
        peak_bytes=max(peaks, default=None),
    )


def record_verdict(record: Mapping[str, Any]) -> Verdict | None:
    """Whether pre-training helps; None without a pre-trained method, or without a cheap baseline."""
    groups: dict[str, dict[str, NDArray[np.float64]]] = {kind: {} for kind in KINDS}
    for name in record["compared"]:
        if (accuracies := accuracies_of(record, name)) is not None:
            groups[record["methods"][name]["kind"]][name] = accuracies
    return make_verdict(record["data"]["name"], groups["pre-trained"], groups["cheap baseline"], record["folds"] - 1)


def accuracies_of(record: Mapping[str, Any], name: str) -> NDArray[np.float64] | None:
    """``(partitions, folds)`` of a method; None where some are missing."""
    seeds = record["methods"].get(name, {}).get("seeds", {})
    wanted = [str(seed) for seed in range(record["partitions"])]
    if any(seed not in seeds for seed in wanted):
        return None
    assert [seeds[seed]["fold_hash"] for seed in wanted] == record["fold hashes"]
    return np.array([seeds[seed]["accuracies"] for seed in wanted], dtype=np.float64)
