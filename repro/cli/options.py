"""Options and output that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from joao.cli.inputs import all_cores
from joao.cli.output import Output
from joao.core.errors import UserError
from repro.record_files import RECORDS

if TYPE_CHECKING:
    from repro.protocols.cells import RunOptions

Only = Annotated[str, typer.Option(help="Data sets, separated by commas.", show_default="all that are available")]
Methods = Annotated[str, typer.Option(help="Methods, separated by commas.", show_default="all of the table")]
LabelRates = Annotated[str, typer.Option("--label-rate", help="Percentages, separated by commas.", show_default="1,10")]
Records = Annotated[Path, typer.Option("--out", help="Folder of the records (.jsonl), read and written.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Number of processes.", show_default="all cores")]
Engine = Annotated[str, typer.Option(help="local, or ray: compute the cells on a Ray cluster.")]
Encoders = Annotated[Path, typer.Option(help="Folder of the pre-trained encoders.")]
Pictures = Annotated[Path, typer.Option("--figures", help="Folder for PDF, SVG and PNG.")]

# Relative to the working folder, which should be that of the clone.
DEFAULT_RECORDS = Path("repro/records")
DEFAULT_FIGURES = Path("docs/results/figures")
Work = TypeVar("Work")


def split_names(text: str) -> list[str]:
    """Split names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_label_rates(text: str) -> list[int]:
    """Parse percentages that are separated by commas."""
    rates = [name.removesuffix("%").strip() for name in split_names(text)]
    for rate in rates:
        if not rate.isdecimal():
            raise UserError(f"--label-rate {text}: expected whole percentages such as 1,10.")
    return [int(rate) for rate in rates]


def run_options(
    out: Path,
    data_root: str | None,
    device: str,
    jobs: int | None,
    precision: str | None = None,
    encoders: Path | None = None,
    engine: str = "local",
) -> RunOptions:
    """Collect the options of a command. The device must support the precision."""
    from joao.core.engines import check_engine
    from joao.training.device import check_precision
    from repro.protocols.cells import RunOptions

    if precision is not None:
        check_precision(device, precision)
    check_engine(engine)
    if engine == "ray":  # whose workers have other working folders
        out, data_root = out.absolute(), data_root and str(Path(data_root).absolute())
    else:
        jobs = jobs or all_cores()
    return RunOptions(out, data_root, device, precision or "32-true", jobs, encoders or Path("runs"), engine)


def progress_summary(wanted: int, what: str, missing: int, folders: str) -> str:
    """Say how many cells exist already.

    >>> progress_summary(20, "cells", 0, "Records: mine")
    '20 cells, 20 already computed. Records: mine. Nothing to compute; use another --out to compute everything again.'
    """
    nothing = "" if missing else ". Nothing to compute; use another --out to compute everything again."
    return f"{wanted} {what}, {wanted - missing} already computed. {folders}{nothing}"


def show_progress(
    output: Output, what: str, total: int, done: Iterable[Work], name: Callable[[Work], str], verb: str = "done"
) -> None:
    """Consume ``done``, which computes one piece of work per item, with a progress bar or one line per item."""
    with output.progress(what, total, in_lines=False) as bar:
        for work in done:
            bar.advance(name(work))
            output.log(f"{verb}: {name(work)}")


def show_table(
    output: Output, header: Sequence[str], lines: Sequence[Sequence[str]], title: str, protocol: str, records: Path
) -> Path:
    """Print a table, or its lines as JSON, write the pages of all records of its protocol, and return their folder."""
    from repro.tables.pages import write_pages

    output.table(header, lines, title=title)
    output.result({"rows": [dict(zip(header, line, strict=True)) for line in lines]})
    write_pages(protocol, records, pages_folder(records))
    return pages_folder(records) / protocol


def pages_folder(records: Path) -> Path:
    """Return where the pages of a folder of records are written: with the records, except for those of the clone."""
    return RECORDS.parents[1] / "docs/results" if records.resolve() == RECORDS else records
