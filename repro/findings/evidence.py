"""Scores and shares from the records of all protocols, in the form in which the findings use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.core.pair_table import PairTable
from repro.protocols.semi_supervised import pairs
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.semi_supervised.table import at_strength
from repro.protocols.unsupervised import run as unsupervised
from repro.tables import paper
from repro.tables.records import FILES, read_records

Scores = dict[str, dict[str, dict[int, float]]]
Shares = Mapping[str, Sequence[Mapping[str, float]]]


@dataclass(frozen=True)
class Table:
    """Our scores and the paper's for one of its tables, in percent.

    Attributes:
        scores: by column, method and seed.
        paper: by column and method, for every column of the paper.
        paper_ranks: the paper's average ranks, by method.
        one_pretraining: whether the seeds of a method share one pre-training.
    """

    scores: Scores = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paper_ranks: Mapping[str, float] = field(default_factory=dict)
    one_pretraining: bool = False


@dataclass(frozen=True)
class Evidence:
    """All figures that the findings need.

    Attributes:
        unsupervised, transfer, ogb: columns are data sets, or "data set, rate %".
        few_labels: by label rate.
        strength: ablation of the strength; columns are "data set, rate %".
        shares: by protocol and data set, for each seed of JOAO the share of views of each augmentation.
        agreements: by data set, the gain of each pair and its share of JOAO's draws.
    """

    unsupervised: Table
    few_labels: Mapping[int, Table]
    strength: Table
    transfer: Table
    ogb: Table
    shares: Mapping[str, Shares]
    agreements: Mapping[str, pairs.Agreement]


RATES = (1, 10)


def read_evidence(results: Path) -> Evidence:
    """Read the records of a folder. Tables without records are empty."""
    found = {protocol: read_records(protocol, results) for protocol in FILES}
    frozen = [record for record in found["unsupervised"] if not unsupervised.Cell(**record["cell"]).variant]
    few = found["semi-supervised"]
    ten = [record for record in few if record["cell"]["label_rate"] == 10]  # the pre-training is that of 1 %, too
    in_table = set(semi_supervised.cells("strength"))
    ablation = [record for record in few if semi_supervised.Cell(**record["cell"]) in in_table]
    of_ogb = {
        f"{dataset}, {rate} %": figures
        for rate in RATES
        for dataset, figures in _papers(partial(paper.ogb, label_rate=rate)).items()
    }
    return Evidence(
        unsupervised=Table(
            _scores(frozen, dataset_column), _papers(paper.unsupervised), _ranks(paper.unsupervised_rank)
        ),
        few_labels={rate: _few_labels(few, rate) for rate in RATES},
        strength=Table(_scores(ablation, rate_column), _paper_of_strength()),
        transfer=Table(_scores(found["transfer"], dataset_column), _papers(paper.transfer), one_pretraining=True),
        ogb=Table(_scores(found["ogb"], rate_column), of_ogb, one_pretraining=True),
        shares={"unsupervised": _shares(frozen), "semi-supervised": _shares(ten)},
        agreements=pairs.agreements(few),
    )


def dataset_column(cell: Mapping[str, Any]) -> str:
    """Return the column of a cell: its data set."""
    return str(cell["dataset"])


def rate_column(cell: Mapping[str, Any]) -> str:
    """Return the column of a cell: its data set and label rate."""
    return f"{cell['dataset']}, {cell['label_rate']} %"


def _scores(records: Iterable[Mapping[str, Any]], column: Callable[[Mapping[str, Any]], str]) -> Scores:
    """Return scores by column, method and seed, in percent. All methods must use the same split for a seed."""
    scores: Scores = {}
    splits: dict[tuple[str, int], str] = {}
    for record in records:
        name, method = column(record["cell"]), record["cell"]["method"]
        for seed, score, split in _by_seed(record):
            if splits.setdefault((name, seed), split) != split:
                raise UserError(
                    f"records: {method} on {name}, seed {seed}: the split differs from that of other methods. "
                    "Remove the older record and compute it again."
                )
            scores.setdefault(name, {}).setdefault(method, {})[seed] = 100 * float(score)
    return scores


def _by_seed(record: Mapping[str, Any]) -> list[tuple[int, float, str]]:
    """Return seed, score and hash of the split, for records of one seed (mean over folds) or of all seeds."""
    scores = record["scores"]
    if "test" in scores:
        return [(seed, score, record["split_hash"]) for seed, score in zip(scores["seed"], scores["test"], strict=True)]
    if "partitions" in scores:
        accuracies, split = scores["partitions"][0]["accuracies"], scores["partitions"][0]["fold_hash"]
    else:
        accuracies, split = scores["accuracy"], record["split_hash"]
    return [(record["cell"]["seed"], float(np.mean(accuracies)), split)]


def _few_labels(records: Sequence[Mapping[str, Any]], rate: int) -> Table:
    own = [record for record in records if record["cell"]["label_rate"] == rate]
    return Table(
        _scores(own, dataset_column),
        _papers(partial(paper.semi_supervised, label_rate=rate)),
        _ranks(partial(paper.semi_supervised_rank, label_rate=rate)),
    )


def _papers(cell: Callable[[str, str], paper.Published | None]) -> dict[str, dict[str, float]]:
    """Return the paper's figures by data set and method."""
    found = {
        dataset: {method: figure.mean for method in paper.ROWS if (figure := cell(method, dataset))}
        for dataset in paper.COLUMNS
    }
    return {dataset: figures for dataset, figures in found.items() if figures}


def _paper_of_strength() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for cell in semi_supervised.cells("strength"):
        if figure := at_strength(cell.method, cell.dataset):
            found.setdefault(rate_column(vars(cell)), {})[cell.method] = figure.mean
    return found


def _ranks(rank: Callable[[str], float | None]) -> dict[str, float]:
    return {method: found for method in paper.ROWS if (found := rank(method)) is not None}


def _shares(records: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for record in records:
        if record["cell"]["method"] == "joao" and "policy" in record:
            table = PairTable.of(record["policy"]["augmentations"], record["policy"]["drawn"])
            found.setdefault(record["cell"]["dataset"], []).append(table.by_augmentation())
    return found
