from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, DataRoot, Device, Quiet
from joao.cli.output import Output
from repro.cli.tables import Jobs, Records, follow, names, place, to_do

Only = Annotated[str, typer.Option(help="Data sets, with commas between.", show_default="those of the paper's figure")]
Pictures = Annotated[Path, typer.Option("--figures", help="Folder of the pictures: PDF, SVG and PNG.")]


def figure_2(
    only: Only = "",
    out: Records = Path("results/gamma"),
    figures: Pictures = Path("results/figures"),
    jobs: Jobs = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Figure 2: training curves of JOAO for gamma 0.01, 0.1, 1 and 10, three seeds each.

    What has a record is not computed again. Nothing is scored.
    """
    from joao.core.files import make_folder, write_file
    from repro.protocols.gamma import cells, compute_missing, is_done, read_record
    from repro.tables.figures import draw_figure_2, gamma_markdown

    output = Output(quiet, as_json)
    wanted = cells(names(only))
    missing = [cell for cell in wanted if not is_done(cell, out)]
    output.say(to_do(len(wanted), "pre-trainings", len(missing), f"Records: {out}"))
    done = compute_missing(missing, place(out, data_root, device, jobs))
    follow(output, "pre-trainings", len(missing), done, str)
    records = [read_record(cell.path(out)) for cell in wanted]
    heading = "# JOAO for several gamma\n\nMade from records by `joao reproduce figure-2`; not to be edited.\n\n"
    write_file(out / "table.md", heading + gamma_markdown(records))
    make_folder(figures)
    _say(draw_figure_2(records, figures / "figure-2"), output)


def figure_3(
    only: Only = "",
    method: Annotated[str, typer.Option(help="joao, or joaov2 for the paper's Figure S1.")] = "joao",
    records: Annotated[Path, typer.Option(help="Folder of records of 'joao reproduce'.")] = Path(
        "results/semi-supervised"
    ),
    figures: Pictures = Path("results/figures"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Figure 3: the pairs of augmentations drawn on four data sets, from records that are there."""
    from joao.core.files import make_folder
    from repro.tables.figures import FIGURE_3, draw_figure_3, read_policies

    output = Output(quiet, as_json)
    found = read_policies(records, names(only) or FIGURE_3, method)
    make_folder(figures)
    name = "figure-3" if method == "joao" else f"figure-3-{method}"
    _say(draw_figure_3(found, method, figures / name), output)


def _say(paths: list[Path], output: Output) -> None:
    output.result({"figures": [str(path) for path in paths]})
    output.say(f"Figures: {', '.join(str(path) for path in paths)}")
    output.say("Next, with your own runs: joao report RUN --figures FOLDER")
