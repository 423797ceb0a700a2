"""Commands that work from existing records: check, figure 3, tables and documentation."""

from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Quiet
from joao.cli.output import Output
from repro.cli.options import DEFAULT_FIGURES, DEFAULT_RECORDS, Encoders, Pictures, pages_folder, split_names

ReadRecords = Annotated[Path, typer.Option(help="Folder of the records.")]


def check(
    key: Annotated[
        str,
        typer.Argument(
            metavar="RECORD",
            help="Key of a record of any table: MUTAG/joao-0, NCI1/joao-10-0, bace/joao, ogbg-molbace/joao-10.",
        ),
    ],
    records: ReadRecords = DEFAULT_RECORDS,
    encoders: Encoders = Path("runs/transfer"),
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compute a record again and compare; exit code 1 if it differs too much.

    With the same processor and versions nothing differs. Other processors round differently, a GPU draws other random
    numbers, and training amplifies both. Allowed is three times the spread that was measured between devices
    (docs/results/remade.md). Rows of the transfer table use the pre-trained encoders in --encoders, and pre-train those
    that are missing.
    """
    from repro.protocols.cells import RunOptions
    from repro.protocols.check import check_record

    output = Output(quiet, as_json)
    options = RunOptions(records, data_root, device, encoders=encoders)
    comparisons = check_record(records, key, options)
    lines = [
        [each.what, each.recorded, each.found, f"{each.difference:.2g}", f"{each.allowed:.2g}", each.verdict]
        for each in comparisons
    ]
    output.table(["", "recorded", "found", "difference", "allowed", ""], lines, title=key)
    holds = all(each.holds for each in comparisons)
    findings = [
        {"what": each.what, "recorded": each.recorded, "found": each.found, "holds": each.holds} for each in comparisons
    ]
    output.result({"record": key, "holds": holds, "findings": findings})
    if not holds:
        raise typer.Exit(1)
    exactly = all(each.difference == 0 for each in comparisons)
    output.say(f"The record is reproduced{', bit for bit' if exactly else ''}.")


def figure_3(
    only: Annotated[
        str, typer.Option(help="Data sets, separated by commas.", show_default="those of the paper's figure")
    ] = "",
    method: Annotated[str, typer.Option(help="joao, or joaov2 for the paper's Figure S1.")] = "joao",
    records: ReadRecords = DEFAULT_RECORDS,
    figures: Pictures = DEFAULT_FIGURES,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Figure 3: the pairs of augmentations drawn on four data sets, from existing records."""
    from joao.core.files import make_folder
    from repro.tables.learned import FIGURE_3, draw_figure_3, read_policies

    output = Output(quiet, as_json)
    found = read_policies(records, split_names(only) or FIGURE_3, method)
    make_folder(figures)
    name = "figure-3" if method == "joao" else f"figure-3-{method}"
    show_figures(draw_figure_3(found, method, figures / name), output)


def show_figures(paths: list[Path], output: Output) -> None:
    """Print where figures were written."""
    output.result({"figures": [str(path) for path in paths]})
    output.say(f"Figures: {', '.join(str(path) for path in paths)}")
    output.say("Next, with your own runs: joao report RUN --figures FOLDER")


def tables(
    records: Annotated[Path, typer.Argument(metavar="RECORDS", help="Folder of the records.")] = DEFAULT_RECORDS,
    out: Annotated[
        Path | None,
        typer.Option(help="Page with all tables: .md, .tex or .html. An existing file is replaced."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Print and write the tables of all records, next to the paper's figures. Nothing is computed."""
    from joao.core.errors import user_error_on_failure
    from repro.tables.pages import write_all

    output = Output(quiet, as_json)
    with user_error_on_failure(f"{records}: a record is damaged", "Remove its line to compute it again."):
        sections = write_all(records, pages_folder(records), out)
        for section in sections:
            lines = [[cell.replace("**", "") for cell in line] for line in section.cells()]
            output.table(section.header(), lines, title=section.title)
        output.result({"tables": {each.title: [each.header(), *each.cells()] for each in sections}})
    output.say(f"Tables: {out or pages_folder(records)}")
    output.say("Next, to compute missing cells: python -m repro --help")


def docs(quiet: Quiet = False) -> None:
    """Rewrite all generated pages and all generated blocks of the documentation from the records."""
    from repro.documents.generate import write_documents

    changed = write_documents()
    output = Output(quiet)
    for path in changed:
        output.say(f"changed: {path}")
    output.say(f"{len(changed)} files changed.")
