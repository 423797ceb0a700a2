from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli._options import AsJson, DataRoot, Device, IdColumn, Quiet, SmilesColumn, Tasks
from joao.cli._output import Output, in_python
from joao.cli._reading import blank_rows, columns_of, open_data, tell_unknown, whole
from joao.cli._scores import told
from joao.errors import UserError

if TYPE_CHECKING:
    from joao.data import Dataset
    from joao.finetuned import Finetuned


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A run that 'joao finetune' finished, or its export.")
    ],
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of the graphs.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .npz; must not exist yet.")],
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Tasks = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write what is predicted for graphs, one row a graph, in the order of the data.

    Of classes the most probable one and all probabilities; of tasks of 0 and 1 the probability of 1; or numbers. A row
    of a table that is no molecule has a blank row; OUT.failures.csv tells why.
    """
    from joao.files import check_new, write_file

    if out.suffix not in (".npz", ".csv"):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .csv or .npz.")
    check_new(out)
    failures = out.with_name(f"{out.name}.failures.csv")
    check_new(failures)
    output = Output(quiet, as_json)
    from joao.finetuned import load_finetuned
    from joao.reporting.failures import failures_csv

    finetuned = load_finetuned(folder, device=device)
    columns = columns_of(smiles, identifiers, tasks)
    dataset = whole(open_data(source, data_root, output, columns, then=f"have blank rows, see {failures}"))
    outputs = finetuned.predict_logits(dataset)
    predicted = finetuned.in_units(outputs)
    tell_unknown(finetuned.trained.info.features, dataset, output)
    write_file(out, _content(finetuned, predicted.numpy(), dataset, out.suffix))
    if dataset.failures:
        write_file(failures, failures_csv(dataset))
    _report(out, failures, finetuned, dataset, finetuned.score(outputs, dataset), output)
    output.say(f"Next, in Python: {in_python(out, 'predicted')}")


def _content(finetuned: Finetuned, predicted: Any, dataset: Dataset, suffix: str) -> str | bytes:
    from joao.reporting.predictions import as_csv, as_npz, tasks_as_csv, tasks_as_npz

    if finetuned.kind == "classes":
        return (as_csv if suffix == ".csv" else as_npz)(predicted, finetuned.class_names, dataset)
    columns = [f"p_{name}" if finetuned.kind == "binary" else name for name in finetuned.tasks]
    return (tasks_as_csv if suffix == ".csv" else tasks_as_npz)(predicted, columns, dataset)


def _report(
    out: Path, failures: Path, finetuned: Finetuned, dataset: Dataset, scores: dict[str, Any] | None, output: Output
) -> None:
    fitted_on = dataset.fingerprint in finetuned.trained.info.finetuned_on
    result: dict[str, Any] = {"file": str(out), "graphs": len(dataset)}
    if dataset.failures:
        result |= {"blank": len(dataset.failures), "failures": str(failures)}
    if finetuned.kind == "classes":
        result["accuracy"] = None if scores is None else scores["accuracy"]
        output.say(f"{out}: {len(dataset)} {dataset.kind}, {len(finetuned.classes)} classes.")
        others = [name for name in dataset.class_names if name not in finetuned.class_names]
        if others:
            known = ", ".join(finetuned.class_names)
            output.notice(
                f"{dataset.name}: has the class '{others[0]}', which the classifier of {known} cannot predict."
            )
    else:
        result |= {"blank": len(dataset.failures), "scores": scores}
        tasks = "1 task" if len(finetuned.tasks) == 1 else f"{len(finetuned.tasks)} tasks"
        output.say(f"{out}: {len(dataset)} {dataset.kind}, {tasks}{blank_rows(dataset)}.")
    output.result({**result, "fine_tuned_on": fitted_on})
    if scores is not None:
        optimistic = " It was fine-tuned on these graphs: new ones may do worse." if fitted_on else ""
        name, figures = told(scores)
        if figures is None:
            output.say(f"No {name}: no task has both 0 and 1 among the labels of {dataset.name}.")
        else:
            output.say(f"{name[0].upper()}{name[1:]} on the labels of {dataset.name}: {figures}.{optimistic}")
