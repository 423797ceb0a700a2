"""Run a pre-training with a live view of its progress, and stop it cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joao.cli.output import Output, quantity
from joao.core.errors import Interrupted, JoaoNotice, ProcessLost
from joao.core.signals import StopRequest, catch_stop_signals
from joao.training.distributed.launch import ProcessLayout

if TYPE_CHECKING:
    from joao.config.recipe import Recipe
    from joao.data import Dataset, Shards
    from joao.runs.trained import TrainedEncoder


def train(
    recipe: Recipe, dataset: Dataset | Shards, folder: Path, output: Output, process: ProcessLayout, **options: Any
) -> TrainedEncoder:
    """Pre-train with a live view, then print a summary and draw the learned pairs (in the first process only).

    ``options`` are those of :func:`joao.runs.pretraining.pretrain`.
    """
    from joao.core.plots import draw_policy
    from joao.runs import pretraining
    from joao.runs.logs import show_training

    several = f" in {process.world_size} processes" if process.world_size > 1 else ""
    epochs = recipe.training.epochs
    amount = f"{quantity(len(dataset), dataset.kind)}, {quantity(epochs, 'epochs')}"
    intro = f"Pre-training on {dataset.name}{several}: {amount}, without labels."
    showing = show_training(output.shown, recipe, dataset.kind, intro=lambda: output.say(intro))
    with showing as callbacks, _notices_and_signals(process, output) as stop:
        try:
            trained = pretraining.pretrain(
                recipe,
                dataset,
                folder=folder,
                devices=process.devices,
                num_nodes=process.num_nodes,
                on_notice=output.notice,
                should_stop=lambda: bool(stop),
                **callbacks,
                **options,
            )
        except Interrupted as stopped:
            raise Interrupted(str(stopped), stop.code) from None
        except KeyboardInterrupt:
            message = f"interrupted. {_how_to_continue(folder)}" if process.rank == 0 else ""
            raise Interrupted(message, stop.code) from None
        except ProcessLost as lost:
            if process.rank > 0:
                time.sleep(1)  # the first process, if it is alive, prints the message and ends the others
            raise ProcessLost(f"{lost} {_how_to_continue(folder)}") from None
    if process.rank > 0:
        return trained
    facts, policy = summary(folder, trained), trained.policy
    output.say(f"Loss {facts['loss']:.4f} after {quantity(facts['epochs'], 'epochs')}, {facts['seconds']:.1f} s.")
    if len(policy.names) > 1:
        picture = folder / "policy.png"
        draw_policy(policy, trained.drawn, f"Augmentation pairs learned on {dataset.name}", picture)
        leading = ", ".join(f"{first} + {second} {share:.2f}" for first, second, share in policy.top(3))
        output.say(f"Most probable pairs: {leading}. Figure: {picture}")
    return trained


def summary(run: Path, trained: TrainedEncoder) -> dict[str, Any]:
    """The JSON output of a pre-training."""
    last = trained.metrics[-1]
    return {
        "run": str(run),
        "loss": last.loss,
        "epochs": last.epoch,
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "augmentations": list(trained.info.pool),
        "probabilities": last.probabilities,
    }


def _how_to_continue(folder: Path) -> str:
    from joao.runs.folder import Run

    if (folder / "run.json").exists():
        return Run.open(folder).resume_hint()
    return "There was no checkpoint yet; nothing is kept."


@contextmanager
def _notices_and_signals(process: ProcessLayout, output: Output) -> Iterator[StopRequest]:
    """Print the library's notices, and turn signals into a stop request.

    The parent of several processes stops them at the first signal. Under torchrun and SLURM, which handle signals
    themselves, no handler is installed.
    """
    with warnings.catch_warnings():
        show_warning = warnings.showwarning

        def print_notice(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, JoaoNotice):
                output.notice(str(message))
            else:
                show_warning(message, category, *place)

        warnings.showwarning = print_notice  # type: ignore[assignment]
        warnings.simplefilter("always", JoaoNotice)
        several = process.world_size > 1
        with catch_stop_signals(output.notice, at_once=several, enabled=not (several and process.is_worker)) as stop:
            yield stop
