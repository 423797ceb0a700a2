"""The two steps of Algorithm 1, which a training takes in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.graphs import GraphStore
from joao.objectives import Objective
from joao.training.device import Fabric
from joao.training.lower_level import pair_losses
from joao.training.model import project
from joao.training.views import view_by_many, view_by_one


@dataclass(frozen=True, eq=False)
class Placed:
    """A batch on its device: the numbers of its graphs, ``(B,)``, and whether it is of a usual size."""

    graphs: Tensor
    fits: bool = True


class Steps(ABC):
    """How to descend the loss by one batch, and how to measure it under every pair of augmentations.

    Attributes:
        loss_sum: ``()`` loss times number of graphs, added up over all steps of upper level since it was last set to 0.
    """

    loss_sum: Tensor

    @abstractmethod
    def place(self, batches: Sequence[Tensor]) -> list[Placed]:
        """Brings batches, the numbers of their graphs on the CPU, to the device."""

    @abstractmethod
    def train(self, batch: Placed, pairs: Tensor) -> None:
        """One step of encoder and heads.

        Args:
            batch: the graphs.
            pairs: the augmentations' numbers for both views, one pair for all graphs ``(1, 2)`` or for each
                ``(B, 2)``, on the CPU.
        """

    @abstractmethod
    def measure(self, batches: Sequence[Placed]) -> Tensor:
        """``(K, K)`` the mean over ``batches`` of the loss under every pair."""


@final
class PlainSteps(Steps):
    """Batch after batch, each as large as its graphs are, with any encoder."""

    def __init__(
        self,
        store: GraphStore,
        pool: Sequence[Augmentation],
        objective: Objective,
        model: torch.nn.Module,
        optimiser: torch.optim.Optimizer,
        fabric: Fabric,
        generators: dict[str, torch.Generator],
    ) -> None:
        self.store, self.pool, self.objective = store, pool, objective
        self.model, self.optimiser, self.fabric = model, optimiser, fabric
        self.generators = generators
        self.loss_sum = torch.zeros((), device=store.device)

    def place(self, batches: Sequence[Tensor]) -> list[Placed]:
        return [Placed(graphs.to(self.store.device)) for graphs in batches]

    def train(self, batch: Placed, pairs: Tensor) -> None:
        graphs, generator = batch.graphs, self.generators["views"]
        if len(pairs) == 1:
            shown = self.store.batch(graphs)
            views = [view_by_one(shown, number, self.pool, generator) for number in pairs[0].tolist()]
        else:
            numbers = pairs.to(graphs.device).T
            views = [view_by_many(self.store, graphs, side, self.pool, generator) for side in numbers]
        first, second = (project(self.model, view) for view in views)
        loss = self.objective(first, second)
        self.optimiser.zero_grad()
        self.fabric.backward(loss)
        self.optimiser.step()
        self.loss_sum += loss.detach() * graphs.numel()

    def measure(self, batches: Sequence[Placed]) -> Tensor:
        generator = self.generators["evaluation views"]
        losses = [
            pair_losses(self.model, self.store.batch(batch.graphs), self.pool, self.objective, generator)
            for batch in batches
        ]
        return torch.stack(losses).mean(0)
