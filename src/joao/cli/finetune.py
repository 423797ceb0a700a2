"""``joao finetune`` and ``joao predict``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from joao.cli import inputs
from joao.cli.embed import write_folder
from joao.cli.output import Output, check_row_file, next_in_python, quantity, shell_quote, write_row_file
from joao.core.errors import Interrupted, UserError, join_names

if TYPE_CHECKING:
    from joao.data import Dataset
    from joao.runs.finetuning import FinetunedModel, Prediction

TASKS_SHOWN = 5


def finetune(
    run: Path = inputs.MODEL,
    source: str = Argument(..., metavar="DATA", help="Name or path of labelled graphs."),
    out: Path = Option(..., help="Folder to write; must not exist yet."),
    smiles: inputs.SmilesColumn = None,
    identifiers: inputs.IdColumn = None,
    tasks: list[str] | None = Option(
        None, metavar="COLUMNS", help="Label columns, separated by commas (default: all numeric columns)."
    ),
    task: list[str] | None = Option(None, metavar="COLUMN", help="One label column; its name may contain commas."),
    standardise: inputs.Standardise = None,
    split: str | None = Option(
        None,
        show_default="scaffold for molecules, else random",
        help="random or, for molecules, scaffold (molecules with the same scaffold stay in the same part) or the name "
        "of a column of train, validation and test.",
    ),
    validation_share: float | None = Option(
        None, show_default="0.2, or 0.1 for a scaffold split", help="Fraction of the graphs used to choose the epoch."
    ),
    test_share: float | None = Option(
        None,
        show_default="0, or 0.1 for a scaffold split",
        help="Fraction of the graphs for the final test, evaluated once.",
    ),
    epochs: int = Option(100, min=1, help="Maximum number of epochs."),
    patience: int = Option(20, min=0, help="Stop after this many epochs without a better validation score; 0: never."),
    learning_rate: float | None = Option(
        None, show_default="0.001, or 0.01 with --frozen", help="Learning rate of Adam."
    ),
    batch_size: int = Option(128, min=2, help="Graphs per batch."),
    frozen: bool = inputs.flag("--frozen", "Train the linear layer only, not the encoder."),
    unbalanced: bool = inputs.flag("--unbalanced", "Weight all graphs equally instead of all classes."),
    from_scratch: bool = inputs.flag("--from-scratch", "Start from the encoder's initial weights, for comparison."),
    ensemble: bool = inputs.flag(
        "--ensemble",
        "For molecules: average forests on ECFP and on descriptors and kernel ridge regression on the frozen encoder.",
    ),
    seed: int = Option(0, min=0, help="Random seed."),
    device: inputs.Device = "auto",
    precision: inputs.Precision = "32-true",
    fast: inputs.Fast = None,
    data_root: inputs.DataRoot = None,
    quiet: inputs.Quiet = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Fine-tune the encoder of a run, with a linear layer on top, on labelled graphs.

    Labels are classes or, in a table of molecules, numeric columns; empty cells are missing values and are ignored.
    Columns that contain only 0 and 1 are binary classification tasks, others are regression tasks. The result is
    written at the end; an interrupted fine-tuning cannot be resumed. --ensemble trains two random forests and a
    kernel ridge regression instead and averages them; options about epochs, batches and balance have no effect then.
    """
    from joao.runs.folder import check_new_folder, claim_folder

    check_new_folder(out)
    output = Output(quiet, as_json)
    from joao.data.sources import csv_header, is_table
    from joao.runs.finetuning import finetune
    from joao.runs.trained import load_run, model_path
    from joao.training.device import check_precision
    from joao.training.finetune import Finetune, default_learning_rate

    rate = default_learning_rate(frozen) if learning_rate is None else learning_rate
    settings = Finetune(epochs, batch_size, rate, patience, "score", frozen, not unbalanced, standardise=True)
    check_precision(device, precision)
    trained = load_run(model_path(run), device=device)
    tasks, task = tasks or [], task or []
    in_header = bool(tasks or task) and is_table(source, data_root)  # other columns are then not even parsed
    names = _task_names(tasks, task, csv_header(source, data_root)) if in_header else []
    standardise = inputs.standardise_as(trained.info, standardise, output)
    columns = inputs.column_options(smiles, identifiers, names, standardise)
    dataset = inputs.read_data(source, data_root, output, columns)
    if not in_header:
        names = _task_names(tasks, task, dataset.target_names)
    if dataset.has_fingerprint(*trained.info.finetuned_on) and not from_scratch:
        output.notice(f"{run}: was fine-tuned on these labels before, including those of the validation graphs.")
    inputs.warn_unknown_labels(trained.info.features, dataset, output)
    parts = inputs.split_column(dataset, split, source, data_root)
    steps = ("training 3 members", 3) if ensemble else ("fine-tuning", epochs)
    with claim_folder(out), output.progress(*steps) as bar:
        try:
            finetuned = finetune(
                trained,
                dataset,
                settings,
                tasks=names,
                split=split if parts is None else parts,
                validation_share=validation_share,
                test_share=test_share,
                seed=seed,
                from_scratch=from_scratch,
                device=device,
                precision=precision,
                fast=fast,
                ensemble=ensemble,
                jobs=inputs.all_cores() if ensemble else 1,
                on_epoch=lambda epoch: bar.advance(str(epoch)),
                on_notice=output.notice,
                on_member=bar.advance,
            )
        except KeyboardInterrupt:
            hint = "" if ensemble else " Shorten it with --epochs or --patience."
            raise Interrupted(f"interrupted. Nothing was written.{hint}") from None
        info = replace(finetuned.info, source=source, smiles=smiles or "", identifiers=identifiers or "")
        finetuned = replace(finetuned, info=info)
        finetuned.save(out, claimed=True)
    _print_finetuned(finetuned, dataset.kind, output)
    output.result(_summary(out, finetuned))
    data = inputs.source_words(source, columns, data_root)
    output.suggest(f"predict {shell_quote(out)} {data}", Path("predictions.csv"))


