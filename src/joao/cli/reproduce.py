from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli._shared import AsJson, DataRoot, Device, Output, Quiet, all_cores

app = typer.Typer(help="Make the paper's tables again.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make the paper's tables again."""


@app.command()
def unsupervised(
    only: Annotated[str, typer.Option(help="Data sets, with commas between.", show_default="all eight")] = "",
    methods: Annotated[str, typer.Option(help="Methods, with commas between.", show_default="all")] = "",
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Pre-train on each training part alone (ten times the work).")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/unsupervised"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train and score five seeds of every method on every data set, and print the table beside the paper's.

    What has a record is not computed again, so an interrupted run goes on where it was.
    """
    from joao.reporting.results import write_results
    from joao.reporting.tables import HEADER, cells_of, rows
    from joao.reproduce import cells, compute_missing, is_done, read_record

    output = Output(quiet, as_json)
    wanted = cells(_names(only), _names(methods), inductive=inductive)
    missing = [cell for cell in wanted if not is_done(cell, out)]
    output.say(f"{len(wanted)} cells, {len(wanted) - len(missing)} done before. Records: {out}")
    with output.progress("cells", len(missing)) as bar:
        for cell in compute_missing(missing, out, data_root=data_root, device=device, jobs=jobs or all_cores()):
            bar.advance(f"{cell.dataset} {cell.method} seed {cell.seed}")
    records = [read_record(cell.path(out)) for cell in wanted]
    table = rows(records)
    output.table(HEADER, [cells_of(row) for row in table], title="Unsupervised: accuracy of an SVM, five seeds")
    output.result({"rows": [dict(zip(HEADER, cells_of(row), strict=True)) for row in table]})
    output.say(f"Table of all records: {write_results(out)}")
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --out runs/mine")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
