"""What commands print: text, tables, JSON and progress."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from joao.core.errors import escape_control

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES = 5.0


class Output:
    """Text for people, or one JSON object for programs, on standard output; notices and progress on standard error."""

    def __init__(self, quiet: bool, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        if not self.quiet and not self.as_json:
            typer.echo(escape_control(text))

    def notice(self, text: str) -> None:
        if not self.quiet:
            typer.echo(escape_control(f"joao: note: {text}"), err=True)

    def log(self, text: str) -> None:
        """A line on standard error where that is no terminal and so has no progress bar."""
        if not self.quiet and not self.as_json and not sys.stderr.isatty():
            typer.echo(escape_control(f"joao: {text}"), err=True)

    def result(self, value: dict[str, Any]) -> None:
        if self.as_json:
            typer.echo(json.dumps(value))

    def table(self, header: Sequence[str], lines: Sequence[Sequence[str]], title: str = "") -> None:
        if self.quiet or self.as_json:
            return
        from rich.console import Console
        from rich.table import Table

        shown = Table(title=escape_control(title) or None, title_justify="left")
        for number, heading in enumerate(header):
            shown.add_column(escape_control(heading), justify="left" if number < 1 else "right")
        for line in lines:
            shown.add_row(*map(escape_control, line))
        # A table that is not for a terminal is as wide as it needs to be.
        Console(width=None if sys.stdout.isatty() else 200, markup=False).print(shown)

    @contextmanager
    def progress(self, what: str, total: int | None, in_lines: bool = True) -> Iterator[Bar]:
        """A bar with time left, on standard error, where that is a terminal; without ``total``, once that is known.

        Elsewhere it is a line every five seconds at most, unless the caller has lines of its own.
        """
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        console = Console(stderr=True)
        with Progress(*columns, console=console, disable=self.quiet or not console.is_terminal) as progress:
            task = progress.add_task(escape_control(what), total=total, visible=total is not None, note="")
            yield Bar(progress, task, self.log if in_lines else None)


class Bar:
    """One line of progress; ``log`` is told now and then how far it is."""

    def __init__(self, progress: Progress, task: TaskID, log: Callable[[str], None] | None = None) -> None:
        self._progress, self._task, self._log = progress, task, log
        self._logged_at = time.monotonic()

    def advance(self, note: str = "") -> None:
        self._progress.update(self._task, advance=1, note=note)
        self._say(note)

    def add(self, done: int, total: int) -> None:
        """Of ``total``, so many more are done."""
        self._progress.update(self._task, advance=done, total=total, visible=True)
        self._say()

    def _say(self, note: str = "") -> None:
        if self._log is None or time.monotonic() - self._logged_at < SECONDS_BETWEEN_LINES:
            return
        self._logged_at = time.monotonic()
        state = self._progress.tasks[self._task]
        so_far = f"{state.description}: {state.completed:.0f} of {state.total:.0f}"
        self._log(f"{so_far}, {note}" if note else so_far)


def quoted(word: str | Path) -> str:
    """A word of a command, as a shell takes it."""
    return shlex.quote(str(word))


def free_path(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist yet."""
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate


def in_python(path: Path, name: str) -> str:
    """How Python reads a file that was written, .npz with an array of that name, or .csv."""
    if path.suffix == ".npz":
        return f"numpy.load({str(path)!r})['{name}']"
    return f"pandas.read_csv({str(path)!r}, index_col='graph')"
