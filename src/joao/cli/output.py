"""What commands print: text, tables, JSON, progress, and commands to paste."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from joao.core.errors import Interrupted, UserError, escape_control
from joao.core.errors import quantity as quantity
from joao.core.progress import Bar, Progress, make_table
from joao.core.signals import catch_stop_signals

if TYPE_CHECKING:
    from joao.data import Dataset


class Output:
    """Print text, or one JSON object, to standard output; notices and progress go to standard error."""

    def __init__(self, quiet: bool, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.shown = Progress(bars=not quiet, lines=not quiet and not as_json)

    def say(self, *lines: str) -> None:
        """Print lines; a line break in a name does not start another one."""
        for line in lines if not self.quiet and not self.as_json else ():
            typer.echo(escape_control(line, kept="\t"))

    def notice(self, text: str) -> None:
        if not self.quiet:
            typer.echo(escape_control(f"joao: note: {text}", kept=""), err=True)

    def log(self, text: str) -> None:
        """Print a line to standard error, unless that is a terminal (which shows a progress bar instead)."""
        self.shown.line(text)

    def progress(self, what: str, total: int | None, in_lines: bool = True) -> AbstractContextManager[Bar]:
        """Show the progress of some work, see :meth:`joao.core.progress.Progress.bar`."""
        return self.shown.bar(what, total, in_lines)

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

        # Tables in files and pipes are not wrapped to the width of a terminal.
        Console(width=None if sys.stdout.isatty() else 200).print(make_table(header, lines, title))


@contextmanager
def continued_if_repeated() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, and the message says that the same command continues.

    Nothing is printed to standard output, where Ray reports workers that die.
    """
    with catch_stop_signals(lambda text: None, at_once=True) as stop, redirect_stdout(sys.stderr):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted("interrupted. Run the same command again to continue.", stop.code) from None


def shell_quote(word: str | Path) -> str:
    return shlex.quote(str(word))


def free_path(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist yet."""
    if not path.name:
        raise UserError(f"{path}: is not the name of a new file or folder.")
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(each for each in chain([path], numbered) if not each.exists())


def check_suffix(path: Path, *known: str) -> None:
    """Raise an error if the name of an output does not end as its type demands."""
    if not path.name.endswith(known):
        raise UserError(f"{path}: unknown file type '{path.suffix}'. Use {' or '.join(known)}.")


def check_row_file(path: Path) -> Path:
    """Check the path of a new file with one row per graph; returns the path for its failed rows."""
    from joao.core.files import check_new_file, import_parquet

    check_suffix(path, ".npz", ".csv", ".parquet")
    check_new_file(path)
    if path.suffix == ".parquet":
        import_parquet(path)
    failures = path.with_name(f"{path.name}.failures.csv")
    check_new_file(failures)
    return failures


def write_row_file(path: Path, content: Any, failures: Path, dataset: Dataset) -> dict[str, Any]:
    """Write one row per graph and, if there are any, the rows that RDKit cannot parse; returns the JSON output."""
    from joao.core.files import write_file
    from joao.runs.result_files import failures_csv

    result = {"file": str(path), "graphs": len(dataset)}
    if dataset.failures:  # first: a file of rows without it would be incomplete
        write_file(failures, failures_csv(dataset), new=True)
        result |= {"blank": len(dataset.failures), "failures": str(failures)}
    write_file(path, content, new=True)
    return result


def next_in_python(path: Path, name: str) -> str:
    """A line with Python code that reads an output: array ``name`` of an .npz file, or a table."""
    if path.suffix == ".npz":
        return f"Next, in Python: import numpy; numpy.load({str(path)!r})['{name}']"
    read = f"read_csv({str(path)!r}, index_col='graph')" if path.suffix == ".csv" else f"read_parquet({str(path)!r})"
    missing = "" if find_spec("pandas") else " (pip install pandas)"
    return f"Next, in Python{missing}: import pandas; pandas.{read}"
