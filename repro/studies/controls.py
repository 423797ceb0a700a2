"""Does it matter which table JOAO learned? Other tables on the same seeds and folds.

    OMP_NUM_THREADS=1 python studies/controls.py results/controls results/controls.md --data MUTAG,PROTEINS --jobs 2

Reads JOAO's records of `joao reproduce unsupervised` and pre-trains again, all else equal, with its final table

- frozen: from the first epoch on;
- permuted: the augmentations' names exchanged at random, by the seed, each for another one;
- opposite: the largest probability where the smallest was, and so on.

The uniform law's records are there already. What has a record is not computed again; the page is made of all there are.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.config.recipe import make_recipe
from joao.core.processes import run_tasks
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.tables import markdown, with_deviation
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance, require_classes
from joao.training.device import pick_device
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid, record_file
from repro.protocols.unsupervised.table import gain_between, rows
from repro.record_files import RECORDS, Record
from repro.studies.common import write_page

SHOWN = ("joao", "uniform", "frozen", "permuted", "opposite")

Table = NDArray[np.float64]


def frozen(table: Table, seed: int) -> Table:
    return table


def permuted(table: Table, seed: int) -> Table:
    draws = np.random.default_rng(seed)
    size = len(table)
    while True:
        order = draws.permutation(size)
        if not np.any(order == np.arange(size)):
            return table[np.ix_(order, order)]


def opposite(table: Table, seed: int) -> Table:
    order = table.ravel().argsort(kind="stable")
    turned = np.empty(table.size)
    turned[order] = table.ravel()[order[::-1]]
    return turned.reshape(table.shape)


CONTROLS = {each.__name__: each for each in (frozen, permuted, opposite)}


def compute(cell: Cell, folder: Path, device: str) -> None:
    """Writes the record of a control."""
    started = time.perf_counter()
    learned = record_file(RECORDS)[Cell(cell.dataset, "joao", cell.seed).key]["policy"]["probabilities"]
    recipe = cell_recipe(Cell(cell.dataset, "joao", cell.seed))
    assert recipe is not None
    table = CONTROLS[cell.method](np.array(learned), cell.seed)
    recipe = make_recipe({**recipe.table(), "policy": {"name": "given", "table": table.tolist()}})
    dataset = dataset_of(cell.dataset, None)
    rows_of = pretrain(recipe, dataset, device=device).embed(dataset).numpy()
    scores = evaluate_embeddings(
        rows_of,
        require_classes(dataset),
        class_names=dataset.class_names,
        partitions=[cell.seed],
        device=pick_device(device).type,
    )
    facts = {"cell": dataclasses.asdict(cell), "data": describe_data(dataset), "recipe": recipe.table()}
    record = {**facts, "scores": scores.to_json(), "seconds": time.perf_counter() - started, **provenance(device)}
    record_file(folder, "controls").write(record)


def page(records: list[dict[str, Any]]) -> str:
    """A line for each data set that has all controls, and one for their mean."""
    table = {(row.dataset, row.method): row for row in rows(records)}
    datasets = [name for name in grid()["datasets"] if all((name, way) in table for way in SHOWN)]
    lines = []
    for name in datasets:
        accuracies = [with_deviation(table[name, way].mean, table[name, way].std) for way in SHOWN]
        gains = [gain_between(records, name, "joao", way) for way in SHOWN[1:]]
        lines.append(
            [name, *accuracies, *(f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})" for gain in gains if gain)]
        )
    means = [f"{np.mean([table[name, way].mean for name in datasets]):.2f}" for way in SHOWN]
    lines.append(["mean", *means, *(f"{float(means[0]) - float(mean):+.2f}" for mean in means[1:])])
    header = ["data", *SHOWN, *(f"joao less {way} (95 %)" for way in SHOWN[1:])]
    return (
        "\n\n".join(
            [
                "# Does the learned table matter?",
                "Made from the records in `controls` and `unsupervised` by `python studies/controls.py`; not to be edited. Accuracy % of an "
                "SVM on frozen embeddings, five seeds. Frozen: JOAO's final table from the first epoch on. Permuted: with the "
                "augmentations' names exchanged. Opposite: the largest probability where the smallest was.",
                markdown(header, lines),
            ]
        )
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Controls of the learned table.")
    parser.add_argument("--data", default=",".join(grid()["datasets"]))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    wanted = [Cell(name, way, seed) for name in given.data.split(",") for way in CONTROLS for seed in grid()["seeds"]]
    missing = [cell for cell in wanted if record_file(RECORDS, "controls").get(cell.key) is None]
    for cell in run_tasks(partial(compute, folder=RECORDS, device=given.device), missing, given.jobs):
        print(cell.dataset, cell.method, cell.seed, flush=True)
    write_page("controls", page(read_all()))


def read_all() -> list[Record]:
    """Return the records of the controls and of the rows that they are compared with."""
    table = [each for each in record_file(RECORDS).read() if each["cell"]["method"] in ("joao", "uniform")]
    return [each for each in table if not Cell(**each["cell"]).variant] + record_file(RECORDS, "controls").read()


if __name__ == "__main__":
    main()
