r"""Networks for pre-training, the order of batches in an epoch, embedding and calibration.

:class:`BatchSampler` permutes graphs in memory uniformly. Graphs in shards are permuted in two stages, because a
permutation of all of them would be as long as the data and would touch every page of the files again and again:

1. the store is split into blocks of consecutive graphs, and the blocks are put into a uniformly random order;
2. blocks with :data:`WINDOW` graphs in total are taken together, and their graphs are permuted uniformly.

Every graph comes once per epoch, at each position with equal probability (except for a shorter last block), and a batch
is a uniform sample of the graphs of its window. Not random: graphs of one block come in the same window, that is within
one of :math:`n / w` parts of an epoch with :math:`n` graphs and windows of :math:`w`. A store of at most one window,
about a million graphs, is permuted uniformly, exactly as in memory.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from joao.config.recipe import Recipe
from joao.core.graphs import GraphBatch, Store
from joao.core.randomness import torch_generator
from joao.encoders import Encoder, NodeEncoder
from joao.encoders.base import LayeredEncoder
from joao.heads import Heads
from joao.objectives import NodeObjective

WINDOW = 1 << 20  # graphs that are permuted together
MOST_ROUNDING = 1e-6  # running variance that rounding leaves of a constant channel; 1.5e-7 was seen


@dataclass(frozen=True)
class BatchSampler:
    """Split the graphs of an epoch into random batches.

    Args:
        num_graphs: number of graphs of the data set.
        batch_size: graphs in a batch.
        block: number of consecutive graphs that stay together, see above; 0 permutes all graphs uniformly.
        window: number of graphs that are permuted together, a multiple of ``block``.
        least: a last batch of fewer graphs is merged into the batch before it.
    """

    num_graphs: int
    batch_size: int
    block: int = 0
    window: int = WINDOW
    least: int = 2

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        whole, rest = divmod(self.num_graphs, self.batch_size)
        return max(1, whole + (rest >= self.least))

    def draw(self, generator: torch.Generator) -> Iterator[list[Tensor]]:
        """Yield lists of batches (indices of graphs) that make up one epoch; each list is drawn when it is needed."""
        held_back = torch.zeros(0, dtype=torch.long)
        num_drawn = 0
        for indices in self._windows(generator):
            num_drawn += indices.numel()
            waiting = torch.cat([held_back, indices]) if held_back.numel() else indices
            if num_drawn == self.num_graphs:
                yield split_into_batches(waiting, self.batch_size, self.least)
                return
            # Hold back some graphs, so that a small last batch can be merged into another batch.
            count = (waiting.numel() - self.least) // self.batch_size * self.batch_size
            held_back = waiting[count:].clone()
            if count:
                yield list(torch.split(waiting[:count], self.batch_size))

    def _windows(self, generator: torch.Generator) -> Iterator[Tensor]:
        if not self.block or self.num_graphs <= self.window:
            yield torch.randperm(self.num_graphs, generator=generator)
            return
        blocks = torch.randperm(math.ceil(self.num_graphs / self.block), generator=generator)
        for chosen in torch.split(blocks, max(1, self.window // self.block)):
            indices = (chosen[:, None] * self.block + torch.arange(self.block)).flatten()
            indices = indices[indices < self.num_graphs]  # the last block may be shorter
            yield indices[torch.randperm(indices.numel(), generator=generator)]


def split_into_batches(indices: Tensor, batch_size: int, least: int = 2) -> list[Tensor]:
    """Split ``indices`` into batches; a last batch of fewer than ``least`` graphs is merged into the one before it."""
    batches = list(torch.split(indices, batch_size))
    if batches[-1].numel() < least and len(batches) > 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def batches_by_size(store: Store, graphs: Tensor, budget: int = 400_000) -> list[Tensor]:
    """Split ``graphs``, in order, into batches of about ``budget`` nodes and edges, with at least one graph each."""
    batch_of_graph = torch.div(torch.cumsum(store.sizes(graphs), 0), budget, rounding_mode="floor")
    counts = torch.unique_consecutive(batch_of_graph, return_counts=True)[1]
    return list(torch.split(graphs, counts.tolist()))


class ContrastiveModel(nn.Module):
    """Encoder and projection head. Call :func:`joao.training.steps.project` instead of the model."""

    def __init__(self, encoder: Encoder, heads: Heads) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = heads

    def forward(self, augmentation: int | Tensor, *fields: Any) -> Tensor:
        # The arguments are plain tensors, because Fabric's wrappers for precision do not look into a GraphBatch.
        return cast(Tensor, self.heads(self.encoder(GraphBatch(*fields)), augmentation))


class MomentumModel(nn.Module):
    """Encoder, head and predictor, and a momentum copy of encoder and head. Called in the same way."""

    def __init__(self, encoder: Encoder, heads: Heads, predictor: nn.Module) -> None:
        super().__init__()
        self.network = ContrastiveModel(encoder, heads)
        self.predictor = predictor
        self.copy = copy.deepcopy(self.network).requires_grad_(False)

    def forward(self, *view: Any) -> Tensor:
        """Return ``(B, 2 d)``: predictions, and next to them the projections of the momentum copy."""
        return torch.cat([self.predictor(self.network(*view)), self.copy(*view)], dim=1)

    @torch.no_grad()
    def update_copy(self, momentum: float) -> None:
        """Set the weights of the copy to ``momentum`` times themselves plus ``1 - momentum`` times the network's."""
        for slow, own in zip(self.copy.parameters(), self.network.parameters(), strict=True):
            slow.lerp_(own, 1 - momentum)


