"""Run a pre-training with a live view of its progress, and stop it cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, Any

from joao.cli.output import Output, quantity
from joao.core.errors import Interrupted, JoaoNotice, ProcessLost
from joao.training.distributed.launch import ProcessLayout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from joao.config.recipe import Recipe
    from joao.data import Dataset, Shards
    from joao.runs.trained import TrainedEncoder
    from joao.training.metrics import EpochMetrics

PAIRS_SHOWN = 5
SECONDS_BETWEEN_LINES = 10.0


class StopRequest:
    """Whether the user has asked the program to stop; true after the first signal.

    With ``at_once``, the first signal already raises KeyboardInterrupt.
    """

    def __init__(self, notify: Callable[[str], None], at_once: bool = False) -> None:
        self.signal = 0
        self._notify, self._at_once = notify, at_once

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """The exit code by the shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; a second Ctrl-C raises KeyboardInterrupt."""
        stop_now = self._at_once or (self.signal and number == signal.SIGINT)
        self.signal = self.signal or number
        if stop_now:
            raise KeyboardInterrupt
        self._notify(f"{signal.Signals(number).name}: saving the state after this step. Press Ctrl-C to stop at once.")


@contextmanager
def catch_stop_signals(
    notify: Callable[[str], None], at_once: bool = False, enabled: bool = True
) -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a :class:`StopRequest`; outside the main thread, signals are left alone."""
    stop = StopRequest(notify, at_once)
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TrainingView:
    """The state of a pre-training: epochs, time left, loss, speed and, if the policy learns, the most probable pairs.

    ``kind`` is what the graphs are called; ``pool`` has the names of the augmentations, in the order of pair tables.
    """

    def __init__(self, epochs: int, kind: str, pool: Sequence[str]) -> None:
        self.epochs, self.kind, self.pool = epochs, kind, pool
        self.last: EpochMetrics | None = None
        self._seconds: deque[float] = deque(maxlen=5)
        self._updated_at = 0.0

    def update(self, epoch: EpochMetrics) -> None:
        """Record a finished epoch."""
        self.last = epoch
        self._seconds.append(epoch.seconds)
        self._updated_at = time.monotonic()

    def time_left(self) -> str:
        """Estimate the time left from the median of the last five epochs."""
        if self.last is None:
            return "-:--:--"
        left = median(self._seconds) * (self.epochs - self.last.epoch) - (time.monotonic() - self._updated_at)
        return str(timedelta(seconds=max(0, round(left))))

    def top_pairs(self, count: int) -> list[tuple[str, float]]:
        """The most probable pairs, summed over strengths; empty if the policy does not learn."""
        if self.last is None or self.last.pair_losses is None:
            return []
        from joao.core.pair_table import PairTable

        table = PairTable.of(self.pool, self.last.probabilities).over_strengths()
        return [(f"{first} + {second}", share) for first, second, share in table.top(count)]

    def line(self) -> str:
        """The state in one line."""
        assert self.last is not None
        pairs = "".join(f", {pair} {share:.2f}" for pair, share in self.top_pairs(1))
        return (
            f"epoch {self.last.epoch}/{self.epochs}: loss {self.last.loss:.3f}, "
            f"{self.last.graphs_per_second:,.0f} {self.kind}/s, {self.time_left()} left{pairs}"
        )

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        done = self.last.epoch if self.last else 0
        loss = f"{self.last.loss:.3f}" if self.last else "-"
        rate = f"{self.last.graphs_per_second:,.0f}" if self.last else "-"
        head, pairs = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        bar = ProgressBar(self.epochs, done, width=30)
        head.add_row("epoch", f"{done}/{self.epochs}", bar, f"{self.time_left()} left")
        head.add_row("loss", loss, f"{rate} {self.kind}/s")
        for pair, share in self.top_pairs(PAIRS_SHOWN):
            pairs.add_row(pair, f"{share:.2f}", ProgressBar(1, share, width=20, complete_style="cyan"))
        return Group(head, "most probable pairs", pairs) if pairs.rows else head


