"""``joao report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import Output, check_suffix
from joao.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joao.data import Dataset, Shards


def report(
    runs: list[Path] = Argument(
        ...,
        metavar="RUN... [DATA]",
        help="Runs, their exports or the bundled model 'molecules'; several are compared. The last may be "
        "graphs to show (default: those of the run).",
    ),
    out: Path = Option(Path("report.html"), help="HTML file to write; an older report is replaced."),
    kind: str = Option("pca", "--map", help="Projection of the embeddings: pca, tsne or umap (needs umap-learn)."),
    figures: Path | None = Option(None, metavar="FOLDER", help="Also write every figure as PDF, SVG and PNG."),
    graphs: int = Option(5000, min=1, help="Maximum number of graphs on a map; larger sets are sampled."),
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
) -> None:
    """Write an HTML page about runs: what they learned, how well they score, and how they compare.

    The page needs no network. If the graphs of a run are not found, its map and drawings are left out; give
    them as DATA.
    """
    output = Output(quiet)
    from joao.core.files import write_file
    from joao.report.rendering import check_replaceable, render
    from joao.report.reported_run import check_map_kind, display_names, open_reported_run
    from joao.runs.folder import Run, is_run
    from joao.runs.trained import model_path

    check_map_kind(kind)
    check_suffix(out, ".html", ".htm")
    check_replaceable(out)

    def read(source: str, columns: Mapping[str, Any]) -> Dataset | Shards:
        return inputs.open_data(source, data_root, output, columns)

    reported, chosen = [], None
    if len(runs) > 1 and not is_run(model_path(runs[-1])):
        *runs, source = runs
        infos = [Run.open(model_path(path)).info for path in runs]  # an error in a name comes before the data are read
        standardise = all(info.standardised for info in infos)
        try:
            chosen = inputs.read_data(str(source), data_root, output, {"standardise": standardise})
        except UserError as error:
            raise UserError(f"{source}: is neither a run nor graphs: {error}") from error
    for path, name in zip(runs, display_names(runs), strict=True):
        run = open_reported_run(model_path(path), name, read, graphs, kind, chosen)
        for reason in filter(None, dict.fromkeys([run.why_not_graphs, run.why_not_trained])):
            output.notice(f"{name}: no map of the embeddings. {reason}")
        reported.append(run)
    write_file(out, render(reported))
    output.say(f"Report: {out} ({out.stat().st_size / 1000:,.0f} kB). Open it in a browser.")
    if figures is not None:
        from joao.report.figures import write_figures

        written = write_figures(reported, figures)
        output.say(f"Figures, each as PDF, SVG and PNG: {', '.join(written)} in {figures}")
