from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli.inputs import (
    AsJson,
    DataRoot,
    Device,
    Fast,
    IdColumn,
    Precision,
    Quiet,
    SmilesColumn,
    column_words,
    columns_of,
    open_data,
    tell_unknown,
    whole,
)
from joao.cli.output import Output, free_path, quoted
from joao.cli.predict import told
from joao.core.errors import Interrupted

if TYPE_CHECKING:
    from joao.runs.finetuning import FinetunedModel
    from joao.training.metrics import FitEpoch


def finetune(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A finished run, or its export; or molecules, which comes with joao.")
    ],
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of graphs with labels.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist yet.")],
    smiles: SmilesColumn = None,
    identifiers: IdColumn = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            metavar="COLUMNS",
            help="Columns of labels to learn, with commas between; by default all that hold numbers.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="COLUMN", help="One of them, as it is called, commas and all; again for more."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="random, or of molecules scaffold: those with one skeleton are in one part.",
            show_default="scaffold for molecules, else random",
        ),
    ] = None,
    validation_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the graphs held out to choose the epoch.", show_default="0.2, or 0.1 of a scaffold split"
        ),
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the graphs looked at once, at the end.", show_default="0, or 0.1 of a scaffold split"
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the graphs, at most.")] = 100,
    patience: Annotated[
        int, typer.Option(min=0, help="Stop after so many epochs without a better validation; 0: never.")
    ] = 20,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam.", show_default="0.001, or 0.01 with --frozen")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Graphs in a batch.")] = 128,
    frozen: Annotated[bool, typer.Option("--frozen", help="Only the linear layer behind the encoder learns.")] = False,
    unbalanced: Annotated[
        bool, typer.Option("--unbalanced", help="Let every graph weigh the same, not every class.")
    ] = False,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start with the encoder's initial weights, to compare.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    device: Device = "auto",
    precision: Precision = "32-true",
    fast: Fast = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a run's encoder, with a linear layer behind it, on graphs that have labels.

    Labels are classes or, in a table of molecules, columns of numbers; empty cells are not measured. Columns of 0 and 1
    alone are learned as yes and no. Nothing is written before the end: there is no --resume.
    """
    from joao.runs.folder import check_new_folder

    check_new_folder(out)
    output = Output(quiet, as_json)
    from joao.data.sources import csv_header, is_table
    from joao.runs.finetuning import finetune
    from joao.runs.trained import load_run, model_path
    from joao.training.device import check_precision
    from joao.training.finetune import Finetune, default_learning_rate

    rate = default_learning_rate(frozen) if learning_rate is None else learning_rate
    how = Finetune(epochs, batch_size, rate, patience, "score", frozen, not unbalanced, standardise=True)
    check_precision(device, precision)
    trained = load_run(model_path(run), device=device)
    tasks, task = tasks or [], task or []
    of_table = bool(tasks or task) and is_table(source, data_root)  # whose other columns are not even read
    named = _named(tasks, task, csv_header(source, data_root)) if of_table else []
    dataset = whole(open_data(source, data_root, output, columns_of(smiles, identifiers, named)))
    if not of_table:
        named = _named(tasks, task, dataset.target_names)
    if dataset.fingerprint in trained.info.finetuned_on and not from_scratch:
        output.notice(f"{run}: has learned these labels before, also those that choose the epoch.")
    tell_unknown(trained.info.features, dataset, output)
    with output.progress("fine-tuning", epochs) as bar:

        def on_epoch(epoch: FitEpoch) -> None:
            score = epoch.validation_loss if epoch.validation_score is None else epoch.validation_score
            bar.advance(f"loss {epoch.loss:.3f}, validation {score or 0:.3f}")

        try:
            finetuned = finetune(
                trained,
                dataset,
                how,
                tasks=named,
                split=split,
                validation_share=validation_share,
                test_share=test_share,
                seed=seed,
                from_scratch=from_scratch,
                device=device,
                precision=precision,
                fast=fast,
                on_epoch=on_epoch,
                on_notice=output.notice,
            )
        except KeyboardInterrupt:
            raise Interrupted("interrupted. Nothing was written; --epochs or --patience make it shorter.") from None
    finetuned.save(out)
    _tell(finetuned, dataset.kind, output)
    output.result(_summary(out, finetuned))
    predictions = free_path(Path("predictions.csv"))
    words = f"{quoted(source)}{column_words(smiles, identifiers)}"
    output.say(f"Next: joao predict {quoted(out)} {words} --out {predictions}")


def _named(tasks: Sequence[str], task: Sequence[str], known: Sequence[str]) -> list[str]:
    """The tasks that were named: ``task`` as they are, ``tasks`` parted at commas unless one is known as a whole."""
    parted = [name.strip() for given in tasks for name in ([given] if given in known else given.split(","))]
    return [name for name in [*parted, *task] if name]


def _tell(finetuned: FinetunedModel, graphs: str, output: Output) -> None:
    info = finetuned.info
    before = "fine-tuned" if len(finetuned.trained.info.finetuned_on) > 1 else "pre-trained"
    start = "from scratch" if info.from_scratch else f"from the {before} encoder"
    count = info.num_train + info.num_validation + info.num_test
    output.say(f"{info.data}: {count} {graphs} with labels{_labels(finetuned)}, {start}.")
    output.say(
        f"Learned from {info.num_train} {graphs}; {info.num_validation} others chose epoch {finetuned.fit.chosen} of "
        f"{len(finetuned.fit.epochs)}, {info.seconds:.1f} s."
    )
    name, figures = told(finetuned.scores["validation"])
    if finetuned.kind == "classes" and finetuned.settings.balanced:
        figures = f"{100 * (finetuned.chosen_epoch.validation_score or 0):.1f} %, every class weighing the same"
    if figures is None:
        output.say(f"No validation {name}: no task has both 0 and 1 there. The loss chose the epoch.")
    else:
        output.say(
            f"Validation {name} {figures}. It chose the epoch and is therefore optimistic: new {graphs} may do worse."
        )
    if "test" in finetuned.scores:
        _tell_test(finetuned, graphs, output)


def _tell_test(finetuned: FinetunedModel, graphs: str, output: Output) -> None:
    info = finetuned.info
    name, figures = told(finetuned.scores["test"])
    kind = "with other scaffolds" if info.split == "scaffold" else "drawn at random"
    if figures is None:
        fix = "Try --split random, or" if info.split == "scaffold" else "Try"
        output.say(
            f"No test {name}: no task has both 0 and 1 among {info.num_test} {graphs}. {fix} a larger --test-share."
        )
    else:
        output.say(f"Test {name} {figures}, on {info.num_test} {graphs} {kind}, looked at once.")


def _labels(finetuned: FinetunedModel) -> str:
    """How many there are of each class, or of the one task; of several tasks, how many tasks."""
    info = finetuned.info
    if finetuned.kind == "classes":
        return " (" + ", ".join(f"{name}: {count}" for name, count in info.graphs_per_class.items()) + ")"
    if len(finetuned.tasks) > 1:
        from joao.evaluation.targets import join_names

        return f" of {len(finetuned.tasks)} tasks ({join_names(finetuned.tasks)})"
    counts = info.labels_per_task[finetuned.tasks[0]]
    return f" of {finetuned.tasks[0]}" + (f" (0: {counts[0]}, 1: {counts[1]})" if finetuned.kind == "binary" else "")


def _summary(folder: Path, finetuned: FinetunedModel) -> dict[str, Any]:
    """What a program is told of a fine-tuning."""
    info, chosen = finetuned.info, finetuned.chosen_epoch
    of_classes = {"classes": list(finetuned.classes), "validation_accuracy": chosen.validation_score}
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
        "validation_loss": chosen.validation_loss,
        "scores": dict(finetuned.scores),
        "from_scratch": info.from_scratch,
        "seconds": info.seconds,
    }
