"""The unsupervised table: records to rows, next to the paper's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain
from joao.evaluation.tables import with_interval
from repro.intervals import estimate_gain
from repro.protocols.unsupervised.run import Cell
from repro.statistics import average_ranks
from repro.tables.names import NAMES
from repro.tables.overview import Overview, average
from repro.tables.paper import ROWS, unsupervised, unsupervised_rank
from repro.tables.rows import BOLD, ScoredRow, overview_lines, row_name, split_variant

Scores = dict[tuple[str, str], dict[int, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """Accuracies of a method on a data set, and gains over untrained encoders."""

    gains: Mapping[str, Gain]


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarise records; gains are over both forms of the untrained encoder on the same folds."""
    groups = by_seed(records)
    result = []
    for (dataset, method), scores in groups.items():
        folds = "-twins" if split_variant(method)[1].startswith("twins") else ""
        result.append(
            Row(
                dataset=dataset,
                method=method,
                scores=[float(np.mean(percent(partition))) for partition in scores.values()],
                folds=[percent(partition) for partition in scores.values()],
                gains={
                    name: gain
                    for name in UNTRAINED
                    if name != split_variant(method)[0]
                    and (gain := _gain(scores, groups.get((dataset, name + folds), {})))
                },
                paper=unsupervised(method, dataset),
            )
        )
    return result


def gain_between(records: Sequence[Mapping[str, Any]], dataset: str, method: str, baseline: str) -> Gain | None:
    """Return the gain of a method over another on the seeds that both have (:func:`repro.intervals.estimate_gain`).

    None with fewer than two: one pre-training says nothing about another.
    """
    return gain_in(by_seed(records), dataset, method, baseline)


def gain_in(groups: Scores, dataset: str, method: str, baseline: str) -> Gain | None:
    """Like :func:`gain_between`, for many gains in the same records: those of :func:`by_seed`."""
    return _gain(groups.get((dataset, method), {}), groups.get((dataset, baseline), {}))


def over(records: Sequence[Mapping[str, Any]], baseline: Row, row: Row) -> list[str]:
    """Return two rows of a data set as text: their scores, the gain of the second, and the number of seeds."""
    gain = gain_between(records, row.dataset, row.method, baseline.method)
    return [baseline.score, row.score, with_interval(gain), str(min(baseline.num_seeds, row.num_seeds))]


def by_seed(records: Sequence[Mapping[str, Any]]) -> Scores:
    """Return the scores by data set, row (`Cell.row`) and seed."""
    groups: Scores = {}
    for record in records:
        cell = Cell(**record["cell"])
        groups.setdefault((cell.dataset, cell.row), {})[cell.seed] = record["scores"]["partitions"][0]
    return groups


def _gain(ours: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]]) -> Gain | None:
    seeds = sorted(set(ours) & set(baseline))
    for seed in seeds:
        if ours[seed]["fold_hash"] != baseline[seed]["fold_hash"]:
            raise UserError(f"records of seed {seed}: different folds. Remove the older record and compute it again.")
    if len(seeds) < 2:
        return None
    first, second = ([percent(scores[seed]) for seed in seeds] for scores in (ours, baseline))
    return estimate_gain(first, second).interval()


def percent(partition: Mapping[str, Any]) -> list[float]:
    """Return the accuracies of the folds of a partition, in percent."""
    return [100 * share for share in partition["accuracies"]]


def cells_of(row: Row) -> list[str]:
    """Return the cells of a row (:data:`HEADER`)."""
    gains = [with_interval(row.gains.get(name)) for name in UNTRAINED]
    return [row.dataset, row.name, row.score, str(row.num_seeds), *gains, *row.paper_cells]


UNTRAINED = ("untrained", "untrained_initial")
HEADER = [
    *("data", "method", "accuracy %", "seeds"),
    *("gain over untrained, calibrated (95 % CI)", "gain over untrained, initial weights (95 % CI)"),
    *("paper", "difference (ours - paper)"),
]


SETTING = (
    "Features are node labels, or a constant if there are none. JOAO() with default settings also uses attributes, "
    "degrees if there are neither, and random walks, which it did not until 2026-11-18. C is selected inside each "
    "training fold. Average: for rows with a figure on every data set. Average rank: rank by our figures among the "
    "rows of the paper's table, averaged over the data sets of the row; ties share ranks."
)


def overview(table: Sequence[Row], empty_cells: Sequence[str] = ()) -> Overview:
    """Return one line per method, in the order of :data:`NAMES`, and one column per data set.

    The last columns are the average of complete rows, and the average rank among the rows of the paper's table
    (:func:`average_ranks`).
    """
    datasets = list(dict.fromkeys(row.dataset for row in table))
    scores = {
        dataset: {row.method: row.mean for row in table if row.dataset == dataset and row.method in ROWS}
        for dataset in datasets
    }
    ranks = average_ranks(scores)
    place = {name: number for number, name in enumerate(NAMES)}
    methods = sorted(
        dict.fromkeys(row.method for row in table), key=lambda method: place.get(split_variant(method)[0], len(place))
    )
    lines = overview_lines(table, methods, datasets)
    return Overview(
        title="Unsupervised: accuracy of an SVM on frozen embeddings",
        unit="accuracy %",
        columns=datasets,
        lines=lines,
        usual_seeds=5,
        bold=BOLD,
        last={
            "average": {name: average(line) for name, line in lines.items()},
            "average rank": {row_name(method): _rank_cell(method, ranks) for method in methods},
        },
        notes=SETTING,
        empty_cells=empty_cells,
    )


def _rank_cell(method: str, ranks: Mapping[str, float]) -> str:
    if method not in ranks:
        return ""
    published = unsupervised_rank(method)
    return f"{ranks[method]:.1f}" + ("" if published is None else f" ({published:.1f})")
