from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joao.cli.inputs import DataRoot, Quiet, open_run_data, whole
from joao.cli.output import Output

if TYPE_CHECKING:
    from joao.data import Dataset
    from joao.runs.folder import Run


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or their exports, to be compared.")],
    out: Annotated[Path, typer.Option(help="The page to write; an older page of this command is replaced.")] = Path(
        "report.html"
    ),
    kind: Annotated[
        str, typer.Option("--map", help="Of the embeddings: pca (at once), tsne, or umap (needs umap-learn).")
    ] = "pca",
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write each picture as PDF, SVG and PNG, too.")
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, help="Most graphs on a map; of more, a sample is taken.")] = 5000,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Write one page of HTML about runs: what they learned, how good it is, and how they compare.

    The page needs no network. Without the graphs of a run it has no map and no drawings, and says so.
    """
    output = Output(quiet)
    from joao.core.files import write_file
    from joao.report.embedding_map import check_kind
    from joao.report.rendering import check_replaceable, render
    from joao.report.subject import names_of, open_subject

    check_kind(kind)
    check_replaceable(out)

    def read(run: Run) -> Dataset:
        return whole(open_run_data(run.folder, run.recipe.data, data_root, output, run.recipe.columns))

    subjects = []
    for path, name in zip(runs, names_of(runs), strict=True):
        subject = open_subject(path, name, read, graphs, kind)
        for why in filter(None, dict.fromkeys([subject.why_not_dataset, subject.why_not_trained])):
            output.notice(f"{name}: no map of embeddings. {why}")
        subjects.append(subject)
    write_file(out, render(subjects))
    output.say(f"Report: {out} ({out.stat().st_size / 1000:,.0f} kB). Open it in a browser.")
    if figures is not None:
        from joao.report.figures import write_figures

        written = write_figures(subjects, figures)
        output.say(f"Pictures, each as PDF, SVG and PNG: {', '.join(written)} in {figures}")
