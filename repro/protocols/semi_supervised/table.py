"""The semi-supervised tables: records to rows, next to the paper's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain
from joao.evaluation.tables import with_interval
from repro.intervals import estimate_gain, estimate_over_sets
from repro.tables.overview import Overview
from repro.tables.paper import Published, semi_supervised, strength
from repro.tables.rows import BOLD, ScoredRow, overview_lines, row_name

HEADER = [
    *("data", "labels", "method", "accuracy %", "seeds", "gain over no pre-training (95 % CI)"),
    *("paper", "difference (ours - paper)", "precision"),
]
NUM_SEEDS = 5
MUST_AGREE = {"split_hash": "folds or labels", "precision": "precisions", "data": "graphs", "protocol": "protocols"}


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """Accuracies of a method on a data set at a label rate."""

    precision: str
    gain: Gain | None


Group = dict[int, Mapping[str, Any]]


def rows(records: Sequence[Mapping[str, Any]], *, of_strength: bool = False) -> list[Row]:
    """Summarise records; gains are over no pre-training with the same labels, fine-tuned alike.

    Args:
        records: records of any cells.
        of_strength: whether to compare with the paper's ablation of strength.
    """
    groups = by_row(records)
    result = []
    for (dataset, label_rate, method), group in groups.items():
        without = "none_last" if method.endswith("_last") else "none"
        baseline = groups.get((dataset, label_rate, without), {})
        result.append(
            Row(
                dataset=dataset,
                label_rate=label_rate,
                method=method,
                scores=[float(np.mean(_percent(record))) for record in group.values()],
                folds=[_percent(record) for record in group.values()],
                precision=" and ".join(sorted({record["precision"] for record in group.values()})),
                gain=None if method == without else gain(group, baseline),
                paper=at_strength(method, dataset) if of_strength else semi_supervised(method, dataset, label_rate),
            )
        )
    return result


def by_row(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str], Group]:
    """Return the records by data set, label rate and method, and by seed."""
    groups: dict[tuple[str, int, str], Group] = {}
    for record in records:
        cell = record["cell"]
        groups.setdefault((cell["dataset"], cell["label_rate"], cell["method"]), {})[cell["seed"]] = record
    return groups


def check_same_parts(ours: Group, baseline: Group) -> list[int]:
    """Return the seeds that both have. Raise an error if they have other folds, labels or graphs."""
    seeds = sorted(set(ours) & set(baseline))
    for seed in seeds:
        for key, what in MUST_AGREE.items():
            if ours[seed].get(key) != baseline[seed].get(key):
                raise UserError(
                    f"records of seed {seed}: different {what}. Remove the older record and compute it again."
                )
    return seeds


def gain(ours: Group, baseline: Group) -> Gain | None:
    """Return the gain over the seeds that both have. None with fewer than two."""
    seeds = check_same_parts(ours, baseline)
    if len(seeds) < 2:
        return None
    return estimate_gain(*([_percent(group[seed]) for seed in seeds] for group in (ours, baseline))).interval()


def _percent(record: Mapping[str, Any]) -> list[float]:
    return [100 * share for share in record["scores"]["accuracy"]]


def at_strength(method: str, dataset: str) -> Published | None:
    """Return a cell of the paper's ablation of strength: 0.25 for ``_stronger`` methods, 0.2 for others."""
    name = method.removesuffix("_stronger")
    return strength(name, dataset, 0.2 if name == method else 0.25)


def cells_of(row: Row) -> list[str]:
    """Return the cells of a row (:data:`HEADER`)."""
    facts = [row.dataset, f"{row.label_rate} %", row.name, row.score, str(row.num_seeds), with_interval(row.gain)]
    return [*facts, *row.paper_cells, row.precision]


REDEFINED = """\
## The row without pre-training was redefined

The settings of this row were not fixed before the first records existed. At first its batch normalisation started as initialised. On 2026-11-15, with the records of the first definition known, it was redefined: statistics are calibrated in one pass
without labels, as for all rows (deviation 24). The first records are in `repro/records/no-pretraining-first.jsonl`. The row *augmentations only, all five* was calibrated at the same time, when 26 of its records were known; these are in the version history only. Both gains, on the seeds that both definitions have:
"""  # noqa: E501
REDEFINED_HEADER = [
    "data",
    "labels",
    "method",
    "seeds",
    "gain over the first definition (95 % CI)",
    "gain now (95 % CI)",
]


