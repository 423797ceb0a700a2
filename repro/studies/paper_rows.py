"""Makes the records of rows that the paper has in another form than we had: `repro/decision-rules.md`, 2026-11-17.

Augmentations by GraphCL's pools, MVGRL with NT-Xent, and single pairs on COLLAB and REDDIT-BINARY, in this order.
The records are those of ``python -m repro semi-supervised``, ``unsupervised`` and ``pairs``; this command knows the
precision of each data set, makes all of them in one run and stops after a given time. Cells with a record, in ``OUT``
or in the repository, are skipped, so that a second run continues the first.

Run: python -m repro.studies.paper_rows OUT --minutes 6 --jobs 15
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

from joao.config.recipe import POOL
from joao.core.errors import UserError
from joao.training.device import pick_device
from repro.protocols.cells import RunOptions, dataset_of
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import RECORDS
from repro.tasks import run_tasks

TF32 = ("NCI1", "PROTEINS", "COLLAB")  # on a GPU, as the other rows of these columns; the others: bf16-mixed
SLOW_FIRST = ("COLLAB", "REDDIT-MULTI-5K", "REDDIT-BINARY", "DD", "NCI1", "PROTEINS", "IMDB-BINARY", "MUTAG")
PAIRS_ON = ("COLLAB", "REDDIT-BINARY")

Task = semi_supervised.Work | unsupervised.Cell


def augmentation_tasks(data: Sequence[str]) -> list[Task]:
    """Augmentations only: one task per data set and seed, for all label rates."""
    columns = [name for name in SLOW_FIRST if name in data and name in semi_supervised.grid()["datasets"]]
    cells = [
        cell
        for cell in semi_supervised.cells("semi_supervised", columns, ["augmentations"])
        if cell.method == "augmentations"
    ]
    return sorted(semi_supervised.works(cells), key=lambda work: SLOW_FIRST.index(work.dataset))


def last_epoch_tasks(data: Sequence[str]) -> list[Task]:
    """All labelled graphs to the last epoch: the rule of 2026-11-18 for few labels."""
    cells = [cell for cell in semi_supervised.cells("last_epoch") if cell.dataset in data]
    chosen = [cell for cell in cells if semi_supervised.keeps_last_epoch(cell.method)]
    return sorted(semi_supervised.works(chosen), key=lambda work: SLOW_FIRST.index(work.dataset))


def mvgrl_tasks(data: Sequence[str]) -> list[Task]:
    columns = [name for name in SLOW_FIRST if name in data]
    return [cell for cell in unsupervised.cells(columns, ["mvgrl_nt_xent"]) if cell.method == "mvgrl_nt_xent"]


def pair_tasks(data: Sequence[str]) -> list[Task]:
    """Seed 0: the 15 unordered pairs of both sets in turn, then the reversed ones."""
    ordered = sorted(semi_supervised.PAIRS, key=lambda pair: is_reversed(*semi_supervised.PAIRS[pair]))
    by_set = [[semi_supervised.Work(name, pair, 0, (10,)) for pair in ordered] for name in PAIRS_ON if name in data]
    return [work for work in chain.from_iterable(zip_longest(*by_set)) if work is not None]


def is_reversed(first: str, second: str) -> bool:
    return POOL.index(first) > POOL.index(second)


def missing_part(task: Task, folders: Sequence[Path]) -> Task | None:
    """Return the task without the cells that have a record in one of the folders; None if nothing is left."""
    if isinstance(task, unsupervised.Cell):
        return None if any(unsupervised.is_done(task, folder) for folder in folders) else task
    left = [cell for cell in task.cells() if not any(semi_supervised.is_done(cell, folder) for folder in folders)]
    return replace(task, label_rates=tuple(cell.label_rate for cell in left)) if left else None


def compute(options: RunOptions, task: Task) -> None:
    """Compute a task and write its records. A task that fails is reported, and the others go on."""
    started = time.perf_counter()
    outcome = "done"
    try:
        dataset = dataset_of(task.dataset, options.data_root)
        if isinstance(task, unsupervised.Cell):
            unsupervised.record_file(options.records).write(unsupervised.compute(task, dataset, device=options.device))
        else:
            precision = "32-true"
            if pick_device(options.device).type == "cuda":
                precision = "tf32" if task.dataset in TF32 else "bf16-mixed"
            records = semi_supervised.compute(task, dataset, device=options.device, precision=precision)
            semi_supervised.record_file(options.records).write(*records)
    except (UserError, RuntimeError) as error:  # of torch: also when memory is short
        outcome = f"failed ({error})"
    seconds = time.perf_counter() - started
    print(f"{task.dataset} {task.method} {task.seed}: {outcome} after {seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the new records")
    parser.add_argument("--parts", default="augmentations,mvgrl,pairs")
    parser.add_argument("--data", default=",".join(SLOW_FIRST))
    parser.add_argument("--data-root")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, help="stop then; unfinished cells are lost", default=None)
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    parts = {
        "augmentations": augmentation_tasks,
        "mvgrl": mvgrl_tasks,
        "pairs": pair_tasks,
        "last_epoch": last_epoch_tasks,
    }
    wanted = [task for part in given.parts.split(",") for task in parts[part](given.data.split(","))]
    left = [missing_part(task, (given.out, RECORDS)) for task in wanted]
    tasks = [task for task in left if task is not None]
    print(f"{len(tasks)} of {len(wanted)} tasks to do.", flush=True)
    if given.minutes is not None:
        # Records are written as whole files, and worker processes end with this one.
        timer = threading.Timer(60 * given.minutes, lambda: (print("Time is up.", flush=True), os._exit(0)))
        timer.daemon = True
        timer.start()
    options = RunOptions(given.out, given.data_root, given.device)
    for number, _ in enumerate(run_tasks(partial(compute, options), tasks, given.jobs), 1):
        if number % 10 == 0 or number == len(tasks):
            print(f"{number} of {len(tasks)} tasks after {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