class NodeModel(nn.Module):
    """Encoder and the trainable parts of a node-level objective."""

    def __init__(self, encoder: NodeEncoder, objective: NodeObjective) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts = objective.parts(encoder, encoder.num_node_dimensions)
        self.objective = objective

    def forward(self, generator: torch.Generator, *fields: Any) -> Tensor:
        """Return the loss, ``()``, of a batch given by its fields."""
        return self.objective(self.encoder.encode_nodes, self.parts, GraphBatch(*fields), generator)


@contextmanager
def preserve_buffers(module: nn.Module) -> Iterator[None]:
    """Restore all buffers, such as the running statistics of batch normalisation, on exit."""
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Do not update the running statistics of batch normalisation; unlike :func:`preserve_buffers`, with gradients."""
    norms = _batch_norms(module)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    yield
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


@torch.no_grad()
def embed(encoder: Encoder, store: Store, budget: int | None = None, *, pooled: bool = False) -> Tensor:
    """Compute the ``(G, d)`` embeddings of all graphs of ``store``, on the CPU, in evaluation mode.

    ``encoder``, on the device of ``store``, is left in the mode it was in. ``budget``, the approximate number of nodes
    and edges in a batch, bounds memory and does not change the result, except for rounding. By default, the encoder
    chooses it on a CPU, and the batches fill a GPU. ``pooled``: as in training, without the encoder's readout.
    """
    encode = encoder if pooled and isinstance(encoder, LayeredEncoder) else encoder.embed
    budget = budget or (encoder.cpu_budget if store.device.type == "cpu" else 400_000)
    was_training = encoder.training
    encoder.eval()
    all_graphs = torch.arange(len(store), device=store.device)
    parts = [encode(store.batch(graphs)).cpu() for graphs in batches_by_size(store, all_graphs, budget)]
    encoder.train(was_training)
    return torch.cat(parts).float()


def calibrate_by_recipe(encoder: Encoder, store: Store, recipe: Recipe) -> None:
    """Calibrate with the batch size and the seed of a recipe."""
    calibrate(encoder, store, recipe.training.batch_size, torch_generator(recipe.training.seed, "calibration"))


@torch.no_grad()
def reset_silent_channels(model: nn.Module) -> None:
    r"""Set the running variance of channels that were constant in training, such as silent ReLUs, to 1.

    The first graph to activate such a channel would be scaled by :math:`1 / \sqrt{\epsilon}`, which is more than 300.
    Graphs that leave the channel constant keep their output, except for rounding.
    """
    for norm in _batch_norms(model):
        if norm.running_var is not None:
            is_silent = norm.running_var < MOST_ROUNDING
            norm.running_var.copy_(torch.where(is_silent, 1.0, norm.running_var))


def _batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


@torch.no_grad()
def calibrate(
    encoder: Encoder, store: Store, batch_size: int, generator: torch.Generator, graphs: Tensor | None = None
) -> None:
    """Set the running statistics of batch normalisation to those of the graphs of ``store``, or of some of them.

    This is one pass without labels, in random batches as in training; ``generator`` and the indices ``graphs`` ``(n,)``
    are on the CPU.
    """
    norms = _batch_norms(encoder)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
    was_training = encoder.training
    encoder.train()
    count, block = (len(store), store.block) if graphs is None else (graphs.numel(), 0)
    for indices in chain.from_iterable(BatchSampler(count, batch_size, block).draw(generator)):
        encoder(store.batch((indices if graphs is None else graphs[indices]).to(store.device)))
    encoder.train(was_training)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
