"""``joao embed`` and ``joao export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.output import (
    Output,
    check_row_file,
    continued_if_repeated,
    free_path,
    next_in_python,
    quantity,
    shell_quote,
    write_row_file,
)
from joao.core.errors import UserError, short_repr, suggest

if TYPE_CHECKING:
    from joao.baselines import Baseline


def embed(
    out: Path = Option(..., help="Folder of Parquet parts (no suffix), or new file (.csv, .npz or .parquet)."),
    run: Path = inputs.MODEL,
    source: str | None = Argument(None, metavar="DATA", help="Name or path of the graphs."),
    pretrained: str | None = Option(None, metavar="NAME", help="Older way to name a bundled model; use RUN."),
    beside: str | None = Option(
        None, "--with", metavar="NAMES", help="Also write rows of baselines, such as wl or wl,ldp, fitted on DATA."
    ),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: inputs.Tasks = None,
    standardise: inputs.Standardise = None,
    engine: inputs.Engine = "local",
    workers: inputs.Workers = None,
    part_rows: inputs.PartRows = None,
    device: inputs.Device = "auto",
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Write the embeddings of graphs, one row per graph, in the order of the data.

    Rows of a table that RDKit cannot parse are left blank and listed in OUT.failures.csv or OUT/_failures.csv. A folder
    is for any number of rows: the data are read in blocks, several processes or a Ray cluster write one part each, and
    the same command continues after an interruption. DATA may then also be a folder of tables.
    """
    if pretrained is not None and source is None:
        run, source = Path(pretrained), str(run)
    if source is None or pretrained not in (None, str(run)):
        raise UserError("embed: expected RUN and DATA, for example 'joao embed molecules my.csv --out embeddings.csv'.")
    output = Output(quiet, as_json)
    if not out.suffix:
        if beside is not None:
            raise UserError(f"{out}: --with needs one file. Write .csv, .npz or .parquet.")
        options = {"engine": engine, "workers": workers, "part_rows": part_rows, "device": device}
        write_folder("embed", run, (source, smiles, identifiers, data_root), standardise, out, output, options)
        return
    inputs.check_file_options(out, engine, workers=workers, part_rows=part_rows)
    failures = check_row_file(out)
    from joao.data import Dataset
    from joao.runs.result_files import check_width, embeddings_csv, embeddings_npz, embeddings_parquet
    from joao.runs.trained import load_run, model_path

    model = model_path(run)
    trained, is_bundled = load_run(model, device=device), model != run
    baselines = _baselines(beside)
    standardise = inputs.standardise_as(trained.info, standardise, output)
    columns = inputs.column_options(smiles, identifiers, tasks, standardise)
    graphs = inputs.open_data(source, data_root, output, columns, then=f"are left blank, see {failures}")
    dataset = graphs if isinstance(graphs, Dataset) else graphs.labels()
    added = {}
    for name, baseline in baselines.items():  # before the encoder runs, because their rows may be too wide
        added[name] = baseline.fit_transform(graphs if isinstance(graphs, Dataset) else graphs.whole())
        if out.suffix != ".npz":
            check_width(name, added[name])
    embeddings = trained.embed(graphs).numpy()
    inputs.warn_unknown_labels(trained.info.features, graphs, output)
    formats = {".csv": embeddings_csv, ".npz": embeddings_npz, ".parquet": embeddings_parquet}
    content = formats[out.suffix](embeddings, dataset, added)
    num_graphs, dimensions = embeddings.shape
    widths = {name: rows.shape[1] for name, rows in added.items()}
    result = {**write_row_file(out, content, failures, dataset), "dimensions": dimensions}
    output.result({**result, **({"with": widths} if widths else {})})
    sizes = f"{quantity(num_graphs, dataset.kind)}, {quantity(dimensions, 'dimensions')}"
    sizes += "".join(f", {quantity(width, 'columns')} of {name}" for name, width in widths.items())
    output.say(f"{out}: {sizes}{inputs.blank_rows(dataset)}.")
    data = inputs.source_words(source, columns, data_root)
    if trained.info.finetuned_on:
        output.suggest(f"predict {shell_quote(run)} {data}", Path("predictions.csv"))
    elif dataset.targets is not None:
        output.suggest(f"finetune {shell_quote(run)} {data}", run.with_name(f"{run.stem}-finetuned"))
    elif not is_bundled and inputs.can_evaluate(dataset):
        output.suggest(f"evaluate {shell_quote(run)} {inputs.source_words(source, {}, data_root)}")
    else:
        output.say(next_in_python(out, "embeddings"))


