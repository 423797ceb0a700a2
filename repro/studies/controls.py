"""Does it matter which distribution of pairs JOAO learned? Other distributions on the same seeds and folds.

    OMP_NUM_THREADS=1 python -m repro.studies.controls --data MUTAG,PROTEINS --jobs 2

Reads JOAO's records of the unsupervised table and pre-trains again, everything else being equal, with its final table

- frozen: from the first epoch on;
- permuted: with the names of the augmentations exchanged at random, none of them keeping its place;
- opposite: with the largest probability where the smallest was, and so on.

Uniform pairs have records already. Cells that have a record are skipped.
"""

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.config.recipe import make_recipe
from joao.evaluation.tables import markdown, with_deviation, with_interval
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid, record_file
from repro.protocols.unsupervised.table import gain_between, rows
from repro.record_files import RECORDS, Record
from repro.studies.common import generated, make_page, parse_options, score_rows, write_page
from repro.tasks import run_tasks

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
    reversed_table = np.empty(table.size)
    reversed_table[order] = table.ravel()[order[::-1]]
    return reversed_table.reshape(table.shape)


CONTROLS = {each.__name__: each for each in (frozen, permuted, opposite)}


def compute(cell: Cell, folder: Path, device: str) -> None:
    """Compute a control and write its record."""
    started = time.perf_counter()
    learned = record_file(RECORDS)[Cell(cell.dataset, "joao", cell.seed).key]["policy"]["probabilities"]
    recipe = cell_recipe(Cell(cell.dataset, "joao", cell.seed))
    assert recipe is not None
    table = CONTROLS[cell.method](np.array(learned), cell.seed)
    recipe = make_recipe({**recipe.table(), "policy": {"name": "given", "table": table.tolist()}})
    dataset = dataset_of(cell.dataset, None)
    rows_of = pretrain(recipe, dataset, device=device).embed(dataset).numpy()
    scores = score_rows(rows_of, dataset, cell.seed, device)
    facts = {"cell": dataclasses.asdict(cell), "data": describe_data(dataset), "recipe": recipe.table()}
    record = {**facts, "scores": scores.to_json(), "seconds": time.perf_counter() - started, **provenance(device)}
    record_file(folder, "controls").write(record)


def page(records: list[dict[str, Any]]) -> str:
    """Return the page: one line per data set with all controls, and one for the mean."""
    table = {(row.dataset, row.method): row for row in rows(records)}
    datasets = [name for name in grid()["datasets"] if all((name, way) in table for way in SHOWN)]
    lines = []
    for name in datasets:
        accuracies = [with_deviation(table[name, way].mean, table[name, way].std) for way in SHOWN]
        gains = [gain_between(records, name, "joao", way) for way in SHOWN[1:]]
        lines.append([name, *accuracies, *map(with_interval, gains)])
    means = [f"{np.mean([table[name, way].mean for name in datasets]):.2f}" for way in SHOWN]
    lines.append(["mean", *means, *(f"{float(means[0]) - float(mean):+.2f}" for mean in means[1:])])
    header = ["data", *SHOWN, *(f"joao - {way} (95 % CI)" for way in SHOWN[1:])]
    return make_page(
        "Does the learned distribution of pairs matter?",
        f"{generated('controls', intervals=True)} Accuracy in percent of an SVM on frozen embeddings, five seeds. Frozen: JOAO's final "
        "table of pairs from the first epoch on. Permuted: with the names of the augmentations exchanged. Opposite: with the "
        "largest probability where the smallest was.",
        markdown(header, lines),
    )


def main() -> None:
    given = parse_options(__doc__, data=",".join(grid()["datasets"]), jobs=1, device="cpu")
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
