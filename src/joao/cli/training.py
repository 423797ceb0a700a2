"""What a pre-training shows while it runs."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, Any

from joao.cli.output import Output
from joao.core.errors import Interrupted, JoaoNotice, ProcessLost
from joao.core.pair_table import PairTable
from joao.training.distributed.launch import ProcessLayout


class Wish:
    """Whether somebody has asked the program to stop, and by which signal.

    Args:
        tell: told of it.
        at_once: whether the first signal is an order already.
    """

    def __init__(self, tell: Callable[[str], None], at_once: bool = False) -> None:
        self.signal = 0
        self._tell, self._at_once = tell, at_once

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """What a program exits with after it, as shells have it."""
        return 128 + (self.signal or signal.SIGINT)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The first signal is a wish; a second Ctrl-C is an order."""
        is_order = self._at_once or (self.signal and number == signal.SIGINT)
        self.signal = self.signal or number
        if is_order:
            raise KeyboardInterrupt
        self._tell(f"{signal.Signals(number).name}: keeping the state after this step. Ctrl-C stops at once.")


@contextmanager
def stoppable(tell: Callable[[str], None], at_once: bool = False) -> Iterator[Wish]:
    """Ctrl-C and SIGTERM inside become a wish, which ``tell`` tells, or KeyboardInterrupt; in the main thread."""
    wish = Wish(tell, at_once)
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if TYPE_CHECKING:
    from rich.console import RenderableType

    from joao.training.metrics import EpochMetrics

PAIRS = 5
SECONDS_BETWEEN_LINES = 10.0


class TrainingView:
    """The state of a pre-training: epochs done, time left, loss, rate and, where a policy learns, the leading pairs.

    Args:
        epochs: of the whole training.
        kind: what graphs are called.
        pool: the names of the augmentations, in the order of the tables.
    """

    def __init__(self, epochs: int, kind: str, pool: Sequence[str]) -> None:
        self.epochs, self.kind, self.pool = epochs, kind, pool
        self.last: EpochMetrics | None = None
        self._seconds: deque[float] = deque(maxlen=5)
        self._told_at = 0.0

    def tell(self, epoch: EpochMetrics) -> None:
        """An epoch is over."""
        self.last = epoch
        self._seconds.append(epoch.seconds)
        self._told_at = time.monotonic()

    def time_left(self) -> str:
        """By the median of the last epochs, less what has passed since."""
        if self.last is None:
            return "-:--:--"
        left = median(self._seconds) * (self.epochs - self.last.epoch) - (time.monotonic() - self._told_at)
        return str(timedelta(seconds=max(0, round(left))))

    def leading(self, count: int) -> list[tuple[str, float]]:
        """The pairs with the most probability, summed over strengths; none where no policy learns."""
        if self.last is None or self.last.pair_losses is None:
            return []
        table = PairTable.of(self.pool, self.last.probabilities).over_strengths()
        return [(f"{first} + {second}", share) for first, second, share in table.top(count)]

    def line(self) -> str:
        """All of it in one line."""
        assert self.last is not None
        pairs = "".join(f", {pair} {share:.2f}" for pair, share in self.leading(1))
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
        head = Table.grid(padding=(0, 2))
        head.add_row(
            "epoch", f"{done}/{self.epochs}", ProgressBar(self.epochs, done, width=30), f"{self.time_left()} left"
        )
        head.add_row("loss", loss, f"{rate} {self.kind}/s")
        pairs = Table.grid(padding=(0, 2))
        for pair, share in self.leading(PAIRS):
            pairs.add_row(pair, f"{share:.2f}", ProgressBar(1, share, width=20, complete_style="cyan"))
        return Group(head, "leading pairs", pairs) if pairs.rows else head


