"""Options that several commands take.

How commands read graphs: by name or path, with their notices, molecules on all cores."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.output import Output, quoted
from joao.core.errors import UserError
from joao.data.formats import DATA_HELP

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
Encoders = Annotated[Path, typer.Option(help="Folder of the pre-trained encoders.")]
Precision = Annotated[str, typer.Option(help="32-true, tf32, bf16-mixed or 16-mixed.")]
Fast = Annotated[
    bool | None, typer.Option("--fast/--plain", help="Train on padded batches; by default on a GPU, where possible.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
TwinsTogether = Annotated[
    bool, typer.Option("--twins-together", help="Keep graphs that cannot be told apart in the same fold.")
]


if TYPE_CHECKING:
    from joao.data import Dataset, Features, Shards


def with_data_help(command: Callable[..., None]) -> Callable[..., None]:
    """Append the list of data formats to the help text of a command."""
    command.__doc__ = f"{inspect.getdoc(command) or ''}\n\n{DATA_HELP}"
    return command


def all_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def columns_of(smiles: str | None, identifiers: str | None, tasks: list[str] | None = None) -> dict[str, Any]:
    """The columns that were named on the command line, as :func:`joao.read` takes them."""
    given = {"smiles": smiles, "identifiers": identifiers, "tasks": tasks or None}
    return {role: column for role, column in given.items() if column is not None}


def column_words(smiles: str | None, identifiers: str | None) -> str:
    """The same as words behind a source, for a command that is to read it likewise."""
    given = {"--smiles": smiles, "--id": identifiers}
    return "".join(f" {option} {quoted(column)}" for option, column in given.items() if column is not None)


def open_data(
    source: str, data_root: str | None, output: Output, columns: Mapping[str, Any], then: str = "are left out"
) -> Dataset | Shards:
    """Opens a data set, molecules read on all cores with a progress bar, and passes its notices on.

    Args:
        source: name or path.
        data_root: where names are looked up.
        output: for notices.
        columns: of a table, as :func:`joao.read` takes them.
        then: what becomes of rows that are no molecules.
    """
    from joao.data import Shards, read

    with output.progress("reading molecules", None) as bar:
        dataset = read(source, data_root, jobs=all_cores(), on_rows=bar.add, **columns)
    for notice in dataset.notices:
        output.notice(notice)
    if isinstance(dataset, Shards):
        return dataset
    if dataset.failures:
        first = dataset.failures[0]
        place = f"line {first.line}" if first.line else f"row {first.row}"
        output.notice(f"{dataset.failure_notice} and {then}. The first: {place}, {first.text[:40]!r}: {first.reason}")
    return dataset


def open_run_data(
    run: Path, source: str, data_root: str | None, output: Output, columns: Mapping[str, Any]
) -> Dataset | Shards:
    """Opens the graphs that a run names; where they are not to be found, says whose they are."""
    try:
        return open_data(source, data_root, output, columns)
    except UserError as error:
        raise UserError(f"{run}: its graphs: {error}") from error


def whole(found: Dataset | Shards) -> Dataset:
    """What was opened, with all of its graphs in memory."""
    from joao.data import Dataset

    return found if isinstance(found, Dataset) else found.whole()


def tell_unknown(features: Features, graphs: Dataset | Shards, output: Output) -> None:
    """Tells of labels that an encoder cannot know."""
    unknown = features.unknown_labels(graphs)
    if unknown:
        output.notice(f"{graphs.name}: {unknown} node labels were not seen in training.")


def blank_rows(dataset: Dataset) -> str:
    """How many rows an output has for what is no molecule, behind a comma."""
    count = len(dataset.failures)
    return f", {count} blank row{'s' if count > 1 else ''}" if count else ""
