"""``joao embed`` and ``joao export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import Output, check_row_file, python_command, quantity, shell_quote, write_row_file
from joao.core.errors import UserError, short_repr, suggest

if TYPE_CHECKING:
    from joao.baselines import Baseline


def embed(
    out: Path = Option(..., help="File to write, .npz or .csv; must not exist yet."),
    run: Path | None = Argument(None, metavar="RUN", help="A finished run or its export."),
    source: str | None = Argument(None, metavar="DATA", help="Name or path of the graphs."),
    pretrained: str | None = Option(None, metavar="NAME", help="Use a model that comes with joao instead of RUN."),
    beside: str | None = Option(
        None, "--with", metavar="NAMES", help="Also write rows of baselines, such as wl or wl,ldp, fitted on DATA."
    ),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    device: inputs.Device = "auto",
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Write the embeddings of graphs, one row per graph, in the order of the data.

    Rows of a table that RDKit cannot parse are left blank and listed in OUT.failures.csv.
    """
    failures = check_row_file(out)
    run, source = _model_and_data(run, source, pretrained)
    output = Output(quiet, as_json)
    from joao.data import Dataset
    from joao.runs.result_files import embeddings_csv, embeddings_npz
    from joao.runs.trained import load_run

    trained = load_run(run, device=device)
    baselines = _baselines(beside)
    columns = inputs.column_options(smiles, identifiers, tasks)
    found = inputs.open_data(source, data_root, output, columns, then=f"are left blank, see {failures}")
    embeddings = trained.embed(found).numpy()
    inputs.warn_unknown_labels(trained.info.features, found, output)
    dataset = found if isinstance(found, Dataset) else found.labels()
    added = {
        name: baseline.fit_transform(found if isinstance(found, Dataset) else found.whole())
        for name, baseline in baselines.items()
    }
    content = (embeddings_csv if out.suffix == ".csv" else embeddings_npz)(embeddings, dataset, added)
    num_graphs, dimensions = embeddings.shape
    widths = {name: rows.shape[1] for name, rows in added.items()}
    result = {**write_row_file(out, content, failures, dataset), "dimensions": dimensions}
    output.result({**result, **({"with": widths} if widths else {})})
    sizes = f"{quantity(num_graphs, dataset.kind)}, {quantity(dimensions, 'dimensions')}"
    sizes += "".join(f", {quantity(width, 'columns')} of {name}" for name, width in widths.items())
    output.say(f"{out}: {sizes}{inputs.blank_rows(dataset)}.")
    data = inputs.source_words(source, columns, data_root)
    if pretrained is None and trained.info.finetuned_on:
        output.suggest(f"predict {shell_quote(run)} {data}", Path("predictions.csv"))
    elif pretrained is None and dataset.targets is not None:
        output.suggest(f"finetune {shell_quote(run)} {data}", run.with_name(f"{run.stem}-finetuned"))
    elif pretrained is None and inputs.can_evaluate(dataset):
        output.suggest(f"evaluate {shell_quote(run)} {inputs.source_words(source, {}, data_root)}")
    else:
        output.say(f"Next, in Python: {python_command(out, 'embeddings')}")


def _baselines(names: str | None) -> dict[str, Baseline]:
    """The baselines of ``--with``, not fitted."""
    if names is None:
        return {}
    from joao.baselines import BASELINES

    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in BASELINES:
            raise UserError(f"--with {names}: unknown baseline {short_repr(name)}. {suggest(name, BASELINES)}")
        if (package := BASELINES[name].missing_package()) is not None:
            raise UserError(f"--with {names}: {name} needs {package}. Run 'pip install {package}'.")
    return {name: BASELINES[name]() for name in chosen}


def _model_and_data(run: Path | None, source: str | None, pretrained: str | None) -> tuple[Path, str]:
    """Model and data; with ``--pretrained NAME`` the first argument is the data."""
    if pretrained is not None and run is not None and source is None:
        from joao.runs.trained import bundled_model_path

        return bundled_model_path(pretrained), str(run)
    if pretrained is not None and source is not None:
        raise UserError("embed: got both RUN and --pretrained. Remove one of them.")
    if run is None or source is None:
        raise UserError("embed: missing argument. Give RUN and DATA, or --pretrained NAME and DATA.")
    return run, source


def export(
    run: Path = Argument(..., metavar="RUN", help="A finished run or its export."),
    out: Path = Option(..., help="File to write, .safetensors; must not exist yet."),
    half: bool = inputs.flag("--half", "Store the encoder's matrices in half precision (half the size)."),
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Export a run to one file for sharing: weights, recipe and everything needed to use them; plus a model card.

    A model for molecules comes with joao: see 'joao embed --pretrained molecules'.
    """
    from joao.runs.export import export

    output = Output(quiet, as_json)
    exported = export(run, out, half=half)
    file, card, size, change = exported.file, exported.card, exported.num_bytes, exported.half_change
    output.result({"file": str(file), "card": str(card), "bytes": size, "half_change": change})
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    output.say(f"{file}: {shown}. Model card: {card}")
    if change is not None:
        output.say(f"Half precision changes embeddings by up to {change:.2g} of their norm.")
    trained = exported.trained
    command, made = ("predict", "predictions.csv") if trained.info.finetuned_on else ("embed", "embeddings.csv")
    data = inputs.source_words(trained.recipe.data, trained.recipe.columns, None) if trained.recipe.data else "DATA"
    output.suggest(f"{command} {shell_quote(out)} {data}", Path(made))