@contextmanager
def live(output: Output, view: TrainingView) -> Iterator[Callable[[EpochMetrics], None]]:
    """Shows ``view`` on standard error where that is a terminal, else a line now and then; yields what to tell."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    said_at = time.monotonic()

    def on_epoch(epoch: EpochMetrics) -> None:
        nonlocal said_at
        view.tell(epoch)
        if time.monotonic() - said_at >= SECONDS_BETWEEN_LINES and epoch.epoch < view.epochs:
            output.log(view.line())
            said_at = time.monotonic()

    with nullcontext() if output.quiet or not console.is_terminal else Live(view, console=console, transient=True):
        yield on_epoch


if TYPE_CHECKING:
    from joao.config.recipe import Recipe
    from joao.data import Dataset, Shards
    from joao.runs.trained import TrainedEncoder


def train(
    start: Callable[..., TrainedEncoder],
    recipe: Recipe,
    dataset: Dataset | Shards,
    folder: Path,
    output: Output,
    process: ProcessLayout | None = None,
) -> TrainedEncoder:
    """Trains in sight, draws the learned table and says what came out; the first process does.

    Args:
        start: :func:`joao.runs.pretraining.pretrain`, with all options that say how to train.
        recipe: what to train.
        dataset: on what.
        folder: of the run.
        output: for what is said.
        process: which of several this is.
    """
    from joao.cli.training import TrainingView, live
    from joao.config.recipe import pool_name
    from joao.report.plots import draw_policy

    process = process or ProcessLayout()
    several = f" in {process.world_size} processes" if process.world_size > 1 else ""
    what = f"{len(dataset)} {dataset.kind}, {recipe.training.epochs} epochs, no labels"
    output.say(f"Pre-training on {dataset.name}{several}: {what}.")
    pool = [pool_name(part, recipe.augmentations) for part in recipe.augmentations]
    view = TrainingView(recipe.training.epochs, dataset.kind, pool)
    with live(output, view) as on_epoch, _voiced(process, output) as wish:
        try:
            trained = start(
                recipe,
                dataset,
                folder=folder,
                devices=process.devices,
                num_nodes=process.num_nodes,
                on_epoch=on_epoch,
                should_stop=lambda: bool(wish),
            )
        except Interrupted as stopped:
            raise Interrupted(str(stopped), wish.code) from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted. {_cure(folder)}" if process.rank == 0 else "", wish.code) from None
        except ProcessLost as lost:
            if process.rank > 0:
                time.sleep(1)  # the first process, if it is still there, tells of it and has everything ended
            raise ProcessLost(f"{lost} {_cure(folder)}") from None
    if process.rank > 0:
        return trained
    last = trained.metrics[-1]
    policy = trained.policy
    seconds = sum(epoch.seconds for epoch in trained.metrics)
    output.say(f"Loss {last.loss:.4f} after {last.epoch} epochs, {seconds:.1f} s.")
    if len(policy.names) > 1:
        picture = folder / "policy.png"
        draw_policy(policy, trained.drawn, f"Augmentation pairs learned on {dataset.name}", picture)
        leading = ", ".join(f"{first} + {second} {share:.2f}" for first, second, share in policy.top(3))
        output.say(f"Leading pairs: {leading}. Picture: {picture}")
    return trained


def summary(run: Path, trained: TrainedEncoder) -> dict[str, Any]:
    """What a program is told of a pre-training."""
    last = trained.metrics[-1]
    return {
        "run": str(run),
        "loss": last.loss,
        "epochs": last.epoch,
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "augmentations": list(trained.info.pool),
        "probabilities": last.probabilities,
    }


def _cure(folder: Path) -> str:
    """What to do about a run that was ended before its time."""
    from joao.runs.folder import Run

    if (folder / "run.json").exists():
        return Run.open(folder).resume_hint()
    return "There was no checkpoint yet, and nothing is kept."


@contextmanager
def _voiced(process: ProcessLayout, output: Output) -> Iterator[Wish]:
    """Notices of the library are told, and signals are wishes; what starts several processes ends them at once."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, JoaoNotice):
                output.notice(str(message))
            else:
                shown(message, category, *place)

        warnings.showwarning = tell  # type: ignore[assignment]
        warnings.simplefilter("always", JoaoNotice)
        if process.world_size > 1 and process.is_worker:  # by torchrun, or SLURM, whose affair signals are
            yield Wish(output.notice)
        else:
            with stoppable(output.notice, at_once=process.world_size > 1) as wish:
                yield wish
