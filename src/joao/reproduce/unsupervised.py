"""The paper's unsupervised table."""

from __future__ import annotations

import dataclasses
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset
from joao.data.features import Features
from joao.errors import UserError, nearest
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.histogram import histogram
from joao.evaluation.statistics import chance_level
from joao.evaluation.svm import FoldScores, score_folds
from joao.evaluation.unsupervised import PartitionScores, Scores, evaluate_embeddings
from joao.experiment import pretrain, untrained
from joao.files import make_folder
from joao.recipe import Recipe, make_recipe
from joao.reproduce.processes import done_one_by_one
from joao.reproduce.records import check_origin, dataset_of, read_checked, write
from joao.scoring import BASELINES, classes_of, describe_data, origin


@dataclass(frozen=True)
class Cell:
    """One seed of one method on one data set."""

    dataset: str
    method: str
    seed: int
    inductive: bool = False

    def path(self, records: Path) -> Path:
        """Where its record lies."""
        kind = "-inductive" if self.inductive else ""
        return records / self.dataset / f"{self.method}{kind}-{self.seed}.json"


@cache
def grid() -> dict[str, Any]:
    """The recipe of the table."""
    return tomllib.loads((files("joao.recipes") / "unsupervised.toml").read_text(encoding="utf-8"))


def cells(datasets: Sequence[str] = (), methods: Sequence[str] = (), *, inductive: bool = False) -> list[Cell]:
    """The cells of the table, or of the named rows and columns; the baselines are always among them."""
    known_sets, known_methods = list(grid()["datasets"]), [*grid()["methods"], *BASELINES]
    for kind, given, known in (("data set", datasets, known_sets), ("method", methods, known_methods)):
        for name in given:
            if name not in known:
                raise UserError(f"reproduce: unknown {kind} '{name}'. {nearest(name, known)}")
    rows = [*BASELINES, *(methods or grid()["methods"])]
    columns = datasets or known_sets
    return [
        Cell(column, row, seed, inductive=inductive and row not in BASELINES)
        for column in dict.fromkeys(columns)
        for row in dict.fromkeys(rows)
        for seed in grid()["seeds"]
    ]


def cell_recipe(cell: Cell) -> Recipe:
    """The complete recipe of a cell's pre-training; that of JOAO for the baselines, which have its encoder."""
    table = grid()
    dataset = table["datasets"][cell.dataset]
    method = table["methods"]["joao" if cell.method in BASELINES else cell.method]
    training = {**table["recipe"]["training"], **method.get("training", {}), "seed": cell.seed}
    merged = {**table["recipe"], **method, "data": cell.dataset, "features": dataset["features"]}
    if method["method"] == "graphcl":
        merged["policy"] = {"name": "rule_pool", "pool": dataset["pool"]}
    return make_recipe({**merged, "training": training}, place=f"reproduce: {cell.method} on {cell.dataset}")


def compute(cell: Cell, dataset: Dataset, *, device: str = "auto") -> dict[str, Any]:
    """The record of a cell: pre-trains with its seed and scores on the partition of that number."""
    recipe = cell_recipe(cell)
    classes = classes_of(dataset)
    started = time.perf_counter()
    trained_facts: dict[str, Any] = {}
    if cell.inductive:
        scores = _inductive_scores(recipe, dataset, classes, device)
    else:
        embeddings, trained_facts = _embeddings(cell, recipe, dataset, device)
        trained_facts["seconds of pre-training"] = time.perf_counter() - started
        scores = evaluate_embeddings(embeddings, classes, class_names=dataset.class_names, partitions=[cell.seed])
    return {
        "cell": dataclasses.asdict(cell),
        "protocol": {
            "name": "unsupervised",
            "pre-training": "inductive: each training part"
            if cell.inductive
            else "transductive: all graphs, no labels",
        },
        "data": describe_data(dataset),
        "chance": chance_level(classes),
        "scores": scores.to_json(),
        "features": recipe.features,
        "recipe": None if cell.method == "histogram" else recipe.table(),
        **trained_facts,
        "seconds": time.perf_counter() - started,
        **origin(device),
    }


def _embeddings(cell: Cell, recipe: Recipe, dataset: Dataset, device: str) -> tuple[NDArray[Any], dict[str, Any]]:
    if cell.method == "histogram":
        return histogram(dataset), {}
    if cell.method in BASELINES:
        features = Features.fixed_on(dataset, recipe.features, recipe.max_degree)
        calibrated = cell.method == "untrained"
        return untrained(recipe, dataset, features, calibrated=calibrated, device=device).numpy(), {}
    trained = pretrain(recipe, dataset, device=device)
    last = trained.metrics[-1]
    rate = np.median([epoch.graphs_per_second for epoch in trained.metrics])
    return trained.embed(dataset).numpy(), {
        "policy": {
            "augmentations": list(trained.info.pool),
            "probabilities": last.probabilities,
            "pair losses": last.pair_losses,
            "drawn": trained.counts.tolist(),
        },
        "losses": [epoch.loss for epoch in trained.metrics],
        "graphs per second": float(rate),
    }


def _inductive_scores(recipe: Recipe, dataset: Dataset, classes: NDArray[np.int64], device: str) -> Scores:
    """Pre-trains on each training part alone, so that test graphs are new to the encoder too."""
    partition = recipe.training.seed
    parts = []
    shared = folds(classes, partition, class_names=dataset.class_names)
    for train, test in shared:
        trained = pretrain(recipe, dataset.subset(train), device=device)
        parts.append(score_folds(trained.embed(dataset).numpy(), classes, [(train, test)]))
    accuracies = tuple(part.accuracies[0] for part in parts)
    chosen = tuple(part.chosen_c[0] for part in parts)
    return Scores((PartitionScores(partition, fold_hash(shared), FoldScores(accuracies, chosen)),))


def compute_missing(
    missing: Sequence[Cell], records: Path, *, data_root: str | None, device: str = "auto", jobs: int = 1
) -> Iterator[Cell]:
    """Computes cells and writes their records, each as soon as it is there; yields the cell just done.

    Args:
        missing: the cells.
        records: the folder of records.
        data_root: where data sets lie.
        device: to train on.
        jobs: processes, one thread each; they do not change the result.
    """
    make_folder(records)
    compute_one = partial(_compute_one, records=records, data_root=data_root, device=device)
    yield from done_one_by_one(compute_one, missing, jobs)


def _compute_one(cell: Cell, records: Path, data_root: str | None, device: str) -> None:
    record = compute(cell, dataset_of(cell.dataset, data_root), device=device)
    write(cell.path(records), record)


def is_done(cell: Cell, records: Path) -> bool:
    """Whether a cell has a record; one that another recipe or other data made is told, not passed off as this."""
    path = cell.path(records)
    if not path.exists():
        return False
    recipe = None if cell.method == "histogram" else cell_recipe(cell).table()
    expected = {"cell": dataclasses.asdict(cell), "recipe": recipe}
    check_origin(path, read_record(path), expected, f"{cell.method} on {cell.dataset}")
    return True


def read_record(path: Path) -> dict[str, Any]:
    """A record that was written before."""

    def look(record: dict[str, Any]) -> None:
        Cell(**record["cell"])
        _ = record["scores"]["partitions"][0]["accuracies"], record["scores"]["partitions"][0]["fold_hash"]

    return read_checked(path, look)