def _task_names(tasks: Sequence[str], task: Sequence[str], known: Sequence[str]) -> list[str]:
    """The tasks of both options; ``--tasks`` is split at commas unless it is the name of one known column."""
    split = [name.strip() for text in tasks for name in ([text] if text in known else text.split(","))]
    names = [name for name in [*split, *task] if name]
    if not names and (tasks or task):
        raise UserError("tasks: no column is named. Leave out --tasks and --task to learn all tasks.")
    return names


def _print_finetuned(finetuned: FinetunedModel, kind: str, output: Output) -> None:
    info = finetuned.info
    before = "fine-tuned" if len(finetuned.trained.info.finetuned_on) > 1 else "pre-trained"
    start = "from scratch" if info.from_scratch else f"from the {before} encoder"
    count = info.num_train + info.num_validation + info.num_test
    output.say(f"{info.data}: {quantity(count, kind)} with labels{_label_counts(finetuned)}, {start}.")
    if finetuned.members:
        learned = quantity(info.num_train + info.num_validation, kind)
        members = "forests on ECFP and on descriptors, and kernel ridge regression on the frozen encoder"
        output.say(f"Ensemble of {members}: trained on {learned}, {info.seconds:.1f} s.")
    else:
        _print_validation(finetuned, kind, output)
    if "test" not in finetuned.scores:
        return
    name, figures = format_scores(finetuned.scores["test"])
    tested = quantity(info.num_test, kind)
    if figures is None:
        fixes = {"scaffold": "Try --split random, or a larger --test-share.", "given": "Give more of them."}
        fix = fixes.get(info.split, "Try a larger --test-share.")
        output.say(f"No test {name}: no task has both 0 and 1 among {tested}. {fix}")
    else:
        choices = {"scaffold": "with other scaffolds", "given": "of the given split"}
        choice = choices.get(info.split, "chosen at random")
        output.say(f"Test {name} {figures}, on {tested} {choice}, evaluated once.")
        if finetuned.members:
            _print_members(finetuned.scores["test"], name, output)
            return
    _print_forest(finetuned, output)


def _print_validation(finetuned: FinetunedModel, kind: str, output: Output) -> None:
    info, chosen = finetuned.info, finetuned.chosen_epoch
    output.say(
        f"Trained on {quantity(info.num_train, kind)}, {info.seconds:.1f} s; epoch {finetuned.fit.chosen} of "
        f"{len(finetuned.fit.epochs)} was the best on {quantity(info.num_validation, f'validation_{kind}')}."
    )
    name, figures = format_scores(finetuned.scores["validation"])
    if finetuned.kind == "classes" and finetuned.settings.balanced:
        name, figures = "balanced accuracy", f"{100 * ((chosen and chosen.validation_score) or 0):.1f} %"
    if figures is None:
        output.say(f"No validation {name}: no task has both 0 and 1 there. The loss chose the epoch.")
    else:
        output.say(f"Validation {name} {figures}. It chose the epoch and is therefore optimistic.")


