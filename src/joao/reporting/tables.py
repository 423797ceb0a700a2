"""Records to tables, each cell beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from joao.errors import UserError
from joao.evaluation.statistics import Gain, average_ranks, paired_gain, sample_std
from joao.reporting.overview import Figure, Overview, average
from joao.reporting.paper import ROWS, Published, unsupervised, unsupervised_rank
from joao.reproduce.unsupervised import Cell

OBJECTIVES = {
    "nt_xent": "NT-Xent",
    "jensen_shannon": "Jensen-Shannon",
    "barlow_twins": "Barlow Twins",
    "bootstrap": "bootstrap",
}

NAMES = {
    "none": "no pre-training",
    "augmentations": "augmentations only",
    "gae": "GAE",
    "infomax": "Infomax",
    "context_pred": "ContextPred",
    "edge_pred": "EdgePred",
    "attr_masking": "AttrMasking",
    "ecfp": "random forest on ECFP",
    "joao_ecfp": "random forest on ECFP and JOAO's embeddings",
    "gl": "GL (graphlet kernel)",
    "wl": "WL (subtree kernel)",
    "dgk": "DGK (deep graph kernel)",
    "node2vec": "node2vec",
    "sub2vec": "sub2vec",
    "graph2vec": "graph2vec",
    "ldp": "local degree profile",
    "mvgrl": "MVGRL",
    "infograph": "InfoGraph",
    "histogram": "label and degree histogram",
    "untrained_initial": "untrained encoder, as initialised",
    "untrained": "untrained encoder, calibrated",
    "graphcl": "GraphCL (rule pool)",
    "uniform": "uniform",
    "joao": "JOAO",
    "joaov2": "JOAOv2",
    "joao_default": "JOAO() as it comes",
    "joao_strengths": "JOAO, strengths learned",
    "joaov2_joao_budget": "JOAOv2, JOAO's budget",
    **{
        f"{objective}_{policy}": f"{name}, {policy if policy == 'uniform' else 'JOAO'}"
        for objective, name in OBJECTIVES.items()
        for policy in ("uniform", "joao")
    },
    "joao_stronger": "JOAO, strength 0.25",
    "joaov2_stronger": "JOAOv2, strength 0.25",
    "joao_without_prior": "JOAO, gamma = 0",
}


# What is not as usual in a protocol (`Cell.variant`), in words.
VARIANTS = {"twins": "twins together", "inductive": "inductive", "twins-inductive": "twins together, inductive"}


@dataclass(frozen=True)
class Row:
    """A method on a data set: accuracies in percent, over seeds."""

    dataset: str
    method: str
    mean: float
    std: float | None
    num_seeds: int
    gains: Mapping[str, Gain]
    paper: Published | None

    @property
    def name(self) -> str:
        method, variant = parted(self.method)
        return ", ".join([NAMES.get(method, method), *([VARIANTS[variant]] if variant else [])])


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarises records of cells; gains are over the untrained encoder, in both forms, on the same folds."""
    groups = by_seed(records)
    result = []
    for (dataset, method), scores in groups.items():
        folds = "-twins" if parted(method)[1].startswith("twins") else ""
        means = [float(np.mean(_percent(partition))) for partition in scores.values()]
        result.append(
            Row(
                dataset=dataset,
                method=method,
                mean=float(np.mean(means)),
                std=sample_std(means),
                num_seeds=len(means),
                gains={
                    name: gain
                    for name in UNTRAINED
                    if name != parted(method)[0] and (gain := _gain(scores, groups.get((dataset, name + folds), {})))
                },
                paper=unsupervised(method, dataset),
            )
        )
    return result


def gain_between(records: Sequence[Mapping[str, Any]], dataset: str, method: str, baseline: str) -> Gain | None:
    """The paired gain of a method over another, over the seeds that both have records of; None where there is none."""
    groups = by_seed(records)
    return _gain(groups.get((dataset, method), {}), groups.get((dataset, baseline), {}))


def by_seed(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, Mapping[str, Any]]]:
    """Scores of data set and row (`Cell.row`), by seed."""
    groups: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        cell = Cell(**record["cell"])
        groups.setdefault((cell.dataset, cell.row), {})[cell.seed] = record["scores"]["partitions"][0]
    return groups


