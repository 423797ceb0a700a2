"""Views: graphs as one or several augmentations show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.errors import UserError, shown
from joao.graphs import GraphBatch, Store, concatenate


@dataclass(frozen=True, eq=False)
class View:
    """Augmented graphs, and which augmentation made them: the same number picks the graphs' projection head.

    Attributes:
        batch: the augmented graphs, or a process's part of them (:mod:`joao.training.share`).
        augmentation: the number in the pool of the augmentation of all these graphs, or of each one.
        row: ``(B,)`` where in ``batch``, all parts together, each graph is, or None if they are in their own order.
    """

    batch: GraphBatch
    augmentation: int | Tensor
    row: Tensor | None = None


def view_by_one(batch: GraphBatch, number: int, pool: Sequence[Augmentation], generator: torch.Generator) -> View:
    """All graphs of ``batch`` under augmentation ``number``."""
    return View(_augmented(batch, pool[number], generator), number)


def view_by_many(
    store: Store, graphs: Tensor, numbers: Tensor, pool: Sequence[Augmentation], generator: torch.Generator
) -> View:
    """Graph ``graphs[n]`` of ``store`` under augmentation ``numbers[n]``."""
    order = torch.argsort(numbers, stable=True)
    drawn = torch.unique(numbers).tolist()
    parts = [_augmented(store.batch(graphs[numbers == number]), pool[number], generator) for number in drawn]
    return View(concatenate(parts), numbers[order], row=torch.argsort(order))


def _augmented(batch: GraphBatch, augmentation: Augmentation, generator: torch.Generator) -> GraphBatch:
    """The batch as an augmentation, which may be a user's own, shows it: as many graphs, with as many features."""
    made = augmentation(batch, generator)
    name = type(augmentation).__name__
    if not isinstance(made, GraphBatch):
        raise UserError(
            f"augmentation {name}: returned {shown(made)}. Return a batch: dataclasses.replace(batch, ...)."
        )
    before, after = ((each.num_graphs, each.x.shape[1]) for each in (batch, made))
    if before != after:
        raise UserError(
            f"augmentation {name}: made {after[0]} graphs with {after[1]} features of {before[0]} with {before[1]}. "
            "Keep both numbers."
        )
    return made
