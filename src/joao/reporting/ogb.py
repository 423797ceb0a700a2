"""Records of the OGB setting to tables, each cell beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.evaluation.statistics import Gain, gain_over_seeds, sample_std
from joao.reporting.overview import Figure, Overview
from joao.reporting.paper import Published, ogb
from joao.reporting.tables import NAMES, figure_of, with_deviation, with_interval

HEADER = [
    *("data", "labels", "method", "metric", "score %", "seeds", "gain over no pre-training (95 %)", "paper"),
    *("less paper", "encoder", "pre-training"),
]


@dataclass(frozen=True)
class Row:
    """A method on a data set at a label rate: scores in percent, over seeds.

    Attributes:
        labelled: graphs that have a label.
        metric: accuracy, F1 or ROC-AUC.
        encoder, pretraining: in words.
    """

    dataset: str
    method: str
    label_rate: int
    labelled: int
    metric: str
    mean: float
    std: float | None
    num_seeds: int
    gain: Gain | None
    paper: Published | None
    encoder: str
    pretraining: str


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarises records of cells."""
    by_cell = {tuple(record["cell"].values()): record for record in records}
    result = []
    for record in records:
        cell, scores = record["cell"], [100 * score for score in record["scores"]["test"]]
        baseline = by_cell.get((cell["dataset"], "none", cell["label_rate"]))
        training, encoder = record["recipe"]["training"], record["recipe"]["encoder"]
        facts = record["pre-training"]
        result.append(
            Row(
                **cell,
                labelled=record["split"]["labelled"],
                metric=record["finetuning"]["metric"],
                mean=float(np.mean(scores)),
                std=sample_std(scores),
                num_seeds=len(scores),
                gain=None if cell["method"] == "none" or baseline is None else _gain(record, baseline),
                paper=ogb(cell["method"], cell["dataset"], cell["label_rate"]),
                encoder=f"{encoder['layers']} x {encoder['width']}",
                pretraining=f"{facts['graphs']:,} graphs, {training['epochs']} epochs" if facts else "",
            )
        )
    return result


def _gain(ours: Mapping[str, Any], baseline: Mapping[str, Any]) -> Gain | None:
    """Over the seeds, which have the same labelled graphs; None where they have not, or with fewer than two."""
    seeds = ours["scores"]["seed"]
    if len(seeds) < 2 or seeds != baseline["scores"]["seed"] or ours["split_hash"] != baseline["split_hash"]:
        return None
    first, second = ([100 * score for score in each["scores"]["test"]] for each in (ours, baseline))
    return gain_over_seeds(first, second)


def cells_of(row: Row) -> list[str]:
    """A row as text, under :data:`HEADER`."""
    paper = with_deviation(row.paper.mean, row.paper.std) if row.paper else ""
    difference = f"{row.mean - row.paper.mean:+.2f}" if row.paper else ""
    labels = f"{row.label_rate} % ({row.labelled})"
    scores = [row.metric, with_deviation(row.mean, row.std), str(row.num_seeds)]
    name = NAMES.get(row.method, row.method)
    gain = with_interval(row.gain)
    return [row.dataset, labels, name, *scores, gain, paper, difference, row.encoder, row.pretraining]


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
    found = {(row.dataset, row.label_rate, row.method): row for row in table}
    wanted = list(dict.fromkeys([*columns, *((row.dataset, row.label_rate) for row in table)]))

    def figure(method: str, dataset: str, rate: int) -> Figure | None:
        paper = ogb(method, dataset, rate)
        own = figure_of(found.get((dataset, rate, method)))
        return own if own or paper is None else Figure(mean=None, paper=paper.mean)

    return Overview(
        title="OGB: few labels of the official training part",
        unit="score %",
        columns=[f"{dataset}, {rate} %" for dataset, rate in wanted],
        lines={NAMES.get(method, method): [figure(method, *column) for column in wanted] for method in methods},
        usual_seeds=3,
        notes=SETTING,
    )
