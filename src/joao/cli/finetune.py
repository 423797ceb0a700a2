from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joao.cli._shared import (
    AsJson,
    DataRoot,
    Device,
    Output,
    Quiet,
    free_path,
    quoted,
    read_data,
    silence_lightning,
)
from joao.errors import Interrupted

if TYPE_CHECKING:
    from joao.finetuning import Finetuned
    from joao.training.finetune import FitEpoch


def finetune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    source: Annotated[str, typer.Argument(metavar="DATA", help="Name or path of graphs with labels.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist yet.")],
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
    validation_share: Annotated[float, typer.Option(help="Share of the graphs held out to choose the epoch.")] = 0.2,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start with the encoder's initial weights, to compare.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="32-true, tf32, bf16-mixed or 16-mixed.")] = "32-true",
    fast: Annotated[
        bool | None,
        typer.Option("--fast/--plain", help="Train on padded batches; by default on a GPU, where possible."),
    ] = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a run's encoder, with a classifier behind it, on graphs that have labels."""
    from joao.run import check_new_folder

    check_new_folder(out)
    output = Output(quiet, as_json)
    from joao.experiment import load_run
    from joao.finetuning import finetune
    from joao.training.device import check_precision
    from joao.training.finetune import Finetune, usual_learning_rate

    rate = usual_learning_rate(frozen) if learning_rate is None else learning_rate
    how = Finetune(epochs, batch_size, rate, patience, "accuracy", frozen, not unbalanced, standardise=True)
    check_precision(device, precision)
    trained = load_run(run, device=device)
    dataset = read_data(source, data_root, output)
    if dataset.fingerprint in trained.info.finetuned_on and not from_scratch:
        output.notice(f"{run}: has learned these labels before, also those that choose the epoch.")
    unknown = trained.info.features.unknown_labels(dataset)
    if unknown:
        output.notice(f"{dataset.name}: {unknown} node labels were not seen in training.")
    silence_lightning()
    with output.progress("fine-tuning", epochs) as bar:

        def on_epoch(epoch: FitEpoch) -> None:
            bar.advance(f"loss {epoch.loss:.3f}, validation {100 * (epoch.validation_accuracy or 0):.1f} %")

        try:
            finetuned = finetune(
                trained,
                dataset,
                how,
                seed=seed,
                validation_share=validation_share,
                from_scratch=from_scratch,
                device=device,
                precision=precision,
                fast=fast,
                on_epoch=on_epoch,
            )
        except KeyboardInterrupt:
            raise Interrupted("interrupted. Nothing was written; --epochs or --patience make it shorter.") from None
    finetuned.save(out)
    _tell(finetuned, output)
    output.result(_summary(out, finetuned))
    predictions = free_path(Path("predictions.csv"))
    output.say(f"Next: joao predict {quoted(out)} {quoted(source)} --out {predictions}")


def _tell(finetuned: Finetuned, output: Output) -> None:
    info, chosen = finetuned.info, finetuned.chosen_epoch
    sizes = ", ".join(f"{name}: {count}" for name, count in info.graphs_per_class.items())
    before = "fine-tuned" if len(finetuned.trained.info.finetuned_on) > 1 else "pre-trained"
    start = "from scratch" if info.from_scratch else f"from the {before} encoder"
    output.say(f"{info.data}: {sum(info.graphs_per_class.values())} graphs with labels ({sizes}), {start}.")
    output.say(
        f"Learned from {info.num_train} graphs; {info.num_validation} others chose epoch {finetuned.fit.chosen} of "
        f"{len(finetuned.fit.epochs)}, {info.seconds:.1f} s."
    )
    weighed = ", every class weighing the same" if finetuned.how.balanced else ""
    output.say(
        f"Validation accuracy {100 * (chosen.validation_accuracy or 0):.1f} %{weighed}. It chose the epoch and is "
        "therefore optimistic: new graphs may do worse."
    )


def _summary(folder: Path, finetuned: Finetuned) -> dict[str, Any]:
    """What a program is told of a fine-tuning."""
    info, chosen = finetuned.info, finetuned.chosen_epoch
    return {
        "folder": str(folder),
        "classes": list(finetuned.classes),
        "train_graphs": info.num_train,
        "validation_graphs": info.num_validation,
        "epochs": len(finetuned.fit.epochs),
        "chosen_epoch": finetuned.fit.chosen,
        "validation_loss": chosen.validation_loss,
        "validation_accuracy": chosen.validation_accuracy,
        "from_scratch": info.from_scratch,
        "seconds": info.seconds,
    }
