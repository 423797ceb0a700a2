"""What the commands that make the paper's tables and figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from joao.cli.inputs import all_cores
from joao.cli.output import Output
from joao.core.errors import UserError

if TYPE_CHECKING:
    from repro.protocols.cells import Where

Only = Annotated[str, typer.Option(help="Data sets, with commas between.", show_default="all that are at hand")]
Methods = Annotated[str, typer.Option(help="Methods, with commas between.", show_default="all of the table")]
LabelRate = Annotated[str, typer.Option(help="Percent, with commas between.", show_default="1,10")]
Records = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")]

RUNS = Path("runs")
Work = TypeVar("Work")


def names(text: str) -> list[str]:
    """What was given with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def rates(text: str) -> list[int]:
    """Label rates that were given with commas between."""
    given = [name.removesuffix("%").strip() for name in names(text)]
    for name in given:
        if not name.isdecimal():
            raise UserError(f"--label-rate {text}: must be whole percents such as 1,10.")
    return [int(name) for name in given]


def place(
    out: Path, data_root: str | None, device: str, jobs: int | None, precision: str | None = None, encoders: Path = RUNS
) -> Where:
    """Where a table lies and what it is computed with; a precision that is given must be one that the device has."""
    from joao.training.device import check_precision
    from repro.protocols.cells import Where

    if precision is not None:
        check_precision(device, precision)
    return Where(out, data_root, device, precision or "32-true", jobs or all_cores(), encoders)


def to_do(wanted: int, what: str, missing: int, places: str) -> str:
    """How much is there already, and how it is computed again where all is.

    >>> to_do(20, "cells", 0, "Records: results")
    '20 cells, 20 done before. Records: results. Nothing is left to compute; with another --out it is computed anew.'
    """
    nothing = "" if missing else ". Nothing is left to compute; with another --out it is computed anew."
    return f"{wanted} {what}, {wanted - missing} done before. {places}{nothing}"


def follow(
    output: Output, what: str, number: int, done: Iterable[Work], in_words: Callable[[Work], str], said: str = "done"
) -> None:
    """Goes through ``done``, which computes ``number`` of ``what`` on the way, and tells each of them."""
    with output.progress(what, number, in_lines=False) as bar:
        for work in done:
            bar.advance(in_words(work))
            output.log(f"{said}: {in_words(work)}")


def publish(
    output: Output, header: Sequence[str], lines: Sequence[Sequence[str]], title: str, protocol: str, records: Path
) -> None:
    """Prints a table, or its lines as JSON, and makes the documents of all records of its protocol again."""
    from repro.tables.pages import write_tables

    output.table(header, lines, title=title)
    output.result({"rows": [dict(zip(header, line, strict=True)) for line in lines]})
    write_tables(protocol, records)
