"""The lower level of JOAO: how hard is every pair of augmentations now?

The two steps of Algorithm 1, which a training takes in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.core.graphs import Store
from joao.objectives import Objective, PairObjective
from joao.training.device import Fabric
from joao.training.distributed.group import ProcessGroup
from joao.training.distributed.share import BatchShard
from joao.training.fast.batches import DeviceBatch
from joao.training.model import preserve_buffers, project


@torch.no_grad()
def pair_losses(
    model: nn.Module,
    share: BatchShard,
    pool: Sequence[Augmentation],
    objective: PairObjective,
    generator: torch.Generator,
) -> Tensor:
    r"""The loss :math:`\ell_{ij}` of a batch under every ordered pair of augmentations, ``(K, K)`` (Eq. 7).

    Each augmentation is drawn twice and each draw is encoded once; the pair (i, j) compares the first draw of i
    with the second of j. So at most :math:`2K` encodings serve all :math:`K^2` pairs, and (i, i) compares two draws.

    Normalisation uses the statistics of each draw and forgets them. Several processes have a ``share`` each of the
    batch and rows each of the table, and all have the whole of it.
    """
    numbers = range(len(pool))
    with preserve_buffers(model):
        first = [project(model, share.view(torch.tensor([k]), pool, generator), share.gather) for k in numbers]
        views = [share.view(torch.tensor([k]), pool, generator) for k in numbers]
        # Graphs that were left as they are need not be encoded again.
        again = [first[k] if share.is_unchanged(views[k]) else project(model, views[k], share.gather) for k in numbers]
        second = torch.stack(again)
    ranks, table = share.ranks, second.new_zeros(len(pool), len(pool))
    for k in range(ranks.rank, len(pool), ranks.size):
        table[k] = objective(first[k], second)
    return ranks.total(table)


class Steps(ABC):
    """How to descend the loss by one batch, and how to measure it under every pair of augmentations.

    Attributes:
        loss_sum: ``()`` loss times number of graphs, added up over all steps of upper level since it was last set to 0.
        finite_steps: ``()`` after how many of these steps it was finite.
    """

    loss_sum: Tensor
    finite_steps: Tensor

    @abstractmethod
    def place(self, batches: Sequence[Tensor]) -> list[DeviceBatch]:
        """Brings batches, the numbers of their graphs on the CPU, to the device."""

    @abstractmethod
    def train(self, batch: DeviceBatch, pairs: Tensor) -> None:
        """One step of encoder and heads.

        Args:
            batch: the graphs.
            pairs: the augmentations' numbers for both views, one pair for all graphs ``(1, 2)`` or for each
                ``(B, 2)``, on the CPU.
        """

    @abstractmethod
    def measure(self, batches: Iterable[DeviceBatch]) -> Tensor:
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
        self.ranks = ProcessGroup(self.fabric.global_rank, self.fabric.world_size)
        self.loss_sum = torch.zeros((), device=self.store.device)
        self.finite_steps = torch.zeros((), dtype=torch.long, device=self.store.device)

    @abstractmethod
    def loss(self, share: BatchShard, pairs: Tensor) -> Tensor:
        """``()`` of a whole batch under its ``pairs``."""

    def place(self, batches: Sequence[Tensor]) -> list[DeviceBatch]:
        return [DeviceBatch(graphs.to(self.store.device)) for graphs in batches]

    def train(self, batch: DeviceBatch, pairs: Tensor) -> None:
        loss = self.loss(BatchShard(self.store, batch.graphs, self.ranks), pairs)
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

    def loss(self, share: BatchShard, pairs: Tensor) -> Tensor:
        views = [share.view(side, self.pool, self.generators["views"]) for side in pairs.T]
        first, second = (project(self.model, view, share.gather) for view in views)
        return self.objective(first, second)

    def measure(self, batches: Iterable[DeviceBatch]) -> Tensor:
        generator = self.generators["evaluation views"]
        losses = [
            pair_losses(
                self.model, BatchShard(self.store, batch.graphs, self.ranks), self.pool, self.objective, generator
            )
            for batch in batches
        ]
        return torch.stack(losses).mean(0)


@final
class NodeSteps(_Eager):
    """With an objective of nodes, on the view that the first augmentation of a pair makes."""

    def loss(self, share: BatchShard, pairs: Tensor) -> Tensor:
        view = share.view(pairs[:, 0], self.pool, self.generators["views"])
        loss: Tensor = self.model(self.generators["views"], *view.batch.fields)
        return loss

    def measure(self, batches: Iterable[DeviceBatch]) -> Tensor:
        raise AssertionError("an objective of nodes compares no views")
