from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    columns_of,
    open_data,
    tell_unknown,
    whole,
)
from joao.cli.output import Output, in_python
from joao.core.errors import UserError

TASKS_SHOWN = 5


class Told(NamedTuple):
    """What a score is called, and its figures; None where there is none."""

    name: str
    figures: str | None


def told(scores: Mapping[str, Any]) -> Told:
    """The scores of :meth:`joao.runs.finetuning.FinetunedModel.score` in words."""
    if "accuracy" in scores:
        return Told("accuracy", f"{100 * scores['accuracy']:.1f} %")
    tasks = scores["tasks"]
    if "roc_auc" in scores:
        over = _over(tasks, "roc_auc", "one class only")
        return Told("ROC-AUC", None if scores["roc_auc"] is None else f"{scores['roc_auc']:.3f}{over}")
    scored = {name: each for name, each in tasks.items() if each["rmse"] is not None}
    if len(tasks) == 1:
        (figures,) = scored.values()
        return Told("RMSE", f"{_beside_the_mean(figures)}, MAE {figures['mae']:.4g}")
    if len(tasks) > TASKS_SHOWN and "rmse_in_deviations" in scores:
        over = _over(tasks, "rmse", "no label")
        mean = f"{scores['rmse_of_mean_in_deviations']:.4g}"
        return Told(
            "RMSE", f"{scores['rmse_in_deviations']:.4g} of each task's deviation, predicting the mean {mean}{over}"
        )
    shown = [f"{_beside_the_mean(each)} of {name}" for name, each in list(scored.items())[:TASKS_SHOWN]]
    more = f" and {len(scored) - TASKS_SHOWN} more tasks" if len(scored) > TASKS_SHOWN else ""
    return Told("RMSE", "; ".join(shown) + more)


def _beside_the_mean(figures: Mapping[str, Any]) -> str:
    """The RMSE, and that of always predicting the mean of what was learned from, where it is known."""
    mean = f" (predicting the mean {figures['rmse_of_mean']:.4g})" if "rmse_of_mean" in figures else ""
    return f"{figures['rmse']:.4g}{mean}"


def _over(tasks: Mapping[str, Any], figure: str, what_others_have: str) -> str:
    """Over how many tasks a mean is."""
    scored = sum(each[figure] is not None for each in tasks.values())
    if len(tasks) == 1:
        return ""
    if scored == len(tasks):
        return f" (mean over {scored} tasks)"
    return f" (mean over {scored} of {len(tasks)} tasks; the others have {what_others_have} there)"


if TYPE_CHECKING:
    from joao.data import Dataset
    from joao.runs.finetuning import FinetunedModel


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
    from joao.core.files import check_new_file, write_file

    if out.suffix not in (".npz", ".csv"):
        raise UserError(f"{out}: unknown kind of file '{out.suffix}'. Use .csv or .npz.")
    check_new_file(out)
    failures = out.with_name(f"{out.name}.failures.csv")
    check_new_file(failures)
    output = Output(quiet, as_json)
    from joao.runs.finetuning import load_finetuned
    from joao.runs.result_files import failures_csv

    finetuned = load_finetuned(folder, device=device)
    columns = columns_of(smiles, identifiers, tasks)
    dataset = whole(open_data(source, data_root, output, columns, then=f"have blank rows, see {failures}"))
    outputs = finetuned.predict_logits(dataset)
    predicted = finetuned.to_predictions(outputs)
    tell_unknown(finetuned.trained.info.features, dataset, output)
    write_file(out, _content(finetuned, predicted.numpy(), dataset, out.suffix))
    if dataset.failures:
        write_file(failures, failures_csv(dataset))
    _report(out, failures, finetuned, dataset, finetuned.score(outputs, dataset), output)
    output.say(f"Next, in Python: {in_python(out, 'predicted')}")


def _content(finetuned: FinetunedModel, predicted: Any, dataset: Dataset, suffix: str) -> str | bytes:
    from joao.runs.result_files import classes_csv as as_csv
    from joao.runs.result_files import classes_npz as as_npz
    from joao.runs.result_files import tasks_csv, tasks_npz

    if finetuned.kind == "classes":
        return (as_csv if suffix == ".csv" else as_npz)(predicted, finetuned.class_names, dataset)
    columns = [f"p_{name}" if finetuned.kind == "binary" else name for name in finetuned.tasks]
    return (tasks_csv if suffix == ".csv" else tasks_npz)(predicted, columns, dataset)


def _report(
    out: Path,
    failures: Path,
    finetuned: FinetunedModel,
    dataset: Dataset,
    scores: dict[str, Any] | None,
    output: Output,
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
