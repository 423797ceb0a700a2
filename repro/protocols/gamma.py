"""The paper's Figure 2: training curves of JOAO for several values of gamma.

Each record is one pre-training with the recipe of the unsupervised table and another ``gamma``, the weight of the
prior. Nothing is scored and no labels are used.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joao.config.recipe import Part, Recipe
from joao.core.plots import COLOURS, DASHES, new_figure, write_picture
from joao.core.registry import make_record
from joao.data.dataset import Dataset
from joao.evaluation.tables import markdown
from joao.report.scores import effective_pairs
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from repro.protocols.cells import RunOptions, check_known, compute_and_write, dataset_of
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import Record, RecordFile

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

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.dataset}/gamma-{self.gamma:g}-{self.seed}"


def cells(datasets: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of the figure, or those of other data sets of the unsupervised table."""
    check_known("data set", datasets, list(unsupervised.grid()["datasets"]))
    return [Cell(name, gamma, seed) for name in datasets or DATASETS for gamma in GAMMAS for seed in SEEDS]


def cell_recipe(cell: Cell) -> Recipe:
    """Return JOAO's recipe of the unsupervised table with another gamma."""
    recipe = unsupervised.cell_recipe(unsupervised.Cell(cell.dataset, "joao", cell.seed))
    assert recipe is not None  # JOAO has an encoder
    return dataclasses.replace(recipe, policy=Part(recipe.policy.name, {**recipe.policy.options, "gamma": cell.gamma}))


def compute(cell: Cell, dataset: Dataset, *, device: str = "auto") -> Record:
    """Pre-train and return the record of a cell, with losses and probabilities of every epoch."""
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


def compute_missing(missing: Sequence[Cell], options: RunOptions) -> Iterator[Cell]:
    """Compute cells and write their records, each as soon as it is done; yield the cell just done."""
    return compute_and_write(_records_of, missing, options, record_file)


def _records_of(cell: Cell, options: RunOptions) -> list[Record]:
    return [compute(cell, dataset_of(cell.dataset, options.data_root), device=options.device)]


def record_file(folder: Path) -> RecordFile:
    """Return the records of the figure."""
    return RecordFile(folder / "gamma.jsonl", _key)


def _key(record: Record) -> str:
    _ = [float(loss) for loss in record["losses"]]
    _ = len(record["probabilities"][-1]), record["augmentations"]
    return make_record(Cell, record["cell"], "cell").key


def is_done(cell: Cell, records: Path) -> bool:
    """Return whether a cell has a record. A record of another recipe is an error."""
    expected = {"recipe": cell_recipe(cell).table()}
    return record_file(records).is_current(cell.key, expected, f"gamma {cell.gamma:g} on {cell.dataset}")


def draw_figure_2(records: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Draw the loss by epoch for several gamma, one panel per data set: means over seeds, with minimum and maximum.

    Args:
        records: the records of the figure.
        stem: path of the files to write, without suffix.
    """
    losses: dict[str, dict[float, list[list[float]]]] = {}
    for record in records:
        cell = record["cell"]
        losses.setdefault(cell["dataset"], {}).setdefault(cell["gamma"], []).append(record["losses"])
    with new_figure(3.6 * len(losses), 2.8) as figure:
        for axes, (dataset, by_gamma) in zip(
            figure.subplots(1, len(losses), squeeze=False)[0], losses.items(), strict=True
        ):
            for number, (gamma, curves) in enumerate(sorted(by_gamma.items())):
                values = np.array(curves)
                epochs = np.arange(1, values.shape[1] + 1)
                look = {"color": COLOURS[number % len(COLOURS)]}
                axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), alpha=0.15, lw=0, **look)
                axes.plot(epochs, values.mean(axis=0), DASHES[number % len(DASHES)], label=f"γ = {gamma:g}", **look)
            axes.set_title(dataset)
            axes.set_xlabel("epoch")
            axes.set_ylabel("contrastive loss")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend()
        return write_picture(figure, stem)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: last loss, and how much the probabilities change between epochs, as means over seeds.

    A change is the total variation distance, from 0 (no change) to 1 (entirely different pairs).
    """
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["cell"]["dataset"], record["cell"]["gamma"]), []).append(record)
    lines = []
    for (dataset, gamma), own in groups.items():
        tables = [np.array(record["probabilities"]) for record in own]
        figures = [
            [record["losses"][-1] for record in own],
            [effective_pairs(table[-1]) for table in tables],
            *([np.abs(table[lag:] - table[:-lag]).sum((1, 2)).mean() / 2 for table in tables] for lag in (1, 2)),
        ]
        loss, pairs, one, two = (float(np.mean(values)) for values in figures)
        lines.append([dataset, f"{gamma:g}", str(len(own)), f"{loss:.3f}", f"{pairs:.1f}", f"{one:.2f}", f"{two:.2f}"])
    header = [
        "data",
        "gamma",
        "seeds",
        "last loss",
        "effective pairs at the end",
        "change per epoch",
        "change per two epochs",
    ]
    heading = (
        "# JOAO for several values of gamma\n\nGenerated from `repro/records` by `python -m repro docs`. Do not edit.\n"
        "Compute: `python -m repro figure-2`. Changes are total variation distances.\n\n"
    )
    return heading + markdown(header, lines) + "\n"
