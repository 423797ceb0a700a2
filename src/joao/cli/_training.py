from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joao.cli._output import Output
from joao.cli._signals import Wish, stoppable
from joao.errors import Interrupted, JoaoNotice, ProcessLost
from joao.training.place import Place

if TYPE_CHECKING:
    from joao.data import Dataset, Shards
    from joao.recipe import Recipe
    from joao.trained import Trained


def train(
    start: Callable[..., Trained],
    recipe: Recipe,
    dataset: Dataset | Shards,
    folder: Path,
    output: Output,
    process: Place | None = None,
) -> Trained:
    """Trains in sight, draws the learned table and says what came out; the first process does.

    Args:
        start: :func:`joao.experiment.pretrain`, with all options that say how to train.
        recipe: what to train.
        dataset: on what.
        folder: of the run.
        output: for what is said.
        process: which of several this is.
    """
    from joao.cli._live import TrainingView, live
    from joao.recipe import pool_name
    from joao.reporting.figures import draw_policy

    process = process or Place()
    several = f" in {process.size} processes" if process.size > 1 else ""
    what = f"{len(dataset)} {dataset.kind}, {recipe.training.epochs} epochs, no labels"
    output.say(f"Pre-training on {dataset.name}{several}: {what}.")
    pool = [pool_name(part, recipe.augmentations) for part in recipe.augmentations]
    view = TrainingView(recipe.training.epochs, dataset.kind, pool)
    with live(output, view) as on_epoch, _voiced(process, output) as wish:
        try:
            trained = start(
                recipe,
                dataset,
                folder=folder,
                devices=process.devices,
                num_nodes=process.num_nodes,
                on_epoch=on_epoch,
                should_stop=lambda: bool(wish),
            )
        except Interrupted as stopped:
            raise Interrupted(str(stopped), wish.code) from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted. {_cure(folder)}" if process.rank == 0 else "", wish.code) from None
        except ProcessLost as lost:
            if process.rank > 0:
                time.sleep(1)  # the first process, if it is still there, tells of it and has everything ended
            raise ProcessLost(f"{lost} {_cure(folder)}") from None
    if process.rank > 0:
        return trained
    last = trained.metrics[-1]
    policy = trained.policy
    seconds = sum(epoch.seconds for epoch in trained.metrics)
    output.say(f"Loss {last.loss:.4f} after {last.epoch} epochs, {seconds:.1f} s.")
    if len(policy.names) > 1:
        picture = folder / "policy.png"
        draw_policy(policy, trained.drawn, f"Augmentation pairs learned on {dataset.name}", picture)
        leading = ", ".join(f"{first} + {second} {share:.2f}" for first, second, share in policy.top(3))
        output.say(f"Leading pairs: {leading}. Picture: {picture}")
    return trained


def summary(run: Path, trained: Trained) -> dict[str, Any]:
    """What a program is told of a pre-training."""
    last = trained.metrics[-1]
    return {
        "run": str(run),
        "loss": last.loss,
        "epochs": last.epoch,
        "seconds": sum(epoch.seconds for epoch in trained.metrics),
        "augmentations": list(trained.info.pool),
        "probabilities": last.probabilities,
    }


def _cure(folder: Path) -> str:
    """What to do about a run that was ended before its time."""
    from joao.run import Run

    if (folder / "run.json").exists():
        return Run.open(folder).how_to_go_on()
    return "There was no checkpoint yet, and nothing is kept."


@contextmanager
def _voiced(process: Place, output: Output) -> Iterator[Wish]:
    """Notices of the library are told, and signals are wishes; what starts several processes ends them at once."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, JoaoNotice):
                output.notice(str(message))
            else:
                shown(message, category, *place)

        warnings.showwarning = tell  # type: ignore[assignment]
        warnings.simplefilter("always", JoaoNotice)
        if process.size > 1 and process.started:  # by torchrun, or SLURM, whose affair signals are
            yield Wish(output.notice)
        else:
            with stoppable(output.notice, at_once=process.size > 1) as wish:
                yield wish