def _print_members(scores: Mapping[str, Any], name: str, output: Output) -> None:
    """The score of each member of an ensemble, and of the ensemble without it."""
    for member, figures in scores["members"].items():
        alone, without = (_main_score(each) for each in (figures, scores["without"][member]))
        output.say(f"  {member}: alone {name} {alone}, the ensemble without it {without}.")


def _main_score(scores: Mapping[str, Any]) -> str:
    """The mean over tasks of the metric that decides; errors of several tasks in their standard deviations."""
    names = ("accuracy", "roc_auc", "rmse_in_deviations" if len(scores.get("tasks", ())) > 1 else "rmse")
    return f"{next(scores[name] for name in names if name in scores):.3f}"


def _print_forest(finetuned: FinetunedModel, output: Output) -> None:
    """Compare with a random forest on the same test molecules."""
    forest = (finetuned.scores.get("test") or {}).get("forest")
    name, figures = format_scores(forest) if forest else ("", None)
    if figures is not None:
        own = format_scores(finetuned.scores["test"])[1]
        output.say(
            f"On the test molecules of the fine-tuning: random forest on ECFP {name} {figures}, this model {own}."
        )


def _label_counts(finetuned: FinetunedModel) -> str:
    """The number of labels per class or of the only task; for several tasks, their names."""
    info = finetuned.info
    if finetuned.kind == "classes":
        return " (" + ", ".join(f"{name}: {count}" for name, count in info.graphs_per_class.items()) + ")"
    if len(finetuned.tasks) > 1:
        return f" for {len(finetuned.tasks)} tasks ({join_names(finetuned.tasks)})"
    counts = info.labels_per_task[finetuned.tasks[0]]
    return f" for {finetuned.tasks[0]}" + (f" (0: {counts[0]}, 1: {counts[1]})" if finetuned.kind == "binary" else "")


def _summary(folder: Path, finetuned: FinetunedModel) -> dict[str, Any]:
    """The JSON output of a fine-tuning."""
    info, chosen = finetuned.info, finetuned.chosen_epoch
    of_classes = {"classes": list(finetuned.classes), "validation_accuracy": chosen and chosen.validation_score}
    return {
        "folder": str(folder),
        "kind": finetuned.kind,
        **(of_classes if finetuned.kind == "classes" else {"tasks": list(finetuned.tasks)}),
        "split": info.split,
        "train_graphs": info.num_train,
        "validation_graphs": info.num_validation,
        "test_graphs": info.num_test,
        "epochs": len(finetuned.fit.epochs),
        "chosen_epoch": finetuned.fit.chosen,
        "validation_loss": chosen and chosen.validation_loss,
        "ensemble": bool(finetuned.members),
        "scores": dict(finetuned.scores),
        "from_scratch": info.from_scratch,
        "seconds": info.seconds,
    }


