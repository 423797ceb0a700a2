"""The OGB table: records to rows, next to the paper's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joao.evaluation.statistics import Gain
from repro.tables.overview import Figure, Overview
from repro.tables.paper import ogb
from repro.tables.rows import ScoredRow, gain_on_one_split, gain_text, row_name

HEADER = [
    *("data", "labels", "method", "metric", "score %", "seeds", "gain over no pre-training (95 % CI)", "paper"),
    *("difference (ours - paper)", "encoder", "pre-training"),
]


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """Scores of a method on a data set at a label rate.

    Attributes:
        labelled: number of labelled graphs.
        metric: accuracy, F1 or ROC-AUC.
        encoder, pretraining: descriptions.
    """

    label_rate: int
    labelled: int
    metric: str
    gain: Gain | None
    encoder: str
    pretraining: str


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarise records."""
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
    """Return the cells of a row (:data:`HEADER`)."""
    facts = [row.dataset, f"{row.label_rate} % ({row.labelled})", row.name, row.metric, row.score, str(row.num_seeds)]
    return [*facts, gain_text(row.gain), *row.paper_cells, row.encoder, row.pretraining]


SETTING = (
    "The paper has ogbg-ppa and ogbg-code; its figures are in brackets. OGB replaced ogbg-code by ogbg-code2, which is"
    " shown next to the figures of ogbg-code. Molecules are not in the paper; their rows use a smaller encoder and "
    "fewer epochs, as the recipe states. Seeds share one pre-training and differ in the labelled graphs, which are the"
    " same for all methods."
)


def overview(table: Sequence[Row], columns: Sequence[tuple[str, int]], methods: Sequence[str]) -> Overview:
    """Return one line per method and one column per data set and label rate; the paper's figure if ours is missing.

    Args:
        table: the rows.
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
