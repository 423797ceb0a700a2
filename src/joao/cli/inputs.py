"""Options that several commands share, and how commands read graphs.

Lists in help texts are constants if their registries import torch or numpy, because ``--help`` must not wait for them.
tests/cli/test_help.py compares them with the registries.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from joao.cli.output import Output, quantity, shell_quote
from joao.core.errors import UserError, suggest
from joao.core.processes import all_cores as all_cores
from joao.data.formats import DATA_HELP

if TYPE_CHECKING:
    from joao.config.recipe import Recipe
    from joao.data import Dataset, Features, Shards
    from joao.runs.folder import RunInfo

Command = TypeVar("Command", bound=Callable[..., None])
PRECISIONS = ("32-true", "tf32", "bf16-mixed", "16-mixed")
PRECISION_HELP = f"Numerical precision: {', '.join(PRECISIONS)}."

MODEL: Any = Argument(..., metavar="RUN", help="A finished run, its export, or the bundled model 'molecules'.")
DataRoot = Annotated[str | None, Option(envvar="JOAO_DATA", help="Folder in which data sets are looked up by name.")]
SmilesColumn = Annotated[str | None, Option(metavar="COLUMN", help="SMILES column of a table (detected if not given).")]
IdColumn = Annotated[
    str | None, Option("--id", metavar="COLUMN", help="Identifier column of a table (detected if not given).")
]
Standardise = Annotated[
    bool | None,
    Option(
        "--standardise/--no-standardise",
        show_default="as the model was trained, or no",
        help="Standardise molecules with RDKit: keep the largest fragment, neutralise charges.",
    ),
]
Tasks = Annotated[
    list[str] | None, Option("--task", metavar="COLUMN", help="Label column of a table (default: all numeric columns).")
]
Device = Annotated[str, Option(help="auto (a GPU if available), cpu, cuda or one GPU such as cuda:1.")]
Engine = Annotated[
    str, Option(help="local (this machine) or ray (a Ray cluster; needs 'joao[ray]'). OUT is a folder then.")
]
Workers = Annotated[
    int | None,
    Option(min=1, show_default="one per core, or per GPU", help="Number of processes; only for folders."),
]
PartRows = Annotated[int | None, Option(min=1, show_default="16384", help="Rows per part; only for folders.")]
Precision = Annotated[str, Option(help=PRECISION_HELP)]
Fast = Annotated[
    bool | None,
    Option(
        "--fast/--plain",
        help="Train with or without the compiled core (pre-training on a CPU) or padded batches (GPU); default: --fast "
        "if supported.",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead of text.")]
ScorerName = Annotated[
    str,
    Option(
        "--scorer",
        help="exact (an SVM fitted by libsvm or on a GPU), compiled (the same in the compiled core, several times as "
        "fast), linear (Nyström features, for many graphs), or auto: linear above 10,000 graphs, otherwise compiled "
        "on a CPU if the core was built, otherwise exact.",
    ),
]
TwinsTogether = Annotated[
    bool, Option("--twins-together", help="Put twins (graphs with the same edges and node labels) in the same fold.")
]


def flag(name: str, text: str) -> Any:
    """An option without a value, with the help ``text``; not given means False."""
    return Option(False, name, help=text)


def check_file_options(out: Path, engine: str, **options: object) -> None:
    """Raise an error if options for a folder are given with one output file."""
    names = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if engine != "local" or names:
        raise UserError(f"{out}: {(*names, '--engine')[0]} needs a folder of parts. Use a name without suffix.")


def column_options(
    smiles: str | None, identifiers: str | None, tasks: list[str] | None = None, standardise: bool | None = None
) -> dict[str, Any]:
    """How to read a table, from the command line, as keyword arguments of :func:`joao.read`."""
    columns = {"smiles": smiles, "identifiers": identifiers, "tasks": tasks or None, "standardise": standardise or None}
    return {role: column for role, column in columns.items() if column is not None}


def standardise_as(info: RunInfo, requested: bool | None, output: Output) -> bool:
    """Whether to standardise molecules for a model: as ``requested`` or, by default, as those that it learned from."""
    data = "" if info.finetuned_on else f" ({info.data})"  # the labels may be of other molecules
    if requested is None and info.standardised:
        output.notice(f"molecules are standardised, as those that the model learned from{data}.")
    elif requested is False and info.standardised:
        output.notice(f"the model learned from standardised molecules{data}, and these are not.")
    return info.standardised if requested is None else requested


def source_words(source: str, columns: Mapping[str, Any], data_root: str | None) -> str:
    """DATA and the options to read it in the same way, for a command that the user can paste."""
    options = {"--smiles": columns.get("smiles"), "--id": columns.get("identifiers")}
    chosen = "".join(f" {option} {shell_quote(column)}" for option, column in options.items() if column)
    chosen += " --standardise" if columns.get("standardise") else ""
    return f"{shell_quote(source)}{chosen}{data_root_words(data_root)}"


def is_available(source: str) -> bool:
    """Whether DATA is found here without a download; that of a model from elsewhere may be missing."""
    from joao.data.names import list_datasets

    with suppress(UserError):
        return os.path.exists(source) or source in list_datasets()
    return False


def data_root_words(data_root: str | None) -> str:
    """The option ``--data-root``, after a space, unless the environment sets the same folder."""
    return f" --data-root {shell_quote(data_root)}" if data_root and data_root != os.environ.get("JOAO_DATA") else ""


def with_data_help(command: Command) -> Command:
    """Append the list of data formats to the help text of a command."""
    command.__doc__ = f"{inspect.getdoc(command)}\n\n{DATA_HELP}"
    return command


def open_data(
    source: str, data_root: str | None, output: Output, columns: Mapping[str, Any], then: str = "are left out"
) -> Dataset | Shards:
    """Open a data set and print its notices; molecules are read on all cores, with a progress bar.

    ``columns`` are keyword arguments of :func:`joao.read`; ``then`` says what happens to rows that RDKit cannot parse.
    """
    from joao.data import Shards, read

    with output.progress("reading", None) as bar:
        dataset = read(source, data_root, jobs=all_cores(), on_rows=bar.add, **columns)
    for notice in dataset.notices:
        output.notice(notice)
    if not isinstance(dataset, Shards) and dataset.failures:
        output.notice(f"{dataset.failure_notice} and {then}. The first: {dataset.failures[0]}")
    return dataset


def read_data(
    source: str, data_root: str | None, output: Output, columns: Mapping[str, Any], then: str = "are left out"
) -> Dataset:
    """Like :func:`open_data`, but load the graphs of shards into memory."""
    return in_memory(open_data(source, data_root, output, columns, then))


def split_column(dataset: Dataset, split: str | None, source: str, data_root: str | None) -> list[str] | None:
    """Part of each graph of ``dataset`` in the column ``split`` of the table ``source``; None if it is no column."""
    from joao.data.formats.smiles import read_text_column
    from joao.data.names import resolve_path
    from joao.data.sources import csv_header, is_table
    from joao.evaluation.splits import SHARES

    if split is None or split in SHARES or not is_table(source, data_root):
        return None
    header = csv_header(source, data_root)
    if header and split not in header:
        known = suggest(split, [*SHARES, *header])
        raise UserError(f"split: '{split}' is neither a kind of split nor a column of {source}. {known}")
    cells = read_text_column(resolve_path(source, data_root), split)
    return [cells[row] for row in dataset.rows]


def open_run_data(run: Path, recipe: Recipe, data_root: str | None, output: Output) -> Dataset | Shards:
    """Open the graphs that a run was trained on; an error names the run."""
    try:
        return open_data(recipe.data, data_root, output, recipe.columns)
    except UserError as error:
        raise UserError(f"{run}: cannot read its graphs: {error}") from error


def in_memory(graphs: Dataset | Shards) -> Dataset:
    """Load the graphs of shards into memory; other data sets are there already."""
    from joao.data import Dataset

    return graphs if isinstance(graphs, Dataset) else graphs.whole()


def can_evaluate(dataset: Dataset) -> bool:
    """Whether ``joao evaluate`` accepts these graphs: there are two classes, and every class fills ten folds."""
    import numpy as np

    counts = np.zeros(0) if dataset.classes is None else np.bincount(dataset.classes[dataset.classes >= 0])
    return len(counts) > 1 and int(counts.min()) >= 10


def warn_unknown_labels(features: Features, graphs: Dataset | Shards, output: Output) -> None:
    """Print a notice about node labels that the encoder has not seen in training."""
    unknown = features.unknown_labels(graphs)
    if unknown:
        were = "was" if unknown == 1 else "were"
        output.notice(f"{graphs.name}: {quantity(unknown, 'node labels')} {were} not seen in training.")


def blank_rows(dataset: Dataset) -> str:
    """The number of blank rows that an output file has for rows that RDKit cannot parse, after a comma."""
    count = len(dataset.failures)
    return f", {quantity(count, 'blank rows')}" if count else ""
