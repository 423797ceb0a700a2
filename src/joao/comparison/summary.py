"""What a record says: a row for each method, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from joao.comparison.methods import UNTRAINED
from joao.comparison.verdict import Verdict, judge
from joao.evaluation.statistics import Gain, mean, paired_gain, sample_std

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


def verdict_of(record: Mapping[str, Any]) -> Verdict | None:
    """Whether pre-training helps; None without a pre-trained method, or without a cheap baseline."""
    groups: dict[str, dict[str, NDArray[np.float64]]] = {kind: {} for kind in KINDS}
    for name in record["compared"]:
        if (accuracies := accuracies_of(record, name)) is not None:
            groups[record["methods"][name]["kind"]][name] = accuracies
    return judge(record["data"]["name"], groups["pre-trained"], groups["cheap baseline"], record["folds"] - 1)


def accuracies_of(record: Mapping[str, Any], name: str) -> NDArray[np.float64] | None:
    """``(partitions, folds)`` of a method; None where some are missing."""
    seeds = record["methods"].get(name, {}).get("seeds", {})
    wanted = [str(seed) for seed in range(record["partitions"])]
    if any(seed not in seeds for seed in wanted):
        return None
    assert [seeds[seed]["fold_hash"] for seed in wanted] == record["fold hashes"]
    return np.array([seeds[seed]["accuracies"] for seed in wanted], dtype=np.float64)
