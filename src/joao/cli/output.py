"""What commands print: text, tables, JSON, progress, and commands to paste."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from joao.core.errors import UserError, escape_control

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from joao.data import Dataset

SECONDS_BETWEEN_LINES = 5.0


class Output:
    """Print text, or one JSON object, to standard output; notices and progress go to standard error."""

    def __init__(self, quiet: bool, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json

    def say(self, text: str = "") -> None:
        if not self.quiet and not self.as_json:
            typer.echo(escape_control(text))

    def notice(self, text: str) -> None:
        if not self.quiet:
            typer.echo(escape_control(f"joao: note: {text}"), err=True)

    def log(self, text: str) -> None:
        """Print a line to standard error, unless that is a terminal (which shows a progress bar instead)."""
        if not self.quiet and not self.as_json and not sys.stderr.isatty():
            typer.echo(escape_control(f"joao: {text}"), err=True)

    def suggest(self, command: str, out: Path | None = None) -> None:
        """Print the next command to run, with a free path like ``out`` for its output."""
        self.say(f"Next: joao {command}" + (f" --out {shell_quote(free_path(out))}" if out else ""))

    def result(self, value: dict[str, Any]) -> None:
        if self.as_json:
            typer.echo(json.dumps(value))

    def table(self, header: Sequence[str], lines: Sequence[Sequence[str]], title: str = "") -> None:
        if self.quiet or self.as_json:
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(title=escape_control(title) or None, title_justify="left")
        for number, heading in enumerate(header):
            table.add_column(escape_control(heading), justify="left" if number < 1 else "right")
        for line in lines:
            table.add_row(*map(escape_control, line))
        # Tables in files and pipes are not wrapped to the width of a terminal.
        Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)

    @contextmanager
    def progress(self, what: str, total: int | None, in_lines: bool = True) -> Iterator[Bar]:
        """Show a progress bar on standard error or, if that is not a terminal, a line every five seconds.

        Args:
            what: description of the work.
            total: number of steps; None hides the bar until :meth:`Bar.add` sets it.
            in_lines: whether to print lines without a terminal; False if the caller prints its own.
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
    """One progress bar; ``log`` prints its state every :data:`SECONDS_BETWEEN_LINES` seconds."""

    def __init__(self, progress: Progress, task: TaskID, log: Callable[[str], None] | None = None) -> None:
        self._progress, self._task, self._log = progress, task, log
        self._logged_at = time.monotonic()

    def advance(self, note: str = "") -> None:
        self._progress.update(self._task, advance=1, note=note)
        self._log_state(note)

    def add(self, done: int, total: int) -> None:
        """Advance by ``done`` steps of ``total``."""
        self._progress.update(self._task, advance=done, total=total, visible=True)
        self._log_state()

    def _log_state(self, note: str = "") -> None:
        if self._log is None or time.monotonic() - self._logged_at < SECONDS_BETWEEN_LINES:
            return
        self._logged_at = time.monotonic()
        state = self._progress.tasks[self._task]
        so_far = f"{state.description}: {state.completed:.0f} of {state.total:.0f}"
        self._log(f"{so_far}, {note}" if note else so_far)


def quantity(count: int, things: str) -> str:
    """A count with its noun, which is given in the plural.

    >>> quantity(1, "graphs"), quantity(2, "classes"), quantity(1, "classes"), quantity(3, "syntax_trees")
    ('1 graph', '2 classes', '1 class', '3 syntax trees')
    """
    noun = things.replace("_", " ")
    if count == 1:
        noun = noun.removesuffix("es" if noun.endswith("sses") else "s")
    return f"{count} {noun}"


def shell_quote(word: str | Path) -> str:
    """Quote one word of a command for the shell."""
    return shlex.quote(str(word))


def free_path(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist yet."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(each for each in chain([path], numbered) if not each.exists())


def check_suffix(path: Path, *known: str) -> None:
    """Raise an error if the name of an output does not end as its type demands."""
    if not path.name.endswith(known):
        raise UserError(f"{path}: unknown file type '{path.suffix}'. Use {' or '.join(known)}.")


def check_row_file(path: Path) -> Path:
    """Check the path of a new .npz or .csv file with one row per graph; returns the path for its failed rows."""
    from joao.core.files import check_new_file

    check_suffix(path, ".npz", ".csv")
    check_new_file(path)
    failures = path.with_name(f"{path.name}.failures.csv")
    check_new_file(failures)
    return failures


def write_row_file(path: Path, content: Any, failures: Path, dataset: Dataset) -> dict[str, Any]:
    """Write one row per graph and, if there are any, the rows that RDKit cannot parse; returns the JSON output."""
    from joao.core.files import write_file
    from joao.runs.result_files import failures_csv

    write_file(path, content)
    result = {"file": str(path), "graphs": len(dataset)}
    if dataset.failures:
        write_file(failures, failures_csv(dataset))
        result |= {"blank": len(dataset.failures), "failures": str(failures)}
    return result


def python_command(path: Path, name: str) -> str:
    """The Python expression that reads an output file: array ``name`` of an .npz file, or a .csv table."""
    if path.suffix == ".npz":
        return f"numpy.load({str(path)!r})['{name}']"
    return f"pandas.read_csv({str(path)!r}, index_col='graph')"