def write_folder(
    what: str,
    run: Path,
    data: tuple[str, str | None, str | None, str | None],
    standardise: bool | None,
    out: Path,
    output: Output,
    options: dict[str, Any],
) -> None:
    """Write embeddings or predictions as Parquet parts, and print a summary.

    Args:
        data: DATA, the columns of SMILES and identifiers, and the folder of data sets.
        standardise: whether to standardise molecules; None: as the model was trained.
        options: options of :func:`joao.runs.parts.write_parts`; None for the default.
    """
    from joao.core.engines import check_engine
    from joao.core.files import import_parquet, refuse_dash
    from joao.data.formats.smiles import Columns
    from joao.runs.parts import FAILURES, PART_ROWS, encoder_of, load_model, open_sources, unread_notice, write_parts
    from joao.training.device import pick_device

    refuse_dash(out)
    check_engine(options["engine"])
    import_parquet(out)
    model = load_model(run, what)
    source, smiles, identifiers, data_root = data
    standardise = inputs.standardise_as(encoder_of(model).info, standardise, output)
    if left_out := unread_notice(source):
        output.notice(left_out)
    sources = open_sources(source, Columns(smiles, identifiers, ()), data_root, standardise=standardise)
    if options["engine"] == "local" and options["workers"] is None and pick_device(options["device"]).type == "cpu":
        options["workers"] = inputs.all_cores()
    with continued_if_repeated(), output.progress("parts", None, in_lines=False) as bar:

        def on_part(parts: int, rows: int) -> None:
            bar.add(1, parts + 1)
            output.log(f"{out}: {quantity(parts, 'parts')}, {quantity(rows, 'rows')}")

        options["part_rows"] = options["part_rows"] or PART_ROWS
        written = write_parts(sources, model, out, **options, on_part=on_part)
    for notice in written.notices:
        output.notice(notice)
    failed, unknown = written.num_failures, sum(part.unknown_labels for part in written.parts)
    if failed == len(written) > 0:
        raise UserError(
            f"{source}: none of {quantity(failed, 'rows')} is a valid molecule, see {out / FAILURES}. "
            "If another column contains the SMILES, give its name with --smiles, and another --out."
        )
    if failed:
        output.notice(
            f"{failed} of {len(written)} rows are not valid molecules. They are null, and listed in {out / FAILURES}."
        )
    if unknown:
        output.notice(f"{quantity(unknown, 'node labels')} did not occur in training.")
    facts = {"folder": str(out), "rows": len(written), "failures": failed, "parts": len(written.parts)}
    output.result({**facts, "computed": written.computed})
    earlier = len(written.parts) - written.computed
    remark = f" ({earlier} already there)" if earlier else ""
    output.say(f"{out}: {quantity(len(written), 'rows')} in {quantity(len(written.parts), 'parts')}{remark}.")
    output.say(next_in_python(out, ""))


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


def export(
    run: Path = inputs.MODEL,
    out: Path = Option(..., help="File to write, .safetensors; must not exist yet."),
    half: bool = inputs.flag("--half", "Store the encoder's matrices in half precision (half the size)."),
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Export a run to one file for sharing, with its weights and recipe, and write a model card beside it.

    A model for molecules comes with joao: 'joao embed molecules DATA --out FILE' uses it.
    """
    from joao.runs.export import export
    from joao.runs.trained import model_path

    output = Output(quiet, as_json)
    exported = export(model_path(run), out, half=half)
    file, card, size, change = exported.file, exported.card, exported.num_bytes, exported.half_change
    output.result({"file": str(file), "card": str(card), "bytes": size, "half_change": change})
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    output.say(f"{file}: {shown}. Model card: {card}")
    if change is not None:
        output.say(f"Half precision changes embeddings by up to {change:.2g} of their norm.")
    recipe, finetuned = exported.trained.recipe, exported.finetuned
    command, file_name, source, columns = "embed", "embeddings.csv", recipe.data, recipe.columns
    if finetuned is not None:
        command, file_name = "predict", "predictions.csv"
        source, columns = finetuned.info.source, dict(finetuned.info.columns)
    if source and inputs.is_available(source):
        data = inputs.source_words(source, columns, None)
        output.suggest(f"{command} {shell_quote(out)} {data}", Path(file_name))
    else:
        output.say(f"With your own graphs: joao {command} {shell_quote(out)} DATA --out {free_path(Path(file_name))}")
