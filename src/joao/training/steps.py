"""One training step on one device: draw two views of a batch, project them, compute the loss, update the weights.

:func:`pair_losses` measures the loss of every pair of augmentations, from which the policy learns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, final

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.core.errors import UserError, short_repr
from joao.core.graphs import GraphBatch, Store, concatenate
from joao.core.randomness import derive_seed
from joao.objectives import Objective, PairObjective
from joao.training.model import frozen_statistics, preserve_buffers
from joao.training.targets import MoleculeTargets

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from joao.training.distributed.group import GradientExchange

SECTION = 1024  # graphs whose views are drawn from one generator


@dataclass(frozen=True, eq=False)
class View:
    """Augmented graphs, and the index of the augmentation, which also selects the projection head.

    Attributes:
        batch: the augmented graphs, or the shard of them that belongs to one process.
        augmentation: index in the pool, one for all graphs or one per graph of ``batch``.
        row: ``(B,)`` the row of each graph of the batch in the projections; None if they are in the same order.
    """

    batch: GraphBatch
    augmentation: int | Tensor
    row: Tensor | None = None


def _augment(batch: GraphBatch, augmentation: Augmentation, generator: torch.Generator) -> GraphBatch:
    """Apply an augmentation, which may be custom code, and check that it keeps the numbers of graphs and features."""
    result = augmentation(batch, generator)
    name = type(augmentation).__name__
    if not isinstance(result, GraphBatch):
        raise UserError(f"augmentation {name}: returned {short_repr(result)}. Use dataclasses.replace(batch, ...).")
    before, after = ((each.num_graphs, each.x.shape[1]) for each in (batch, result))
    if before != after:
        raise UserError(
            f"augmentation {name}: returned {after[0]} graphs with {after[1]} features for {before[0]} graphs with "
            f"{before[1]} features. Keep both numbers."
        )
    return result


class BatchViews:
    """Draw views of one batch and project them.

    Random numbers are drawn per section of ``SECTION`` graphs. A batch of one section is drawn from the generator
    itself; several sections are drawn from generators seeded by it. So the seed alone determines the views, and several
    processes that draw different sections (:class:`joao.training.distributed.group.BatchShard`) get the same ones.

    The batch has the graphs of ``store`` with indices ``graphs`` ``(B,)``, which are on the device of ``store``.
    """

    def __init__(self, store: Store, graphs: Tensor) -> None:
        self.store, self.graphs = store, graphs
        self.starts: Sequence[int] = range(0, graphs.numel(), SECTION)
        self.has_one_section = len(self.starts) == 1
        self.shard = slice(0, graphs.numel())

    @cached_property
    def sections(self) -> list[GraphBatch]:
        return [self.store.batch(self.graphs[start : start + SECTION]) for start in self.starts]

    def view(self, indices: Tensor, pool: Sequence[Augmentation], generator: torch.Generator) -> View:
        """Draw a view.

        Args:
            indices: index of the augmentation of all graphs, ``(1,)``, or of each graph, ``(B,)``, on the CPU.
            pool: the augmentations.
            generator: on the device of the graphs; its state afterwards is the same in all processes.
        """
        generators = self._section_generators(generator)
        if indices.numel() == 1:
            index = int(indices)
            each = zip(self.sections, generators, strict=True)
            return View(self._join([_augment(section, pool[index], own) for section, own in each]), index)
        indices = indices.to(self.graphs.device)
        batches = []
        for start, own in zip(self.starts, generators, strict=True):
            graphs, drawn = (each[start : start + SECTION] for each in (self.graphs, indices))
            # Graphs with the same augmentation are augmented in one call, which sorts a section by augmentation.
            parts = [(self.store.batch(graphs[drawn == k]), pool[k]) for k in torch.unique(drawn).tolist()]
            batches.append(concatenate([_augment(part, augmentation, own) for part, augmentation in parts]))
        # The order covers all sections, also those of other processes.
        starts = range(0, self.graphs.numel(), SECTION)
        order = torch.cat([start + torch.argsort(indices[start : start + SECTION], stable=True) for start in starts])
        return View(self._join(batches), indices[order][self.shard], row=torch.argsort(order))

    def unchanged(self) -> GraphBatch:
        return self._join(self.sections)

    def project(self, model: nn.Module, view: View) -> Tensor:
        """Return the ``(B, d)`` projections of all graphs of the batch, in order."""
        return project(model, view)

    def is_unchanged(self, view: View) -> bool:
        """Whether ``view`` is known to contain the graphs without any change."""
        return self.has_one_section and view.batch is self.sections[0]

    def _section_generators(self, generator: torch.Generator) -> list[torch.Generator]:
        if self.has_one_section:
            return [generator]
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        return [
            torch.Generator(generator.device).manual_seed(derive_seed(seed, f"section {start // SECTION}"))
            for start in self.starts
        ]

    def _join(self, sections: list[GraphBatch]) -> GraphBatch:
        return sections[0] if len(sections) == 1 else concatenate(sections)


def project(model: nn.Module, view: View) -> Tensor:
    """Return the ``(B, d)`` projections of the graphs of ``view``, in the order of the batch."""
    z: Tensor = model(view.augmentation, *view.batch.fields)
    return z if view.row is None else z[view.row]


class Steps(ABC):
    """Update the weights on one batch, and measure the loss under every pair of augmentations.

    Attributes:
        loss_sum: ``()`` sum of loss times number of graphs over all training steps since it was last set to 0.
        finite_steps: ``()`` number of these steps after which the sum was finite.
    """

    loss_sum: Tensor
    finite_steps: Tensor

    @abstractmethod
    def load(self, batches: Sequence[Tensor]) -> Iterable[Any]:
        """Move batches (indices of graphs on the CPU) to the device, in the form that the other methods take."""

    @abstractmethod
    def train(self, batch: Any, pairs: Tensor) -> None:
        """Update encoder and heads on one batch.

        Args:
            batch: the graphs, from :meth:`load`.
            pairs: indices of the augmentations of both views, one pair for all graphs ``(1, 2)`` or one per graph
                ``(B, 2)``, on the CPU.
        """

    @abstractmethod
    def measure(self, batches: Iterable[Any]) -> Tensor:
        """Return ``(K, K)`` losses of all pairs, averaged over ``batches``."""


@dataclass(eq=False)
class EagerSteps(Steps, ABC):
    """Steps on batches of any size, with any encoder; ``exchange`` averages gradients over several processes."""

    store: Store
    pool: Sequence[Augmentation]
    objective: Objective
    model: torch.nn.Module
    optimiser: torch.optim.Optimizer
    fabric: Fabric
    generators: dict[str, torch.Generator]
    exchange: GradientExchange | None = None
    targets: MoleculeTargets | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.loss_sum = torch.zeros((), device=self.store.device)
        self.finite_steps = torch.zeros((), dtype=torch.long, device=self.store.device)

    @abstractmethod
    def loss(self, views: BatchViews, pairs: Tensor) -> Tensor:
        """Return the loss, ``()``, of a batch under ``pairs``."""

    def total_loss(self, graphs: Tensor, pairs: Tensor) -> Tensor:
        """The loss, and those of the targets, if there are any, for the graphs as they are."""
        views = self.views(graphs)
        if self.targets is None:
            return self.loss(views, pairs)
        predicted = self.model(None, *views.unchanged().fields)
        total = self.targets.loss(predicted, graphs)
        if self.targets.contrastive:
            # Embeddings are of graphs without augmentation, so only these count in the running statistics.
            with frozen_statistics(self.model):
                total = total + self.targets.contrastive * self.loss(views, pairs)
        return total

    def views(self, graphs: Tensor) -> BatchViews:
        return BatchViews(self.store, graphs)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the weights."""
        self.fabric.backward(loss)
        if self.exchange is not None:
            self.exchange.average()

    def load(self, batches: Sequence[Tensor]) -> list[Tensor]:
        return [graphs.to(self.store.device) for graphs in batches]

    def train(self, batch: Tensor, pairs: Tensor) -> None:
        loss = self.total_loss(batch, pairs)
        self.optimiser.zero_grad()
        self.backward(loss)
        self.optimiser.step()
        self.loss_sum += loss.detach() * batch.numel()
        self.finite_steps += self.loss_sum.isfinite()


