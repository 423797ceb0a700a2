from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joao.cli._shared import AsJson, DataRoot, Device, Output, Quiet, read_data
from joao.errors import UserError


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that 'joao finetune' wrote.")],
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of the graphs.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .npz; must not exist yet.")],
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the predicted class of graphs and all probabilities, one row a graph, in the order of the data."""
    from joao.files import check_new, write_file

    if out.suffix not in (".npz", ".csv"):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .csv or .npz.")
    check_new(out)
    output = Output(quiet, as_json)
    from joao.finetuning import load_finetuned
    from joao.reporting.predictions import as_csv, as_npz

    finetuned = load_finetuned(folder, device=device)
    dataset = read_data(source, data_root, output)
    probabilities = finetuned.predict_probabilities(dataset)
    unknown = finetuned.trained.info.features.unknown_labels(dataset)
    if unknown:
        output.notice(f"{dataset.name}: {unknown} node labels were not seen in training.")
    write = as_csv if out.suffix == ".csv" else as_npz
    write_file(out, write(probabilities.numpy(), finetuned.class_names, dataset))
    accuracy = finetuned.accuracy(probabilities, dataset)
    fitted_on = dataset.fingerprint in finetuned.trained.info.finetuned_on
    output.result({"file": str(out), "graphs": len(dataset), "accuracy": accuracy, "fine_tuned_on": fitted_on})
    output.say(f"{out}: {len(dataset)} graphs, {len(finetuned.classes)} classes.")
    others = [name for name in dataset.class_names if name not in finetuned.class_names]
    if others:
        known = ", ".join(finetuned.class_names)
        output.notice(f"{dataset.name}: has the class '{others[0]}', which the classifier of {known} cannot predict.")
    if accuracy is not None:
        optimistic = " It was fine-tuned on these graphs: new ones may do worse." if fitted_on else ""
        output.say(f"Accuracy on the labels of {dataset.name}: {100 * accuracy:.1f} %.{optimistic}")
    if out.suffix == ".npz":
        output.say(f"Next, in Python: numpy.load({str(out)!r})['predicted']")
    else:
        output.say(f"Next, in Python: pandas.read_csv({str(out)!r}, index_col='graph')")
