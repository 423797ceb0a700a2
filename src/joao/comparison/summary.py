"""Summarise a record: one row per method, and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from joao.config.methods import UNTRAINED
from joao.evaluation.statistics import Gain, Scores, Verdict, make_verdict, mean, paired_gain, sample_std

KINDS = ("pre-trained", "own", "combination", "baseline", "cheap baseline")


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


def finished_partitions(record: Mapping[str, Any]) -> int:
    """Count the first partitions on which every method was scored, except those that failed."""
    methods = (record["methods"][name] for name in record["compared"])
    seeds = [method["seeds"] for method in methods if "failure" not in method]
    partitions = range(record["partitions"])
    return next((number for number in partitions if any(str(number) not in each for each in seeds)), len(partitions))


def first_partitions(record: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a record as it would be with ``number`` partitions."""
    return {**record, "partitions": number, "fold hashes": record["fold hashes"][:number]}


def accuracies_of(record: Mapping[str, Any], name: str) -> Scores | None:
    """Return ``(partitions, folds)`` accuracies of a method; None if some are missing or there are no partitions."""
    seeds = record["methods"].get(name, {}).get("seeds", {})
    partitions = [str(seed) for seed in range(record["partitions"])]
    if not partitions or any(seed not in seeds for seed in partitions):
        return None
    assert [seeds[seed]["fold_hash"] for seed in partitions] == record["fold hashes"]
    return np.array([seeds[seed]["accuracies"] for seed in partitions], dtype=np.float64)
