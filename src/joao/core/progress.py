"""Show how far long work is: a bar in a terminal, lines elsewhere, and lines for Python's ``logging``.

Work reports to a :class:`Bar`, or calls back. Callers decide whether that is shown: ``verbose`` of an estimator, and
``--quiet`` and ``--json`` of a command.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from joao.core.errors import UserError, escape_control, short_repr

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

LOGGER = logging.getLogger("joao")
SECONDS_BETWEEN_LINES = 10.0
SECONDS_OF_SPEED = 600.0  # the time left is estimated from the steps in this time


class Progress:
    """Where progress is shown, on standard error. Lines also go to the logger ``joao``, at level INFO.

    Args:
        bars: whether to show bars in a terminal or notebook.
        lines: whether to print lines elsewhere; not if ``logging`` prints them already.

    >>> with Progress(bars=False, lines=False).bar("scoring", 10) as bar:
    ...     bar.advance("fold 1")
    """

    def __init__(self, bars: bool = True, lines: bool = True) -> None:
        self.bars, self.lines = bars, lines

    @classmethod
    def from_verbose(cls, verbose: object, place: str) -> Self:
        """Show everything if ``verbose``, the parameter of an estimator or function ``place``, is not 0."""
        if not isinstance(verbose, int) or verbose < 0:
            raise UserError(f"{place}: verbose: expected 0 (silent) or 1 (progress), got {short_repr(verbose)}.")
        return cls(bool(verbose), bool(verbose))

    def line(self, text: str, visible: bool = True) -> None:
        """Log a line and, if it is ``visible`` and there is no bar to look at, print it."""
        text = escape_control(text, kept="")
        LOGGER.info("%s", text)
        is_logged = LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers()
        if visible and self.lines and not is_logged and not _shows_bars(console := _console()):
            console.print(f"joao: {text}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, what: str, total: int | None, in_lines: bool = True) -> Iterator[Bar]:
        """Show a bar or, every ten seconds, a line.

        Args:
            what: description of the work.
            total: number of steps; None hides the bar until :meth:`Bar.add` sets it.
            in_lines: whether to print lines; False if the caller prints its own.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )

        class WithTable(RichProgress):
            """Shows a table above the bars."""

            table: Any = None

            def get_renderables(self) -> Iterator[Any]:
                yield from [self.table] if self.table is not None else []
                yield from super().get_renderables()

        console = _console()
        is_shown = self.bars and _shows_bars(console)
        options: dict[str, Any] = {
            "console": console,
            "disable": not is_shown,
            "speed_estimate_period": SECONDS_OF_SPEED,
        }
        with WithTable(*columns, **options, get_time=lambda: time.monotonic()) as shown:
            task = shown.add_task(escape_control(what), total=total, visible=total is not None, note="")
            try:
                yield Bar(shown, task, self, in_lines)
            finally:
                shown.table = None  # the caller prints the last one

    @contextmanager
    def live(self, view: Any) -> Iterator[None]:
        """Show an object that rich can render, and refresh it; nothing without a terminal or notebook."""
        from rich.live import Live

        console = _console()
        if self.bars and _shows_bars(console):
            with Live(view, console=console, transient=True):
                yield
        else:
            yield


class Bar:
    """The progress of one piece of work; ``shown`` gets a line every :data:`SECONDS_BETWEEN_LINES` seconds."""

    def __init__(self, progress: Any, task: TaskID, shown: Progress, in_lines: bool = True) -> None:
        self._progress, self._task, self._shown, self._in_lines = progress, task, shown, in_lines
        self._printed_at = self._table_at = time.monotonic()

    def advance(self, note: str = "") -> None:
        """Advance by one step; ``note`` is shown beside the bar."""
        self._progress.update(self._task, advance=1, note=note)
        self._print_state(note)

    def note(self, text: str, done: float | None = None, total: int | None = None) -> None:
        """Show what is being done, beside the bar and, even if the caller prints its own lines, in a line.

        ``done`` is the number of steps so far, with a share of those that are being done, and ``total`` that of all.
        """
        size = {} if total is None else {"total": total, "visible": True}
        self._progress.update(self._task, completed=done, note=escape_control(text), **size)
        self._print_state(text, in_lines=True)

    def add(self, done: int, total: int) -> None:
        """Advance by ``done`` steps of ``total``."""
        self._progress.update(self._task, advance=done, total=total, visible=True)
        self._print_state()

    def show(self, title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
        """Show a table that is not final above the bar or, not too often, its first two columns in a line."""
        self._progress.table = make_table(header, lines, title)
        self._progress.refresh()
        is_time = time.monotonic() - self._table_at >= SECONDS_BETWEEN_LINES
        self._table_at = time.monotonic() if is_time else self._table_at
        self._shown.line(f"{title}: {', '.join(' '.join(line[:2]) for line in lines)}", visible=is_time)

    def _print_state(self, note: str = "", in_lines: bool = False) -> None:
        is_due = time.monotonic() - self._printed_at >= SECONDS_BETWEEN_LINES
        if not is_due or not (self._in_lines or in_lines):
            return
        self._printed_at = time.monotonic()
        state = self._progress.tasks[self._task]
        parts = [f"{state.description}: {int(state.completed):,} of {state.total:,.0f}"]
        parts += [f"{format_seconds(state.time_remaining)} left"] if state.time_remaining else []
        self._shown.line(", ".join([*parts, *([note] if note else [])]))


def make_table(header: Sequence[str], lines: Sequence[Sequence[str]], title: str = "") -> Any:
    """A table of rich, with control characters escaped and no markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(escape_control(title)) if title else None, title_justify="left")
    for number, heading in enumerate(header):
        table.add_column(Text(escape_control(heading)), justify="left" if number < 1 else "right")
    for line in lines:
        table.add_row(*(Text(escape_control(cell)) for cell in line))
    return table


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(75.4)
    '0:01:15'
    """
    return str(timedelta(seconds=max(0, round(seconds))))


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, emoji=False)


def _shows_bars(console: Console) -> bool:
    # In a notebook, rich needs ipywidgets to update what it has shown.
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)
