from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli._shared import AsJson, DataRoot, Device, Output, Quiet, free_path, quoted, read_data
from joao.errors import UserError


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of the graphs.")],
    out: Annotated[Path, typer.Option(help="File to write, .npz or .csv; must not exist yet.")],
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of graphs, one row a graph, in the order of the data."""
    from joao.files import check_new, write_file

    if out.suffix not in (".npz", ".csv"):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .npz or .csv.")
    check_new(out)
    output = Output(quiet, as_json)
    from joao.experiment import load_run
    from joao.reporting.embeddings import as_csv, as_npz

    trained = load_run(run, device=device)
    dataset = read_data(source, data_root, output)
    embeddings = trained.embed(dataset).numpy()
    unknown = trained.info.features.unknown_labels(dataset)
    if unknown:
        output.notice(f"{dataset.name}: {unknown} node labels were not seen in training.")
    write_file(out, as_csv(embeddings, dataset) if out.suffix == ".csv" else as_npz(embeddings, dataset))
    output.result({"file": str(out), "graphs": embeddings.shape[0], "dimensions": embeddings.shape[1]})
    output.say(f"{out}: {embeddings.shape[0]} graphs, {embeddings.shape[1]} dimensions.")
    if trained.info.finetuned_on:
        output.say(f"Next: joao predict {quoted(run)} {quoted(source)} --out {free_path(Path('predictions.csv'))}")
    elif dataset.classes is not None:
        output.say(f"Next: joao evaluate {quoted(run)} {quoted(source)}")
    elif out.suffix == ".npz":
        output.say(f"Next, in Python: numpy.load({str(out)!r})['embeddings']")
    else:
        output.say(f"Next, in Python: pandas.read_csv({str(out)!r}, index_col='graph')")
