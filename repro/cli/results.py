from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, Quiet
from joao.cli.output import Output


def results(
    records: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Folder of the records of 'joao reproduce'.")
    ] = Path("results"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="Page of all tables to write: .md, .tex or .html; what is there is replaced.", show_default="none"
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make the tables of all records again, each figure beside the paper's.

    Nothing is computed: what has no record has no figure. The documents beside the records are written anew.
    """
    from repro.tables.pages import write_all

    output = Output(quiet, as_json)
    summaries = write_all(records, out)
    for summary in summaries:
        lines = [[cell.replace("**", "") for cell in line] for line in summary.cells()]
        output.table(summary.header(), lines, title=summary.title)
    output.result({"tables": {each.title: [each.header(), *each.cells()] for each in summaries}})
    output.say(f"Tables: {out or records}")
    output.say("Next, to compute what is missing: joao reproduce --help")
