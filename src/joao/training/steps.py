"""The two steps of Algorithm 1, which a training takes in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.graphs import Store
from joao.objectives import Objective, PairObjective
from joao.training.device import Fabric
from joao.training.lower_level import pair_losses
from joao.training.model import project
from joao.training.ranks import Ranks
from joao.training.rooms import Placed
from joao.training.share import Share


class Steps(ABC):
    """How to descend the loss by one batch, and how to measure it under every pair of augmentations.

    Attributes:
        loss_sum: ``()`` loss times number of graphs, added up over all steps of upper level since it was last set to 0.
        finite_steps: ``()`` after how many of these steps it was finite.
    """

    loss_sum: Tensor
    finite_steps: Tensor

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
    def measure(self, batches: Iterable[Placed]) -> Tensor:
        """``(K, K)`` the mean over ``batches`` of the loss under every pair."""


@dataclass(eq=False)
class _Eager(Steps, ABC):
    """Batch after batch, each as large as its graphs are, with any encoder."""

    store: Store
    pool: Sequence[Augmentation]
    objective: Objective
    model: torch.nn.Module
    optimiser: torch.optim.Optimizer
    fabric: Fabric
    generators: dict[str, torch.Generator]

    def __post_init__(self) -> None:
        self.ranks = Ranks(self.fabric.global_rank, self.fabric.world_size)
        self.loss_sum = torch.zeros((), device=self.store.device)
        self.finite_steps = torch.zeros((), dtype=torch.long, device=self.store.device)

    @abstractmethod
    def loss(self, share: Share, pairs: Tensor) -> Tensor:
        """``()`` of a whole batch under its ``pairs``."""

    def place(self, batches: Sequence[Tensor]) -> list[Placed]:
        return [Placed(graphs.to(self.store.device)) for graphs in batches]

    def train(self, batch: Placed, pairs: Tensor) -> None:
        loss = self.loss(Share(self.store, batch.graphs, self.ranks), pairs)
        self.optimiser.zero_grad()
        self.fabric.backward(loss)
        self.ranks.average_gradients(self.model.parameters())
        self.optimiser.step()
        self.loss_sum += loss.detach() * batch.graphs.numel()
        self.finite_steps += self.loss_sum.isfinite()


@final
class PlainSteps(_Eager):
    """With an objective of pairs."""

    objective: PairObjective

    def loss(self, share: Share, pairs: Tensor) -> Tensor:
        views = [share.view(side, self.pool, self.generators["views"]) for side in pairs.T]
        first, second = (project(self.model, view, share.gather) for view in views)
        return self.objective(first, second)

    def measure(self, batches: Iterable[Placed]) -> Tensor:
        generator = self.generators["evaluation views"]
        losses = [
            pair_losses(self.model, Share(self.store, batch.graphs, self.ranks), self.pool, self.objective, generator)
            for batch in batches
        ]
        return torch.stack(losses).mean(0)


@final
class NodeSteps(_Eager):
    """With an objective of nodes, on the view that the first augmentation of a pair makes."""

    def loss(self, share: Share, pairs: Tensor) -> Tensor:
        view = share.view(pairs[:, 0], self.pool, self.generators["views"])
        loss: Tensor = self.model(self.generators["views"], *view.batch.fields)
        return loss

    def measure(self, batches: Iterable[Placed]) -> Tensor:
        raise AssertionError("an objective of nodes compares no views")
