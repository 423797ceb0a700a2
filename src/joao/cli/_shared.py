"""What several commands have in common: options, output and progress."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.errors import UserError, plain

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from joao.data import Dataset, Shards

SECONDS_BETWEEN_LINES = 5.0

DataRoot = Annotated[
    str | None,
    typer.Option("--data-root", envvar="JOAO_DATA", help="Folder where data sets are looked up by name."),
]
SmilesColumn = Annotated[
    str | None,
    typer.Option("--smiles", metavar="COLUMN", help="Of a table: the column of SMILES, where its name does not tell."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="Of a table: the column of identifiers, likewise.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="COLUMN", help="Of a table: a column of labels, instead of all that hold numbers."),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
TwinsTogether = Annotated[
    bool, typer.Option("--twins-together", help="Keep graphs that cannot be told apart in the same fold.")
]


def all_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Output:
    """Text for people, or one JSON object for programs, on standard output; notices and progress on standard error."""

    def __init__(self, quiet: bool, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        if not self.quiet and not self.as_json:
            typer.echo(plain(text))

    def notice(self, text: str) -> None:
        if not self.quiet:
            typer.echo(plain(f"joao: note: {text}"), err=True)

    def log(self, text: str) -> None:
        """A line on standard error where that is no terminal and so has no progress bar."""
        if not self.quiet and not self.as_json and not sys.stderr.isatty():
            typer.echo(plain(f"joao: {text}"), err=True)

    def result(self, value: dict[str, Any]) -> None:
        if self.as_json:
            typer.echo(json.dumps(value))

    def table(self, header: Sequence[str], lines: Sequence[Sequence[str]], title: str = "") -> None:
        if self.quiet or self.as_json:
            return
        from rich.console import Console
        from rich.table import Table

        shown = Table(title=plain(title) or None, title_justify="left")
        for number, heading in enumerate(header):
            shown.add_column(plain(heading), justify="left" if number < 1 else "right")
        for line in lines:
            shown.add_row(*map(plain, line))
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
            task = progress.add_task(plain(what), total=total, visible=total is not None, note="")
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


def silence_lightning() -> None:
    """Keeps Lightning's remarks on devices and precision out of the output."""
    for package in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(f"{package}.utilities.rank_zero").setLevel(logging.WARNING)


def quoted(word: str | Path) -> str:
    """A word of a command, as a shell takes it."""
    return shlex.quote(str(word))


def columns_of(smiles: str | None, identifiers: str | None, tasks: list[str] | None = None) -> dict[str, Any]:
    """The columns that were named on the command line, as :func:`joao.read` takes them."""
    given = {"smiles": smiles, "identifiers": identifiers, "tasks": tasks or None}
    return {role: column for role, column in given.items() if column is not None}


def column_words(smiles: str | None, identifiers: str | None) -> str:
    """The same as words behind a source, for a command that is to read it likewise."""
    given = {"--smiles": smiles, "--id": identifiers}
    return "".join(f" {option} {quoted(column)}" for option, column in given.items() if column is not None)


def read_data(
    source: str,
    data_root: str | None,
    output: Output,
    columns: Mapping[str, Any] | None = None,
    then: str = "are left out",
) -> Dataset:
    """Reads a data set, molecules on all cores with a progress bar, and passes its notices on; a store, whole.

    Args:
        source: name or path.
        data_root: where names are looked up.
        output: for notices.
        columns: of a table, as :func:`joao.read` takes them.
        then: what becomes of rows that are no molecules.
    """
    from joao.data import Dataset

    found = open_data(source, data_root, output, columns, then)
    return found if isinstance(found, Dataset) else found.whole()


def open_data(
    source: str,
    data_root: str | None,
    output: Output,
    columns: Mapping[str, Any] | None = None,
    then: str = "are left out",
) -> Dataset | Shards:
    """Like :func:`read_data`; the graphs of a store stay in their shards."""
    from joao.data import Shards, read

    with output.progress("reading molecules", None) as bar:
        dataset = read(source, data_root, jobs=all_cores(), on_rows=bar.add, **(columns or {}))
    for notice in dataset.notices:
        output.notice(notice)
    if isinstance(dataset, Shards):
        return dataset
    if dataset.failures:
        first = dataset.failures[0]
        place = f"line {first.line}" if first.line else f"row {first.row}"
        output.notice(f"{dataset.failure_notice} and {then}. The first: {place}, {first.text[:40]!r}: {first.reason}")
    return dataset


def read_run_data(
    run: Path, source: str, data_root: str | None, output: Output, columns: Mapping[str, Any] | None = None
) -> Dataset:
    """Reads the graphs that a run names; where they are not to be found, says whose they are."""
    from joao.data import Dataset

    found = open_run_data(run, source, data_root, output, columns)
    return found if isinstance(found, Dataset) else found.whole()


def open_run_data(
    run: Path, source: str, data_root: str | None, output: Output, columns: Mapping[str, Any] | None = None
) -> Dataset | Shards:
    """Like :func:`read_run_data`; the graphs of a store stay in their shards."""
    try:
        return open_data(source, data_root, output, columns)
    except UserError as error:
        raise UserError(f"{run}: its graphs: {error}") from error


def blank_rows(dataset: Dataset) -> str:
    """How many rows an output has for what is no molecule, behind a comma."""
    count = len(dataset.failures)
    return f", {count} blank row{'s' if count > 1 else ''}" if count else ""


def free_path(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist yet."""
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate
