"""Records of the OGB setting to tables, each cell beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joao.evaluation.statistics import Gain
from joao.evaluation.tables import with_interval
from joao.report.paper import ogb
from repro.tables.overview import Figure, Overview
from repro.tables.rows import ScoredRow, gain_on_one_split, row_name

HEADER = [
    *("data", "labels", "method", "metric", "score %", "seeds", "gain over no pre-training (95 %)", "paper"),
    *("less paper", "encoder", "pre-training"),
]


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """A method on a data set at a label rate.

    Attributes:
        labelled: graphs that have a label.
        metric: accuracy, F1 or ROC-AUC.
        encoder, pretraining: in words.
    """

    label_rate: int
    labelled: int
    metric: str
    gain: Gain | None
    encoder: str
    pretraining: str


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarises records of cells."""
    by_cell = {tuple(record["cell"].values()): record for record in records}
    result = []
    for record in records:
        cell = record["cell"]
        baseline = by_cell.get((cell["dataset"], "none", cell["label_rate"]))
        training, encoder = record["recipe"]["training"], record["recipe"]["encoder"]
        facts = record["pre-training"]
        result.append(
            Row(
                **cell,
                labelled=record["split"]["labelled"],
                metric=record["finetuning"]["metric"],
                scores=[100 * score for score in record["scores"]["test"]],
                gain=None if cell["method"] == "none" else gain_on_one_split(record, baseline),
                paper=ogb(cell["method"], cell["dataset"], cell["label_rate"]),
                encoder=f"{encoder['layers']} x {encoder['width']}",
                pretraining=f"{facts['graphs']:,} graphs, {training['epochs']} epochs" if facts else "",
            )
        )
    return result


def cells_of(row: Row) -> list[str]:
    """A row as text, under :data:`HEADER`."""
    facts = [row.dataset, f"{row.label_rate} % ({row.labelled})", row.name, row.metric, row.score, str(row.num_seeds)]
    return [*facts, with_interval(row.gain), *row.beside, row.encoder, row.pretraining]


SETTING = (
    "The paper has ogbg-ppa and ogbg-code; its figures are in brackets. OGB put ogbg-code2 in the place of ogbg-code, "
    "whose figures it stands beside. Molecules are not in the paper; the encoder and the epochs of their rows are "
    "smaller than its own, as the recipe says. Seeds share one pre-training and differ in the labelled graphs; those "
    "of all methods are the same."
)


def overview(table: Sequence[Row], columns: Sequence[tuple[str, int]], methods: Sequence[str]) -> Overview:
    """One line a method, one column a data set and label rate; the paper's figures alone where ours lack.

    Args:
        table: the rows there are.
        columns: data sets and label rates that must have a column.
        methods: the lines.
    """
    found = {(row.method, row.dataset, row.label_rate): row.figure for row in table}
    wanted = list(dict.fromkeys([*columns, *((row.dataset, row.label_rate) for row in table)]))

    def figure(method: str, dataset: str, rate: int) -> Figure | None:
        paper = ogb(method, dataset, rate)
        alone = None if paper is None else Figure(mean=None, paper=paper.mean)
        return found.get((method, dataset, rate), alone)

    return Overview(
        title="OGB: few labels of the official training part",
        unit="score %",
        columns=[f"{dataset}, {rate} %" for dataset, rate in wanted],
        lines={row_name(method): [figure(method, *column) for column in wanted] for method in methods},
        usual_seeds=3,
        notes=SETTING,
    )