def redefined_lines(records: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the gains over no pre-training by its first definition and now (:data:`REDEFINED_HEADER`).

    Args:
        records: records of the table.
        first: records of no pre-training by its first definition.
    """
    before, groups = by_row(first), by_row(records)
    lines = []
    for (dataset, label_rate, _), old in before.items():
        now = groups.get((dataset, label_rate, "none"), {})
        for method in ("graphcl", "joao", "joaov2"):
            ours = groups.get((dataset, label_rate, method), {})
            seeds = sorted(set(old) & set(now) & set(ours))
            gains = [gain(ours, {seed: group[seed] for seed in seeds}) for group in (old, now)]
            if all(gains):
                facts = [dataset, f"{label_rate} %", row_name(method), str(len(seeds))]
                lines.append([*facts, *map(with_interval, gains)])
    return lines


LAST_EPOCH = """\
The rule was chosen on development sets ([study](../few-labels.md)) and is run once here. Last epoch minus selected
epoch of the same method, on the seeds that both have:
"""
LAST_EPOCH_HEADER = ["data", "method", "seeds", "last epoch - selected epoch (95 % CI)"]


def last_epoch_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return what the last epoch changes, and the cells without a record (:data:`LAST_EPOCH_HEADER`)."""
    groups = by_row(records)
    lines = []
    for dataset, label_rate in dict.fromkeys(key[:2] for key in groups):
        for method in ("none", "joao"):
            ours, other = (groups.get((dataset, label_rate, each), {}) for each in (f"{method}_last", method))
            seeds = sorted(set(ours) & set(other))
            if any(ours[seed]["split_hash"] != other[seed]["split_hash"] for seed in seeds):
                raise UserError(f"{dataset}: the rules for the epoch have different folds. Compute one of them again.")
            scores = [[_percent(group[seed]) for seed in seeds] for group in (ours, other)]
            if len(seeds) > 1:
                change = with_interval(estimate_gain(*scores).interval())
            else:
                change = f"{np.mean(scores[0]) - np.mean(scores[1]):+.2f}" if seeds else "not run"
            lines.append([dataset, row_name(method), str(len(seeds)), change])
    return lines


LAST_EPOCH_MEANS = """\
Means over the data sets, with the data set as the unit. The gain is that over no pre-training at the last epoch:
"""
LAST_EPOCH_MEANS_HEADER = [
    *("method", "data sets", "selected epoch", "last epoch", "last epoch - selected epoch (95 % CI)"),
    "gain (95 % CI)",
]


def last_epoch_means(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean accuracy by method, selected and last epoch, and by data set; sets without all are omitted."""
    methods = ("none", "joao", "none_last", "joao_last")
    found: dict[str, dict[str, float]] = {method: {} for method in methods}
    groups = by_row(records)
    for dataset, label_rate in dict.fromkeys(key[:2] for key in groups):
        own = {method: groups.get((dataset, label_rate, method), {}) for method in methods}
        if all(len(group) >= NUM_SEEDS for group in own.values()):
            for method, group in own.items():
                found[method][dataset] = float(np.mean([_percent(record) for record in group.values()]))
    return found


def last_epoch_mean_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the means over data sets (:data:`LAST_EPOCH_MEANS_HEADER`); none with fewer than two sets."""
    found = {method: np.array([*of_set.values()]) for method, of_set in last_epoch_means(records).items()}
    lines = []
    for method in ("none", "joao"):
        selected, last = found[method], found[f"{method}_last"]
        if len(last) > 1:
            change, over_none = (
                with_interval(estimate_over_sets(last - other).interval()) for other in (selected, found["none_last"])
            )
            means = [f"{each.mean():.2f}" for each in (selected, last)]
            lines.append([row_name(method), str(len(last)), *means, change, "" if method == "none" else over_none])
    return lines


SETTING = (
    "A tenth of the labelled graphs selects the epoch and is not used for training. The authors' code reports the "
    "epoch with the best mean test accuracy."
)


def overview(table: Sequence[Row]) -> Overview:
    """Return one line per method and one column per data set and label rate."""
    columns = list(dict.fromkeys(row.column for row in table))
    return Overview(
        title="Semi-supervised: accuracy after fine-tuning with few labels",
        unit="accuracy %",
        columns=columns,
        lines=overview_lines(table, list(dict.fromkeys(row.method for row in table)), columns),
        usual_seeds=NUM_SEEDS,
        bold=BOLD,
        notes=SETTING,
    )
