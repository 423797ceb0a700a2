"""Views: graphs as one or several augmentations show them.

The network that pre-training moves: encoder and what is thrown away afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.config.recipe import Recipe
from joao.core.errors import UserError, short_repr
from joao.core.graphs import GraphBatch, Store, concatenate
from joao.core.randomness import torch_generator
from joao.encoders import Encoder, NodeEncoder
from joao.heads import Heads
from joao.objectives import NodeObjective
from joao.training.order import BatchSampler


@dataclass(frozen=True, eq=False)
class View:
    """Augmented graphs, and which augmentation made them: the same number picks the graphs' projection head.

    Attributes:
        batch: the augmented graphs, or a process's part of them (:mod:`joao.training.distributed.share`).
        augmentation: the number in the pool of the augmentation of all these graphs, or of each one.
        row: ``(B,)`` where in ``batch``, all parts together, each graph is, or None if they are in their own order.
    """

    batch: GraphBatch
    augmentation: int | Tensor
    row: Tensor | None = None


def draw_view(batch: GraphBatch, number: int, pool: Sequence[Augmentation], generator: torch.Generator) -> View:
    """All graphs of ``batch`` under augmentation ``number``."""
    return View(_augmented(batch, pool[number], generator), number)


def draw_mixed_view(
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
            f"augmentation {name}: returned {short_repr(made)}. Return a batch: dataclasses.replace(batch, ...)."
        )
    before, after = ((each.num_graphs, each.x.shape[1]) for each in (batch, made))
    if before != after:
        raise UserError(
            f"augmentation {name}: made {after[0]} graphs with {after[1]} features of {before[0]} with {before[1]}. "
            "Keep both numbers."
        )
    return made


def calibrate_by_recipe(encoder: Encoder, store: Store, recipe: Recipe) -> None:
    calibrate(encoder, store, recipe.training.batch_size, torch_generator(recipe.training.seed, "calibration"))


class ContrastiveModel(nn.Module):
    """Encoder, then head. Call :func:`project` rather than the model itself."""

    def __init__(self, encoder: Encoder, heads: Heads) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = heads

    def forward(self, augmentation: int | Tensor, *fields: Any) -> Tensor:
        # Plain tensors, because what wraps the model for several devices or low precision knows no GraphBatch.
        projected: Tensor = self.heads(self.encoder(GraphBatch(*fields)), augmentation)
        return projected


def project(model: nn.Module, view: View, gather: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """``(B, d)`` projections of the graphs of ``view``, in the graphs' own order.

    Where it shows a part of them, ``gather`` puts its projections together with those of the other parts.
    """
    z: Tensor = model(view.augmentation, *view.batch.fields)
    z = z if gather is None else gather(z)
    return z if view.row is None else z[view.row]


class MomentumModel(nn.Module):
    """Encoder, head and predictor, and a copy of the first two that follows them. Call :func:`project` likewise."""

    def __init__(self, encoder: Encoder, heads: Heads, predictor: nn.Module) -> None:
        super().__init__()
        self.network = ContrastiveModel(encoder, heads)
        self.predictor = predictor
        self.copy = copy.deepcopy(self.network).requires_grad_(False)

    def forward(self, *view: Any) -> Tensor:
        """``(B, 2 d)``: predictions, and beside them the copy's projections."""
        return torch.cat([self.predictor(self.network(*view)), self.copy(*view)], dim=1)

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """The copy's weights become ``momentum`` times themselves plus the rest times the network's."""
        for slow, own in zip(self.copy.parameters(), self.network.parameters(), strict=True):
            slow.lerp_(own, 1 - momentum)


class NodeModel(nn.Module):
    """Encoder, and what an objective of nodes learns beside it."""

    def __init__(self, encoder: NodeEncoder, objective: NodeObjective) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts = objective.parts(encoder, encoder.num_node_dimensions)
        self.objective = objective

    def forward(self, generator: torch.Generator, *fields: Any) -> Tensor:
        """``()`` the loss of the graphs of a batch, given as its fields."""
        return self.objective(self.encoder.encode_nodes, self.parts, GraphBatch(*fields), generator)


@contextmanager
def preserve_buffers(module: nn.Module) -> Iterator[None]:
    """Whatever runs inside leaves the running statistics of normalisation, and all other buffers, as they were."""
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)


@torch.no_grad()
def embed(encoder: Encoder, store: Store, budget: int = 400_000) -> Tensor:
    """``(G, d)`` embeddings of all graphs of ``store``, on the CPU.

    Args:
        encoder: on the device of ``store``; used in evaluation mode and left in the mode it was in.
        store: the graphs.
        budget: about how many nodes and edges a batch has; it bounds memory and does not change the result, beyond
            rounding.
    """
    was_training = encoder.training
    encoder.eval()
    everything = torch.arange(len(store), device=store.device)
    parts = [encoder(store.batch(graphs)).cpu() for graphs in batches_by_size(store, everything, budget)]
    encoder.train(was_training)
    return torch.cat(parts).float()


@torch.no_grad()
def calibrate(
    encoder: Encoder, store: Store, batch_size: int, generator: torch.Generator, graphs: Tensor | None = None
) -> None:
    """Sets the statistics of batch normalisation to those of the graphs of ``store``, or of some of them.

    One pass without labels, in random batches as in training; ``generator`` and the numbers ``graphs`` ``(n,)`` are on
    the CPU.
    """
    norms = [module for module in encoder.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
    was_training = encoder.training
    encoder.train()
    order = (
        BatchSampler(len(store), batch_size, store.block)
        if graphs is None
        else BatchSampler(graphs.numel(), batch_size)
    )
    for places in chain.from_iterable(order.draw(generator)):
        encoder(store.batch((places if graphs is None else graphs[places]).to(store.device)))
    encoder.train(was_training)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def batches_by_size(store: Store, graphs: Tensor, budget: int = 400_000) -> list[Tensor]:
    """``graphs`` in order, in batches of about ``budget`` nodes and edges, and of one graph at least."""
    batch_of_graph = torch.div(torch.cumsum(store.sizes(graphs), 0), budget, rounding_mode="floor")
    counts = torch.unique_consecutive(batch_of_graph, return_counts=True)[1]
    return list(torch.split(graphs, counts.tolist()))