class PairSteps(EagerSteps):
    """Steps with an objective that compares two views."""

    objective: PairObjective

    def loss(self, views: BatchViews, pairs: Tensor) -> Tensor:
        both = [views.view(indices, self.pool, self.generators["views"]) for indices in pairs.T]
        first, second = (views.project(self.model, view) for view in both)
        return self.objective(first, second)

    def pair_losses(self, graphs: Tensor) -> Tensor:
        """Return the ``(K, K)`` losses of one batch."""
        generator = self.generators["evaluation views"]
        return pair_losses(self.model, self.views(graphs), self.pool, self.objective, generator)

    def measure(self, batches: Iterable[Tensor]) -> Tensor:
        return torch.stack([self.pair_losses(graphs) for graphs in batches]).mean(0)


@final
class NodeSteps(EagerSteps):
    """Steps with a node-level objective, on the view made by the first augmentation of a pair."""

    def loss(self, views: BatchViews, pairs: Tensor) -> Tensor:
        view = views.view(pairs[:, 0], self.pool, self.generators["views"])
        return cast(Tensor, self.model(self.generators["views"], *view.batch.fields))

    def measure(self, batches: Iterable[Tensor]) -> Tensor:
        raise AssertionError("a node-level objective does not compare views")


@torch.no_grad()
def pair_losses(
    model: nn.Module,
    views: BatchViews,
    pool: Sequence[Augmentation],
    objective: PairObjective,
    generator: torch.Generator,
) -> Tensor:
    r"""Compute the loss :math:`\ell_{ij}` of a batch under every ordered pair of augmentations, ``(K, K)`` (Eq. 7).

    Each augmentation is drawn twice and each draw is encoded once; the pair (i, j) compares the first draw of i
    with the second draw of j. So at most :math:`2K` encodings serve all :math:`K^2` pairs, and (i, i) compares two
    draws. Batch normalisation uses the statistics of each draw and does not update its running statistics.
    """
    first, second = project_pool(model, views, pool, generator)
    table = second.new_zeros(len(pool), len(pool))
    for k, projections in enumerate(first):
        table[k] = objective(projections, second)
    return table


@torch.no_grad()
def project_pool(
    model: nn.Module, views: BatchViews, pool: Sequence[Augmentation], generator: torch.Generator
) -> tuple[list[Tensor], Tensor]:
    """Draw every augmentation twice; return K projections ``(B, d)`` and, of the second draws, ``(K, B, d)``."""
    indices = [torch.tensor([k]) for k in range(len(pool))]
    with preserve_buffers(model):
        first = [views.project(model, views.view(index, pool, generator)) for index in indices]
        again = [views.view(index, pool, generator) for index in indices]
        # Unchanged graphs, as from the augmentation identity, are not encoded a second time.
        second = [
            known if views.is_unchanged(view) else views.project(model, view)
            for view, known in zip(again, first, strict=True)
        ]
    return first, torch.stack(second)
