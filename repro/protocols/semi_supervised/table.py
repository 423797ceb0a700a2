"""Records of the semi-supervised protocol to tables, each cell beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain, gain_over_seeds
from joao.evaluation.tables import with_interval
from joao.report.paper import Published, semi_supervised, strength
from repro.tables.overview import Overview
from repro.tables.rows import ScoredRow, overview_lines

HEADER = [
    *("data", "labels", "method", "accuracy %", "seeds", "gain over no pre-training (95 %)"),
    *("paper", "difference", "precision"),
]
NUM_SEEDS = 5
MUST_AGREE = {"split_hash": "folds or labels", "precision": "precisions", "data": "graphs", "protocol": "protocols"}


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """A method on a data set at a label rate: accuracies."""

    precision: str
    gain: Gain | None


Group = dict[int, Mapping[str, Any]]


def rows(records: Sequence[Mapping[str, Any]], *, of_strength: bool = False) -> list[Row]:
    """Summarises records of cells; gains are over no pre-training with the same labels.

    Args:
        records: of any cells.
        of_strength: whether the paper's figures are those of its ablation of strength.
    """
    groups: dict[tuple[str, int, str], Group] = {}
    for record in records:
        cell = record["cell"]
        groups.setdefault((cell["dataset"], cell["label_rate"], cell["method"]), {})[cell["seed"]] = record
    result = []
    for (dataset, label_rate, method), group in groups.items():
        baseline = groups.get((dataset, label_rate, "none"), {})
        result.append(
            Row(
                dataset=dataset,
                label_rate=label_rate,
                method=method,
                scores=[_mean(record) for record in group.values()],
                precision=" and ".join(sorted({record["precision"] for record in group.values()})),
                gain=None if method == "none" else gain(group, baseline),
                paper=at_strength(method, dataset) if of_strength else semi_supervised(method, dataset, label_rate),
            )
        )
    return result


def gain(ours: Group, baseline: Group) -> Gain | None:
    """Over the seeds that both have; None with fewer than two."""
    seeds = sorted(set(ours) & set(baseline))
    for seed in seeds:
        for key, what in MUST_AGREE.items():
            if ours[seed].get(key) != baseline[seed].get(key):
                raise UserError(
                    f"records: those of seed {seed} have different {what}. Remove the older and compute it again."
                )
    if len(seeds) < 2:
        return None
    return gain_over_seeds([_mean(ours[seed]) for seed in seeds], [_mean(baseline[seed]) for seed in seeds])


def _mean(record: Mapping[str, Any]) -> float:
    return 100 * float(np.mean(record["scores"]["accuracy"]))


def at_strength(method: str, dataset: str) -> Published | None:
    """The cell of the paper's ablation of strength; a stronger method is at 0.25, any other at 0.2."""
    name = method.removesuffix("_stronger")
    return strength(name, dataset, 0.2 if name == method else 0.25)


def cells_of(row: Row) -> list[str]:
    """A row as text, under :data:`HEADER`."""
    facts = [row.dataset, f"{row.label_rate} %", row.name, row.score, str(row.num_seeds), with_interval(row.gain)]
    return [*facts, *row.beside, row.precision]


SETTING = (
    "A tenth of the labelled graphs chooses the epoch and is not learned from; the paper's figures are those of the "
    "epoch with the best mean test accuracy."
)


def overview(table: Sequence[Row]) -> Overview:
    """One line a method, one column a data set and label rate."""
    columns = list(dict.fromkeys(row.column for row in table))
    return Overview(
        title="Semi-supervised: accuracy after fine-tuning with few labels",
        unit="accuracy %",
        columns=columns,
        lines=overview_lines(table, list(dict.fromkeys(row.method for row in table)), columns),
        usual_seeds=NUM_SEEDS,
        notes=SETTING,
    )
