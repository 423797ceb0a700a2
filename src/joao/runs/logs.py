"""Logs of a training for other programs: TensorBoard, a table, or any logger of Lightning Fabric."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from joao.core.errors import UserError, suggest
from joao.runs.folder import LOG_FOLDERS, Run
from joao.training.metrics import EpochMetrics

OnEpoch = Callable[[EpochMetrics], None]


@runtime_checkable
class Logger(Protocol):
    """What is asked of a logger; those of Lightning Fabric have it."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None: ...

    def finalize(self, status: str) -> None: ...


def check_loggers(loggers: Sequence[Any], folder: Path | None) -> None:
    """Refuses names of logs that are not known, lack their package or have no run to be written into."""
    for each in loggers:
        if not isinstance(each, str):
            if not isinstance(each, Logger):
                raise UserError(f"log: {each!r} is no logger: it must have log_metrics and finalize, as Fabric's have.")
        elif each not in LOG_FOLDERS:
            raise UserError(f"log: unknown log '{each}'. {suggest(each, LOG_FOLDERS)}")
        elif folder is None:
            raise UserError(f"log: '{each}' is written into the folder of a run. Without one, give a logger as object.")
        elif each == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
            raise UserError("log: tensorboard is not installed. Install it (pip install tensorboard) or use csv.")


def find_logs(folder: Path) -> list[str]:
    """The logs by name that a run has been written to, which it goes on with."""
    return [name for name in LOG_FOLDERS if (folder / name).is_dir()]


@contextmanager
def log_epochs(
    on_epoch: OnEpoch, loggers: Sequence[Logger | str], pool: Sequence[str], folder: Path | None
) -> Iterator[OnEpoch]:
    """A function that tells loggers, and then ``on_epoch``, what an epoch showed. At the end loggers are finalised.

    Args:
        on_epoch: told last.
        loggers: objects, or names of logs in ``folder``, which begin with its first epoch or go on from where it is.
        pool: the names of the augmentations, in the order of the tables.
        folder: of the run.
    """
    opened: list[Logger] = []

    def tell(epoch: EpochMetrics) -> None:
        if not opened:
            opened.extend(_open(each, folder, epoch, pool) if isinstance(each, str) else each for each in loggers)
        for logger in opened:
            logger.log_metrics(scalars(epoch, pool), step=epoch.epoch)
        on_epoch(epoch)

    status = "failed"
    try:
        yield tell
        status = "success"
    finally:
        for logger in opened:
            logger.finalize(status)


def scalars(epoch: EpochMetrics, pool: Sequence[str]) -> dict[str, float]:
    """What an epoch showed as numbers by name: loss, rate, and every pair's probability and loss.

    >>> epoch = EpochMetrics(1, 2.5, [[0.75, 0.25], [0.0, 0.0]], None, [[3, 1], [0, 0]], 0.1, 40.0)
    >>> [name for name, value in scalars(epoch, ["node_drop", "identity"]).items() if value == 0.25]
    ['probability/node_drop-identity']
    """
    found = {"loss": epoch.loss, "graphs_per_second": epoch.graphs_per_second}
    names = [re.sub(r"[^\w.]+", "_", name).strip("_") for name in pool]  # TensorBoard takes few other signs
    for kind, table in {"probability": epoch.probabilities, "pair_loss": epoch.pair_losses}.items():
        if table is not None and len(pool) > 1:
            for first, row in zip(names, table, strict=True):
                found |= {f"{kind}/{first}-{second}": value for second, value in zip(names, row, strict=True)}
    return found


def _open(name: str, folder: Path | None, epoch: EpochMetrics, pool: Sequence[str]) -> Logger:
    """A log of a run, without the epochs from ``epoch`` on, which a resumed run trains again."""
    try:
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger
    except ImportError:  # the same code inside the larger package
        from lightning.fabric.loggers.csv_logs import CSVLogger  # type: ignore[no-redef]
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger  # type: ignore[no-redef]
    assert folder is not None  # or it was refused
    if name == "tensorboard":
        board: Logger = TensorBoardLogger(folder, name="", version=name, purge_step=epoch.epoch)
        return board
    (folder / name / "metrics.csv").unlink(missing_ok=True)  # Fabric's begins anew, too, but warns
    table: Logger = CSVLogger(folder, name="", version=name, flush_logs_every_n_steps=1)
    for before in Run.open(folder).metrics(epoch.epoch - 1):
        table.log_metrics(scalars(before, pool), step=before.epoch)
    return table
