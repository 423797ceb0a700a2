"""Follow a training: a live view for people; TensorBoard, CSV or any logger of Lightning Fabric for programs."""

from __future__ import annotations

import importlib.util
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from joao.config.recipe import Recipe, pool_name
from joao.core import progress
from joao.core.errors import UserError, short_repr, suggest
from joao.core.pair_table import PairTable
from joao.core.progress import Progress, format_seconds
from joao.runs.folder import LOG_FOLDERS, Run
from joao.training.metrics import BatchMetrics, EpochMetrics

if TYPE_CHECKING:
    from rich.console import RenderableType

OnEpoch = Callable[[EpochMetrics], None]
OnBatch = Callable[[BatchMetrics], None]
PAIRS_SHOWN = 5


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
    values = {"loss": epoch.loss, "graphs_per_second": epoch.graphs_per_second}
    names = [re.sub(r"[^\w.]+", "_", name).strip("_") for name in pool]  # TensorBoard allows few other characters
    for kind, table in {"probability": epoch.probabilities, "pair_loss": epoch.pair_losses}.items():
        if table is not None and len(pool) > 1:
            for first, row in zip(names, table, strict=True):
                values |= {f"{kind}/{first}-{second}": value for second, value in zip(names, row, strict=True)}
    return values


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


class TrainingView:
    """Shows a pre-training: epochs, batches, time left, loss, speed and, if the policy learns, the most probable pairs.

    Args:
        shown: where.
        epochs: number of epochs.
        kind: what the graphs are called.
        pool: names of the augmentations, in the order of pair tables.
    """

    def __init__(self, shown: Progress, epochs: int, kind: str, pool: Sequence[str]) -> None:
        self.shown, self.epochs, self.kind, self.pool = shown, epochs, kind, pool
        self.last: EpochMetrics | None = None
        self.batch: BatchMetrics | None = None
        self._seconds: deque[float] = deque(maxlen=5)
        self._updated_at = 0.0
        self._printed_at = time.monotonic()

    def on_epoch(self, epoch: EpochMetrics) -> None:
        """Show a finished epoch; every epoch is logged, and a line is printed every ten seconds."""
        self.last, self.batch = epoch, None
        self._seconds.append(epoch.seconds)
        self._updated_at = time.monotonic()
        self._print(always_log=True)

    def on_batch(self, batch: BatchMetrics) -> None:
        """Show the state inside an epoch."""
        self.batch, self._updated_at = batch, time.monotonic()
        self._print()

    def _print(self, always_log: bool = False) -> None:
        is_last = self.last is not None and self.last.epoch == self.epochs  # the caller describes the result
        is_due = time.monotonic() - self._printed_at >= progress.SECONDS_BETWEEN_LINES and not is_last
        if is_due or always_log:
            self.shown.line(self.line(), visible=is_due)
        if is_due:
            self._printed_at = time.monotonic()

    def time_left(self) -> str:
        """Estimate the time left: inside an epoch from all steps, after it from the median of the last five epochs."""
        if self.batch is not None:
            seconds_left = self.batch.seconds_left
        elif self.last is not None:
            seconds_left = sorted(self._seconds)[len(self._seconds) // 2] * (self.epochs - self.last.epoch)
        else:
            return "-:--:--"
        return format_seconds(seconds_left - (time.monotonic() - self._updated_at))

    def top_pairs(self, count: int) -> list[tuple[str, float]]:
        """The most probable pairs, summed over strengths; empty if the policy does not learn."""
        if self.last is None or self.last.pair_losses is None:
            return []
        table = PairTable.of(self.pool, self.last.probabilities).over_strengths()
        return [(f"{first} + {second}", share) for first, second, share in table.top(count)]

    def line(self) -> str:
        where, loss, rate = self._state()
        pairs = "".join(f", {pair} {share:.2f}" for pair, share in self.top_pairs(1))
        return f"epoch {where}: loss {loss}, {rate} {self.kind}/s, {self.time_left()} left{pairs}"

    def _state(self) -> tuple[str, str, str]:
        """Epoch and batch, loss and speed as text."""
        latest = self.batch or self.last
        if latest is None:
            return f"0/{self.epochs}", "-", "-"
        batch = f", batch {latest.batch:,}/{latest.batches:,}" if isinstance(latest, BatchMetrics) else ""
        return f"{latest.epoch}/{self.epochs}{batch}", f"{latest.loss:.3f}", f"{latest.graphs_per_second:,.0f}"

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        where, loss, rate = self._state()
        done = float(self.last.epoch if self.last else 0)
        if self.batch is not None:
            done = self.batch.epoch - 1 + self.batch.batch / self.batch.batches
        head, pairs = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        head.add_row("epoch", where, ProgressBar(self.epochs, done, width=30), f"{self.time_left()} left")
        head.add_row("loss", loss, f"{rate} {self.kind}/s")
        for pair, share in self.top_pairs(PAIRS_SHOWN):
            pairs.add_row(pair, f"{share:.2f}", ProgressBar(1, share, width=20, complete_style="cyan"))
        return Group(head, "most probable pairs", pairs) if pairs.rows else head


@contextmanager
def show_training(
    shown: Progress,
    recipe: Recipe,
    kind: str,
    pool: Iterable[str] | None = None,
    intro: Callable[[], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Show a pre-training in a terminal, or a line every ten seconds; yields arguments of :func:`pretrain`.

    ``intro`` is called at the start, so that nothing is shown before an error.
    """
    pool = pool or [pool_name(part, recipe.augmentations) for part in recipe.augmentations]
    view = TrainingView(shown, recipe.training.epochs, kind, list(pool))
    with ExitStack() as stack:

        def on_start() -> None:
            if intro is not None:
                intro()
            stack.enter_context(shown.live(view))

        yield {"on_start": on_start, "on_epoch": view.on_epoch, "on_batch": view.on_batch}