def _gain(ours: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]]) -> Gain | None:
    seeds = sorted(set(ours) & set(baseline))
    for seed in seeds:
        if ours[seed]["fold_hash"] != baseline[seed]["fold_hash"]:
            raise UserError(
                f"records: those of seed {seed} are on different folds. Remove the older and compute it again."
            )
    if not seeds:
        return None
    return paired_gain([_percent(ours[seed]) for seed in seeds], [_percent(baseline[seed]) for seed in seeds])


def _percent(partition: Mapping[str, Any]) -> list[float]:
    return [100 * share for share in partition["accuracies"]]


def cells_of(row: Row) -> list[str]:
    """A row as text, under :data:`HEADER`."""
    paper = f"{row.paper.mean:.2f} ± {row.paper.std:.2f}" if row.paper else ""
    difference = f"{row.mean - row.paper.mean:+.2f}" if row.paper else ""
    gains = [with_interval(row.gains.get(name)) for name in UNTRAINED]
    return [row.dataset, row.name, with_deviation(row.mean, row.std), str(row.num_seeds), *gains, paper, difference]


UNTRAINED = ("untrained", "untrained_initial")
HEADER = [
    *("data", "method", "accuracy %", "seeds"),
    *("gain over untrained, calibrated (95 %)", "over untrained, as initialised"),
    *("paper", "difference"),
]


SETTING = (
    "Features are node labels alone, or a constant where there are none; JOAO() as it comes has attributes, too, and "
    "degrees where there are neither. C is chosen inside each training fold. Average: of the rows that have a figure "
    "on every data set. Average rank: of the places among the rows that the paper's table has, by our figures, over "
    "the data sets that the row has a figure on; equal figures share places."
)


def overview(table: Sequence[Row], left_open: Sequence[str] = ()) -> Overview:
    """One line a method, in the order of :data:`NAMES`, one column a data set.

    In the last columns are the average of the rows that have all data sets, and the average rank among the rows of the
    paper's table, see :func:`average_ranks`.
    """
    datasets = list(dict.fromkeys(row.dataset for row in table))
    cells = {(row.dataset, row.method): row for row in table}
    scores = {
        dataset: {row.method: row.mean for row in table if row.dataset == dataset and row.method in ROWS}
        for dataset in datasets
    }
    ranks = average_ranks(scores)
    place = {name: number for number, name in enumerate(NAMES)}
    methods = sorted(
        dict.fromkeys(row.method for row in table), key=lambda method: place.get(parted(method)[0], len(place))
    )
    names = {row.method: row.name for row in table}
    lines = {names[method]: [figure_of(cells.get((dataset, method))) for dataset in datasets] for method in methods}
    return Overview(
        title="Unsupervised: accuracy of an SVM on frozen embeddings",
        unit="accuracy %",
        columns=datasets,
        lines=lines,
        usual_seeds=5,
        last={
            "average": {name: average(line) for name, line in lines.items()},
            "average rank": {names[method]: _rank_cell(method, ranks) for method in methods},
        },
        notes=SETTING,
        left_open=left_open,
    )


class _Scored(Protocol):
    """What the rows of all protocols have."""

    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float | None: ...
    @property
    def num_seeds(self) -> int: ...
    @property
    def paper(self) -> Published | None: ...


def figure_of(row: _Scored | None) -> Figure | None:
    """A row of any protocol as a figure of its overview."""
    if row is None:
        return None
    return Figure(row.mean, row.std, row.num_seeds, row.paper.mean if row.paper else None)


def parted(row: str) -> tuple[str, str]:
    """The method of a row, and its variant.

    >>> parted("joao-twins")
    ('joao', 'twins')
    """
    method, _, variant = row.partition("-")
    return method, variant


def _rank_cell(method: str, ranks: Mapping[str, float]) -> str:
    if method not in ranks:
        return ""
    published = unsupervised_rank(method)
    return f"{ranks[method]:.1f}" + ("" if published is None else f" ({published:.1f})")


def with_deviation(mean: float, std: float | None) -> str:
    """
    >>> with_deviation(87.346, 1.02)
    '87.35 ± 1.02'
    """
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def with_interval(gain: Gain | None) -> str:
    """
    >>> with_interval(Gain(2.77, -1.66, 7.21))
    '+2.77 (-1.66 to +7.21)'
    """
    return "" if gain is None else f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    r"""A table as Markdown; a bar in a cell is no end of it.

    >>> print(markdown(["a", "b"], [["1", "2|3"]]))
    | a | b |
    | --- | --- |
    | 1 | 2\|3 |
    """
    marks = ["---"] * len(header)
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in [header, marks, *lines])
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
