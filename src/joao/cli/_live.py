"""What a pre-training shows while it runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from joao.cli._output import Output
from joao.pair_table import PairTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from joao.training.pretrain import EpochMetrics

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