@contextmanager
def show_live(
    output: Output, view: TrainingView, intro: str = ""
) -> Iterator[tuple[Callable[[], None], Callable[[EpochMetrics], None]]]:
    """Show ``intro``, then ``view`` live in a terminal, or a line every ten seconds.

    Yields the functions to call at the start, so that nothing is shown before an error, and after each epoch.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    printed_at = time.monotonic()

    def on_epoch(epoch: EpochMetrics) -> None:
        nonlocal printed_at
        view.update(epoch)
        if time.monotonic() - printed_at >= SECONDS_BETWEEN_LINES and epoch.epoch < view.epochs:
            output.log(view.line())
            printed_at = time.monotonic()

    with ExitStack() as stack:

        def on_start() -> None:
            output.say(intro)
            if not output.quiet and console.is_terminal:
                stack.enter_context(Live(view, console=console, transient=True))

        yield on_start, on_epoch


def train(
    recipe: Recipe, dataset: Dataset | Shards, folder: Path, output: Output, process: ProcessLayout, **options: Any
) -> TrainedEncoder:
    """Pre-train with a live view, then print a summary and draw the learned pairs (in the first process only).

    ``options`` are those of :func:`joao.runs.pretraining.pretrain`.
    """
    from joao.config.recipe import pool_name
    from joao.report.plots import draw_policy
    from joao.runs import pretraining

    several = f" in {process.world_size} processes" if process.world_size > 1 else ""
    epochs = recipe.training.epochs
    amount = f"{quantity(len(dataset), dataset.kind)}, {quantity(epochs, 'epochs')}"
    intro = f"Pre-training on {dataset.name}{several}: {amount}, without labels."
    view = TrainingView(epochs, dataset.kind, [pool_name(part, recipe.augmentations) for part in recipe.augmentations])
    with show_live(output, view, intro) as (on_start, on_epoch), _notices_and_signals(process, output) as stop:
        try:
            trained = pretraining.pretrain(
                recipe,
                dataset,
                folder=folder,
                devices=process.devices,
                num_nodes=process.num_nodes,
                on_start=on_start,
                on_epoch=on_epoch,
                should_stop=lambda: bool(stop),
                **options,
            )
        except Interrupted as stopped:
            raise Interrupted(str(stopped), stop.code) from None
        except KeyboardInterrupt:
            message = f"interrupted. {_how_to_continue(folder)}" if process.rank == 0 else ""
            raise Interrupted(message, stop.code) from None
        except ProcessLost as lost:
            if process.rank > 0:
                time.sleep(1)  # the first process, if it is alive, prints the message and ends the others
            raise ProcessLost(f"{lost} {_how_to_continue(folder)}") from None
    if process.rank > 0:
        return trained
    facts, policy = summary(folder, trained), trained.policy
    output.say(f"Loss {facts['loss']:.4f} after {quantity(facts['epochs'], 'epochs')}, {facts['seconds']:.1f} s.")
    if len(policy.names) > 1:
        picture = folder / "policy.png"
        draw_policy(policy, trained.drawn, f"Augmentation pairs learned on {dataset.name}", picture)
        leading = ", ".join(f"{first} + {second} {share:.2f}" for first, second, share in policy.top(3))
        output.say(f"Most probable pairs: {leading}. Figure: {picture}")
    return trained


def summary(run: Path, trained: TrainedEncoder) -> dict[str, Any]:
    """The JSON output of a pre-training."""
    last = trained.metrics[-1]
    return {
        "run": str(run),
        "loss": last.loss,
        "epochs": last.epoch,
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "augmentations": list(trained.info.pool),
        "probabilities": last.probabilities,
    }


def _how_to_continue(folder: Path) -> str:
    from joao.runs.folder import Run

    if (folder / "run.json").exists():
        return Run.open(folder).resume_hint()
    return "There was no checkpoint yet; nothing is kept."


@contextmanager
def _notices_and_signals(process: ProcessLayout, output: Output) -> Iterator[StopRequest]:
    """Print the library's notices, and turn signals into a stop request.

    The parent of several processes stops them at the first signal. Under torchrun and SLURM, which handle signals
    themselves, no handler is installed.
    """
    with warnings.catch_warnings():
        show_warning = warnings.showwarning

        def print_notice(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, JoaoNotice):
                output.notice(str(message))
            else:
                show_warning(message, category, *place)

        warnings.showwarning = print_notice  # type: ignore[assignment]
        warnings.simplefilter("always", JoaoNotice)
        several = process.world_size > 1
        with catch_stop_signals(output.notice, at_once=several, enabled=not (several and process.is_worker)) as stop:
            yield stop
