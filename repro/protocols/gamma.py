"""The paper's Figure 2: training curves of JOAO for several gamma.

Every record is one pre-training by the recipe of the unsupervised table with another ``gamma``: the weight of the
prior. Nothing is scored, so no labels are looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joao.config.recipe import Part, Recipe
from joao.data.dataset import Dataset
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from repro.protocols.cells import Record, Where, check_known, compute_and_write, dataset_of, has_record, read_checked
from repro.protocols.unsupervised import run as unsupervised

DATASETS = ("NCI1", "PROTEINS")
GAMMAS = (0.01, 0.1, 1.0, 10.0)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Cell:
    """One seed of one gamma on one data set."""

    dataset: str
    gamma: float
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset} gamma {self.gamma:g} seed {self.seed}"

    def path(self, records: Path) -> Path:
        """Where its record lies."""
        return records / self.dataset / f"gamma-{self.gamma:g}-{self.seed}.json"


def cells(datasets: Sequence[str] = ()) -> list[Cell]:
    """The cells of the figure, or those of other data sets of the unsupervised table."""
    check_known("data set", datasets, list(unsupervised.grid()["datasets"]))
    return [Cell(name, gamma, seed) for name in datasets or DATASETS for gamma in GAMMAS for seed in SEEDS]


def cell_recipe(cell: Cell) -> Recipe:
    """JOAO's recipe of the unsupervised table, but for gamma."""
    recipe = unsupervised.cell_recipe(unsupervised.Cell(cell.dataset, "joao", cell.seed))
    assert recipe is not None  # JOAO has an encoder
    return dataclasses.replace(recipe, policy=Part(recipe.policy.name, {**recipe.policy.options, "gamma": cell.gamma}))


def compute(cell: Cell, dataset: Dataset, *, device: str = "auto") -> Record:
    """The record of a cell: what every epoch showed."""
    trained = pretrain(cell_recipe(cell), dataset, device=device)
    return {
        "cell": dataclasses.asdict(cell),
        "data": describe_data(dataset),
        "recipe": trained.recipe.table(),
        "augmentations": list(trained.info.pool),
        "losses": [epoch.loss for epoch in trained.metrics],
        "probabilities": [epoch.probabilities for epoch in trained.metrics],
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        **provenance(device),
    }


def compute_missing(missing: Sequence[Cell], where: Where) -> Iterator[Cell]:
    """Computes cells and writes their records, each as soon as it is there; yields the cell just done."""
    return compute_and_write(_records_of, missing, where)


def _records_of(cell: Cell, where: Where) -> dict[Cell, Record]:
    return {cell: compute(cell, dataset_of(cell.dataset, where.data_root), device=where.device)}


def is_done(cell: Cell, records: Path) -> bool:
    """Whether a cell has a record; one that another recipe made is told."""
    expected = {"cell": dataclasses.asdict(cell), "recipe": cell_recipe(cell).table()}
    return has_record(cell.path(records), read_record, expected, f"gamma {cell.gamma:g} on {cell.dataset}")


def read_record(path: Path) -> dict[str, Any]:
    """A record that was written before."""

    def look(record: dict[str, Any]) -> None:
        Cell(**record["cell"])
        _ = [float(loss) for loss in record["losses"]]
        _ = len(record["probabilities"][-1]), record["augmentations"]

    return read_checked(path, look)