def predict(
    folder: Path = Argument(..., metavar="FOLDER", help="The output of 'joao finetune' or its export."),
    source: str = Argument(..., metavar="DATA", help="Name or path of the graphs."),
    out: Path = Option(..., help="Folder of Parquet parts (no suffix), or new file (.csv, .npz or .parquet)."),
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
    """Write the predictions for graphs, one row per graph, in the order of the data.

    For classes: the most probable class and all probabilities. For binary tasks: the probability of 1. For regression
    tasks: the value. An ensemble adds std_TASK, the standard deviation over its three members. Rows of a table that
    RDKit cannot parse are left blank and listed in OUT.failures.csv or OUT/_failures.csv. A folder is for any number of
    rows, see 'joao embed'; labels are not read and not scored then.
    """
    output = Output(quiet, as_json)
    if not out.suffix:
        options = {"engine": engine, "workers": workers, "part_rows": part_rows, "device": device}
        write_folder("predict", folder, (source, smiles, identifiers, data_root), standardise, out, output, options)
        return
    inputs.check_file_options(out, engine, workers=workers, part_rows=part_rows)
    failures = check_row_file(out)
    from joao.runs.finetuning import load_finetuned

    finetuned = load_finetuned(folder, device=device)
    standardise = inputs.standardise_as(finetuned.trained.info, standardise, output)
    columns = inputs.column_options(smiles, identifiers, tasks, standardise)
    dataset = inputs.read_data(source, data_root, output, columns, then=f"are left blank, see {failures}")
    predicted = finetuned.predict_with_std(dataset, jobs=inputs.all_cores())
    inputs.warn_unknown_labels(finetuned.trained.info.features, dataset, output)
    result = write_row_file(out, _file_content(finetuned, predicted, dataset, out.suffix), failures, dataset)
    graphs, scores = quantity(len(dataset), dataset.kind), finetuned.score(predicted.outputs, dataset)
    if finetuned.kind == "classes":
        result["accuracy"] = None if scores is None else scores["accuracy"]
        output.say(f"{out}: {graphs}, {quantity(len(finetuned.classes), 'classes')}.")
        unknown = [name for name in dataset.class_names if name not in finetuned.class_names]
        if unknown:
            known = ", ".join(finetuned.class_names)
            output.notice(f"{dataset.name}: class '{unknown[0]}' is unknown to the model, which predicts {known}.")
    else:
        result |= {"blank": len(dataset.failures), "scores": scores}
        output.say(f"{out}: {graphs}, {quantity(len(finetuned.tasks), 'tasks')}{inputs.blank_rows(dataset)}.")
    seen_in_training = dataset.has_fingerprint(*finetuned.trained.info.finetuned_on)
    output.result({**result, "fine_tuned_on": seen_in_training})
    if scores is not None:
        optimistic = " Optimistic: the model was fine-tuned on these graphs." if seen_in_training else ""
        name, figures = format_scores(scores)
        if figures is None:
            output.say(f"No {name}: no task has both 0 and 1 among the labels of {dataset.name}.")
        else:
            output.say(f"{name[0].upper()}{name[1:]} on the labels of {dataset.name}: {figures}.{optimistic}")
            _print_forest(finetuned, output)
    output.say(next_in_python(out, "predicted"))


def _file_content(
    finetuned: FinetunedModel, predicted: Prediction, dataset: Dataset, suffix: str
) -> bytes | Iterator[bytes] | list[memoryview]:
    import numpy as np

    from joao.runs.parts import prediction_columns
    from joao.runs.result_files import classes_csv, classes_npz, tasks_csv, tasks_npz, to_parquet

    columns = prediction_columns(finetuned, predicted)
    if suffix == ".parquet":
        return [to_parquet(columns, dataset)]
    if finetuned.kind == "classes":
        values = predicted.values.numpy()
        return (classes_csv if suffix == ".csv" else classes_npz)(values, finetuned.class_names, dataset)
    rows = np.stack([*columns.values()], axis=1)
    return (tasks_csv if suffix == ".csv" else tasks_npz)(rows, [*columns], dataset)


def format_scores(scores: Mapping[str, Any]) -> tuple[str, str | None]:
    """The name of the metric of a :meth:`FinetunedModel.score`, and its values as text; None if no task has one."""
    if "accuracy" in scores:
        return "accuracy", f"{100 * scores['accuracy']:.1f} %"
    tasks = scores["tasks"]
    if "roc_auc" in scores:
        mean = scores["roc_auc"]
        return "ROC-AUC", None if mean is None else f"{mean:.3f}{_mean_over(tasks, 'roc_auc', 'one class only')}"
    scored = {name: each for name, each in tasks.items() if each["rmse"] is not None}
    if len(tasks) == 1:
        (errors,) = scored.values()
        return "RMSE", f"{_rmse_with_baseline(errors)}, MAE {errors['mae']:.4g}"
    if len(tasks) > TASKS_SHOWN and "rmse_in_deviations" in scores:
        mean = f"{scores['rmse_of_mean_in_deviations']:.4g}"
        over = _mean_over(tasks, "rmse", "no label")
        in_deviations = f"{scores['rmse_in_deviations']:.4g} standard deviations of each task"
        return "RMSE", f"{in_deviations}, predicting the mean {mean}{over}"
    shown = [f"{_rmse_with_baseline(each)} for {name}" for name, each in list(scored.items())[:TASKS_SHOWN]]
    more = f" and {quantity(len(scored) - TASKS_SHOWN, 'more tasks')}" if len(scored) > TASKS_SHOWN else ""
    return "RMSE", "; ".join(shown) + more


def _rmse_with_baseline(errors: Mapping[str, Any]) -> str:
    """The RMSE and, if known, that of always predicting the mean of the training labels."""
    mean = f" (predicting the mean {errors['rmse_of_mean']:.4g})" if "rmse_of_mean" in errors else ""
    return f"{errors['rmse']:.4g}{mean}"


def _mean_over(tasks: Mapping[str, Any], metric: str, reason: str) -> str:
    """The number of tasks that a mean is over, and the ``reason`` why others are not."""
    scored = sum(each[metric] is not None for each in tasks.values())
    if len(tasks) == 1:
        return ""
    if scored == len(tasks):
        return f" (mean over {scored} tasks)"
    return f" (mean over {scored} of {len(tasks)} tasks; the others have {reason} there)"
