from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from joao.cli.inputs import (
    AsJson,
    DataRoot,
    Device,
    IdColumn,
    Quiet,
    SmilesColumn,
    Tasks,
    blank_rows,
    column_words,
    columns_of,
    open_data,
    tell_unknown,
)
from joao.cli.output import Output, free_path, in_python, quoted
from joao.core.errors import UserError


def embed(
    out: Annotated[Path, typer.Option(help="File to write, .npz or .csv; must not exist yet.")],
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A finished run, or its export.")] = None,
    source: Annotated[str | None, typer.Argument(metavar="DATA", help="Name or path of the graphs.")] = None,
    pretrained: Annotated[
        str | None, typer.Option(metavar="NAME", help="A model that comes with joao, in place of RUN.")
    ] = None,
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of graphs, one row a graph, in the order of the data.

    A row of a table that is no molecule has a blank row; OUT.failures.csv tells why.
    """
    from joao.core.files import check_new_file, write_file

    if out.suffix not in (".npz", ".csv"):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .npz or .csv.")
    check_new_file(out)
    run, source = _model_and_data(run, source, pretrained)
    failures = out.with_name(f"{out.name}.failures.csv")
    check_new_file(failures)
    output = Output(quiet, as_json)
    from joao.data import Dataset
    from joao.runs.result_files import embeddings_csv as as_csv
    from joao.runs.result_files import embeddings_npz as as_npz
    from joao.runs.result_files import failures_csv
    from joao.runs.trained import load_run

    trained = load_run(run, device=device)
    columns = columns_of(smiles, identifiers, tasks)
    found = open_data(source, data_root, output, columns, then=f"have blank rows, see {failures}")
    embeddings = trained.embed(found).numpy()
    tell_unknown(trained.info.features, found, output)
    dataset = found if isinstance(found, Dataset) else found.labels()
    write_file(out, as_csv(embeddings, dataset) if out.suffix == ".csv" else as_npz(embeddings, dataset))
    result: dict[str, Any] = {"file": str(out), "graphs": embeddings.shape[0], "dimensions": embeddings.shape[1]}
    if dataset.failures:
        write_file(failures, failures_csv(dataset))
        result |= {"blank": len(dataset.failures), "failures": str(failures)}
    output.result(result)
    output.say(f"{out}: {embeddings.shape[0]} {dataset.kind}, {embeddings.shape[1]} dimensions{blank_rows(dataset)}.")
    words = f"{quoted(source)}{column_words(smiles, identifiers)}"
    if pretrained is None and trained.info.finetuned_on:
        output.say(f"Next: joao predict {quoted(run)} {words} --out {free_path(Path('predictions.csv'))}")
    elif pretrained is None and dataset.targets is not None:
        tuned = free_path(run.with_name(f"{run.stem}-finetuned"))
        output.say(f"Next: joao finetune {quoted(run)} {words} --out {quoted(tuned)}")
    elif pretrained is None and dataset.classes is not None:
        output.say(f"Next: joao evaluate {quoted(run)} {quoted(source)}")
    else:
        output.say(f"Next, in Python: {in_python(out, 'embeddings')}")


def _model_and_data(run: Path | None, source: str | None, pretrained: str | None) -> tuple[Path, str]:
    """The two arguments; a model that comes with joao takes the place of the first, which then is the data."""
    if pretrained is not None and run is not None and source is None:
        from joao.runs.trained import bundled_model_path

        return bundled_model_path(pretrained), str(run)
    if pretrained is not None and source is not None:
        raise UserError("embed: name a run or --pretrained, not both.")
    if run is None or source is None:
        raise UserError("embed: name a run and DATA, or --pretrained NAME and DATA.")
    return run, source
