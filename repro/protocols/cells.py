"""What the tables share: their recipes, the records of their cells, as files, and the data they are of."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError, suggest
from joao.core.files import make_folder, write_json
from joao.core.processes import Work, run_tasks
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.runs.trained import TrainedEncoder

Record = dict[str, Any]


@cache
def recipe_of_table(name: str) -> dict[str, Any]:
    """What the package says of a table's rows, columns and settings."""
    return tomllib.loads((Path(__file__).parent / name / "grid.toml").read_text(encoding="utf-8"))


def check_known(kind: str, given: Iterable[Any], known: Sequence[Any]) -> None:
    """Names that a user gave must be of the table."""
    for name in given:
        if name not in known:
            raise UserError(f"reproduce: unknown {kind} '{name}'. {suggest(str(name), [*map(str, known)])}")


@lru_cache(maxsize=1)
def dataset_of(name: str, data_root: str | None) -> Dataset:
    """The graphs of a cell; those of the last one are kept."""
    return read_whole(name, data_root)


@dataclass(frozen=True)
class Where:
    """Where the records, data and encoders of a table lie, and what to compute with.

    Attributes:
        records: the folder of records.
        data_root: where data sets lie.
        device, precision: to train with.
        jobs: processes, one thread each; they do not change the result.
        encoders: the folder of runs, for tables that keep their pre-trained encoders; one that was interrupted goes on.
    """

    records: Path
    data_root: str | None = None
    device: str = "auto"
    precision: str = "32-true"
    jobs: int = 1
    encoders: Path = Path("runs")


def compute_and_write(
    compute: Callable[[Work, Where], Mapping[Any, Record]], works: Sequence[Work], where: Where
) -> Iterator[Work]:
    """Computes works and writes the records of their cells, each as soon as it is there; yields the work just done.

    Args:
        compute: gives the records of a work by cell; a function that other processes can import.
        works: the pieces.
        where: see :class:`Where`.
    """
    make_folder(where.records)
    yield from run_tasks(partial(_compute_one, compute, where), works, where.jobs)


def _compute_one(compute: Callable[[Work, Where], Mapping[Any, Record]], where: Where, work: Work) -> None:
    for cell, record in compute(work, where).items():
        write(cell.path(where.records), record)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record, and the folder around it."""
    make_folder(path.parent)
    write_json(path, record)


def read_checked(path: Path, look: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A record that was written before; ``look`` reads what must be in it."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        look(record)
        return record
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file.") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path}: is not a record ({error}). Remove it to compute it again.") from error


def has_record(path: Path, read: Callable[[Path], Mapping[str, Any]], expected: Mapping[str, Any], what: str) -> bool:
    """Whether there is a record; one that another recipe made is told, not passed off as that of ``what``."""
    if not path.exists():
        return False
    record = read(path)
    for key, value in expected.items():
        if record.get(key) != json.loads(json.dumps(value)):
            raise UserError(f"{path}: was made by another recipe than {what} has now. Remove it.")
    return True


def learned(trained: TrainedEncoder) -> dict[str, Any]:
    """What a pre-training learned beside the encoder, and how it went."""
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
    }
