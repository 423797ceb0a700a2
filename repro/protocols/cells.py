"""Parts that all protocols share: grids, options, and computing the missing cells of a table."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError, suggest
from joao.core.files import make_folder
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.runs.trained import TrainedEncoder
from repro.record_files import Record, RecordFile
from repro.tasks import Task, run_tasks


@cache
def load_grid(protocol: str) -> dict[str, Any]:
    """Read the ``grid.toml`` of a protocol: its rows, columns and settings."""
    return tomllib.loads((Path(__file__).parent / protocol / "grid.toml").read_text(encoding="utf-8"))


def check_known(kind: str, names: Iterable[Any], known: Sequence[Any]) -> None:
    """Raise an error if the user named something that the table does not have."""
    for name in names:
        if name not in known:
            raise UserError(f"unknown {kind} '{name}'. {suggest(str(name), [*map(str, known)])}")


@lru_cache(maxsize=1)
def dataset_of(name: str, data_root: str | None) -> Dataset:
    """Read a data set. The last one is kept in memory."""
    return read_whole(name, data_root)


@dataclass(frozen=True)
class RunOptions:
    """Where to find and write things, and how to compute.

    Attributes:
        records: folder of the records.
        data_root: folder of the data sets.
        device, precision: for training.
        jobs: number of processes with one thread each; None: one per core of a Ray cluster. The results do not depend
            on it.
        encoders: folder of pre-training runs, for tables that keep them. Interrupted runs are resumed.
        engine: ``local``, or ``ray``: a Ray cluster, whose machines must all see the records and data sets.
    """

    records: Path
    data_root: str | None = None
    device: str = "auto"
    precision: str = "32-true"
    jobs: int | None = 1
    encoders: Path = Path("runs")
    engine: str = "local"


Compute = Callable[[Task, RunOptions], Iterable[Record]]


def compute_and_write(
    compute: Compute[Task], works: Sequence[Task], options: RunOptions, file: Callable[[Path], RecordFile]
) -> Iterator[Task]:
    """Compute pieces of work, write each record as soon as it is done, and yield the piece.

    Args:
        compute: returns the records of a piece of work. Other processes must be able to import it.
        works: the pieces.
        options: see :class:`RunOptions`.
        file: returns the record file of a folder. Other processes must be able to import it.
    """
    make_folder(options.records)
    yield from run_tasks(partial(_compute_one, compute, file, options), works, options.jobs, options.engine)


def _compute_one(compute: Compute[Task], file: Callable[[Path], RecordFile], options: RunOptions, work: Task) -> None:
    for record in compute(work, options):
        file(options.records).write(record)


def training_facts(trained: TrainedEncoder) -> dict[str, Any]:
    """Return what a record says about a pre-training: the learned policy, the losses and the speed."""
    last = trained.metrics[-1]
    return {
        "policy": {
            "augmentations": list(trained.info.pool),
            "probabilities": last.probabilities,
            "pair losses": last.pair_losses,
            "drawn": trained.counts.tolist(),
        },
        "losses": [epoch.loss for epoch in trained.metrics],
        "graphs per second": float(np.median([epoch.graphs_per_second for epoch in trained.metrics])),
        **({"compiled core": trained.info.compiled} if trained.info.compiled else {}),
    }
