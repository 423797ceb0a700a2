"""Training logs for other programs: TensorBoard, CSV, or any logger of Lightning Fabric."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from joao.core.errors import UserError, short_repr, suggest
from joao.runs.folder import LOG_FOLDERS, Run
from joao.training.metrics import EpochMetrics

OnEpoch = Callable[[EpochMetrics], None]


@runtime_checkable
class Logger(Protocol):
    """The interface of a logger, as in Lightning Fabric."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None: ...

    def finalize(self, status: str) -> None: ...


def check_loggers(loggers: Sequence[Any], folder: Path | None) -> None:
    """Raise an error for unknown logs, missing packages, and logs by name without a run folder."""
    if not isinstance(loggers, list | tuple):
        raise UserError(f"log: expected a list of loggers, got {short_repr(loggers)}.")
    for each in loggers:
        if not isinstance(each, str):
            if not isinstance(each, Logger):
                raise UserError(f"log: expected an object with log_metrics and finalize, got {short_repr(each)}.")
        elif each not in LOG_FOLDERS:
            raise UserError(f"log: unknown log '{each}'. {suggest(each, LOG_FOLDERS)}")
        elif folder is None:
            raise UserError(f"log: '{each}' needs a run folder. Without a folder, pass a logger object.")
        elif each == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
            raise UserError("log: tensorboard is not installed. Run 'pip install tensorboard' or use csv.")


def find_logs(folder: Path) -> list[str]:
    """List the logs in a run folder, which a resumed run continues."""
    return [name for name in LOG_FOLDERS if (folder / name).is_dir()]


@contextmanager
def log_epochs(
    on_epoch: OnEpoch, loggers: Sequence[Logger | str], pool: Sequence[str], folder: Path | None
) -> Iterator[OnEpoch]:
    """Yield a function that passes the metrics of an epoch to all loggers and ``on_epoch``; finally close the loggers.

    ``loggers`` are objects, or names of logs in the run ``folder``, which are continued.
    """
    opened: list[Logger] = []

    def log(epoch: EpochMetrics) -> None:
        if not opened:
            opened.extend(_open(each, folder, epoch, pool) if isinstance(each, str) else each for each in loggers)
        for logger in opened:
            logger.log_metrics(scalars(epoch, pool), step=epoch.epoch)
        on_epoch(epoch)

    status = "failed"
    try:
        yield log
        status = "success"
    finally:
        for logger in opened:
            logger.finalize(status)


def scalars(epoch: EpochMetrics, pool: Sequence[str]) -> dict[str, float]:
    """Flatten the metrics of an epoch: loss, graphs per second, probability and loss of every pair.

    >>> epoch = EpochMetrics(1, 2.5, [[0.75, 0.25], [0.0, 0.0]], None, [[3, 1], [0, 0]], 0.1, 40.0)
    >>> scalars(epoch, ["node_drop", "identity"])["probability/node_drop-identity"]
    0.25
    """
    found = {"loss": epoch.loss, "graphs_per_second": epoch.graphs_per_second}
    names = [re.sub(r"[^\w.]+", "_", name).strip("_") for name in pool]  # TensorBoard allows few other characters
    for kind, table in {"probability": epoch.probabilities, "pair_loss": epoch.pair_losses}.items():
        if table is not None and len(pool) > 1:
            for first, row in zip(names, table, strict=True):
                found |= {f"{kind}/{first}-{second}": value for second, value in zip(names, row, strict=True)}
    return found


def _open(name: str, folder: Path | None, epoch: EpochMetrics, pool: Sequence[str]) -> Logger:
    """Open a log of a run, without the epochs from ``epoch`` on, which a resumed run repeats."""
    try:
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger
    except ImportError:  # the package lightning contains the same code
        from lightning.fabric.loggers.csv_logs import CSVLogger  # type: ignore[no-redef]
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger  # type: ignore[no-redef]
    assert folder is not None  # by check_loggers
    if name == "tensorboard":
        board: Logger = TensorBoardLogger(folder, name="", version=name, purge_step=epoch.epoch)
        return board
    (folder / name / "metrics.csv").unlink(missing_ok=True)  # Fabric would also start a new file, but with a warning
    table: Logger = CSVLogger(folder, name="", version=name, flush_logs_every_n_steps=1)
    for before in Run.open(folder).metrics(epoch.epoch - 1):
        table.log_metrics(scalars(before, pool), step=before.epoch)
    return table
