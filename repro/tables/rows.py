"""Rows of tables: names of methods, scores next to the paper's, and gains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from joao.evaluation.statistics import Gain, sample_std
from joao.evaluation.tables import with_deviation, with_interval
from repro.intervals import estimate_difference, estimate_gain
from repro.tables.names import NAMES
from repro.tables.overview import Figure
from repro.tables.paper import Published

Record = Mapping[str, Any]

# Variants of the protocol (`Cell.variant`).
VARIANTS = {"twins": "twins together", "inductive": "inductive", "twins-inductive": "twins together, inductive"}


def split_variant(row: str) -> tuple[str, str]:
    """Split a row into method and variant.

    >>> split_variant("joao-twins")
    ('joao', 'twins')
    """
    method, _, variant = row.partition("-")
    return method, variant


def row_name(row: str) -> str:
    """Return the display name of a row.

    >>> row_name("joao-twins")
    'JOAO, twins together'
    """
    method, variant = split_variant(row)
    return f"{NAMES.get(method, method)}, {VARIANTS[variant]}" if variant in VARIANTS else NAMES.get(row, row)


@dataclass(frozen=True, kw_only=True)
class ScoredRow:
    """The scores of a method on a data set, next to the paper's figure.

    Attributes:
        label_rate: in percent, for tables with several.
        scores: in percent, one per seed.
        folds: one row per seed with the scores of its folds; empty in tables without folds.
        paper: None if the paper has no figure.
    """

    dataset: str
    method: str
    label_rate: int | None = None
    scores: Sequence[float]
    folds: Sequence[Sequence[float]] = ()
    paper: Published | None

    @property
    def name(self) -> str:
        return row_name(self.method)

    @property
    def column(self) -> str:
        return self.dataset if self.label_rate is None else f"{self.dataset}, {self.label_rate} %"

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def std(self) -> float | None:
        return sample_std(self.scores)

    @property
    def num_seeds(self) -> int:
        return len(self.scores)

    @property
    def score(self) -> str:
        """Mean and standard deviation."""
        return with_deviation(self.mean, self.std)

    @property
    def paper_cells(self) -> list[str]:
        """The paper's figure, and the difference (ours - paper)."""
        if self.paper is None:
            return ["", ""]
        return [with_deviation(self.paper.mean, self.paper.std), f"{self.mean - self.paper.mean:+.2f}"]

    @property
    def figure(self) -> Figure:
        """The cell of an overview."""
        return Figure(self.mean, self.std, self.num_seeds, self.paper.mean if self.paper else None)


def overview_lines(
    table: Sequence[ScoredRow], methods: Sequence[str], columns: Sequence[str]
) -> dict[str, list[Figure | None]]:
    """Return the lines of an overview: display name of the method to the figures of all columns."""
    best = {column: max((row for row in table if row.column == column), key=lambda row: row.mean) for column in columns}
    cells = {(row.method, row.column): replace(row.figure, tied=_tied(best[row.column], row)) for row in table}
    return {row_name(method): [cells.get((method, column)) for column in columns] for method in methods}


BOLD = ", and everything whose difference from it has a 95 % interval that contains 0"


def _tied(best: ScoredRow, row: ScoredRow) -> bool:
    if len(best.folds) < 2 or len(best.folds) != len(row.folds):
        return False
    return estimate_gain(best.folds, row.folds).interval().low <= 0


def gain_on_one_split(
    ours: Record, baseline: Record | None, kind: str = "test", baseline_kind: str = "test"
) -> Gain | None:
    """Return the gain over training from scratch on one split; None if the splits differ.

    The seed of the pre-training is the unit. One pre-training says nothing about others, so its interval is infinite.
    Without one (a forest) every run is a seed of its own, as in the baseline.

    Args:
        ours, baseline: records of a method and of no pre-training.
        kind, baseline_kind: ``test`` at the chosen epoch, or ``last_test`` at the last one.
    """
    if baseline is None or ours["split_hash"] != baseline["split_hash"]:
        return None
    scores, scratch = (
        100 * np.array(record["scores"][name]) for record, name in ((ours, kind), (baseline, baseline_kind))
    )
    if ours.get("corpus", ours) is not None or min(len(scores), len(scratch)) < 2:
        return Gain(float(scores.mean() - scratch.mean()), -math.inf, math.inf)
    return estimate_difference(scores, scratch).interval()


def gain_text(gain: Gain | None) -> str:
    """
    >>> gain_text(Gain(2.77, -1.66, 7.21)), gain_text(Gain(2.77, -math.inf, math.inf)), gain_text(None)
    ('+2.77 (-1.66 to +7.21)', '+2.77', '')
    """
    return f"{gain.mean:+.2f}" if gain and math.isinf(gain.high) else with_interval(gain)
