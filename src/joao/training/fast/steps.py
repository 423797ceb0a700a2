"""Training on padded batches: every step does the same to the same tensors, so that a GPU can replay it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import torch
from torch import Tensor

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.core.graphs import GraphStore
from joao.core.padded import stack_views
from joao.encoders.base import Encoder, PaddedEncoder
from joao.heads import Heads
from joao.objectives import MomentumObjective, Objective, PairObjective
from joao.training.device import Fabric
from joao.training.fast.batches import (
    BufferPool,
    CudaGraphRunner,
    DeviceBatch,
    PaddedBuffers,
    drop_unused_edge_attr,
    find_padding_obstacle,
)
from joao.training.model import preserve_buffers
from joao.training.steps import PlainSteps, Steps


def find_fast_obstacle(
    encoder: Encoder, pool: Sequence[Augmentation], objective: Objective, pair_per: str, fabric: Fabric
) -> str:
    """What stands in the way of :class:`PaddedSteps`, in words; nothing, if empty."""
    if isinstance(objective, MomentumObjective):
        return f"the objective {type(objective).__name__} has a copy of the encoder that follows it"
    if not isinstance(objective, PairObjective) or not objective.static:
        return f"the objective {type(objective).__name__} does not say that it is static"
    if pair_per == "graph":
        return "pair_per = 'graph' mixes augmentations in a batch"
    return find_padding_obstacle(encoder, pool, fabric)


@final
class PaddedSteps(Steps):
    """On padded batches, recorded and replayed; a batch that is unusually large takes plain steps.

    Args:
        plain: the steps of batches that do not fit, with the same graphs, augmentations, objective and generators.
        encoder, heads: of the method.
        optimiser: of encoder and heads; on a GPU it must be capturable.
    """

    def __init__(
        self, plain: PlainSteps, encoder: PaddedEncoder, heads: Heads, optimiser: torch.optim.Optimizer
    ) -> None:
        store = plain.store
        assert isinstance(store, GraphStore)  # or there was a reason not to
        self.plain, self.encoder, self.heads, self.objective = plain, encoder, heads, plain.objective
        self.pool = [each for each in plain.pool if isinstance(each, PaddedAugmentation)]
        self.optimiser, self.precision = optimiser, plain.fabric.autocast
        self.views_generator = plain.generators["views"]
        self.evaluation_generator = plain.generators["evaluation views"]
        self.recorder = CudaGraphRunner(store.device, [self.views_generator, self.evaluation_generator])
        self.loss_sum, self.finite_steps = plain.loss_sum, plain.finite_steps
        self.pair_losses = torch.zeros(len(self.pool), len(self.pool), device=store.device)
        self.rooms = BufferPool(drop_unused_edge_attr(encoder, store), 2, self.recorder)

    def place(self, batches: Sequence[Tensor]) -> list[DeviceBatch]:
        return self.rooms.place(batches)

    def train(self, batch: DeviceBatch, pairs: Tensor) -> None:
        if not batch.fits:
            self.plain.train(batch, pairs)
            return
        room, size = self.rooms.filled(batch.graphs), batch.graphs.numel()
        first, second = pairs[0].tolist()
        for side, number in enumerate((first, second)):
            self.rooms.show(room, side, number, self.pool, self.views_generator)
        which_heads = None if self.heads.shared else (first, second)
        self.recorder.run(("step", size, which_heads), lambda: self._descend(room, first, second))

    def measure(self, batches: Iterable[DeviceBatch]) -> Tensor:
        self.pair_losses.zero_()
        count = 0
        for batch in batches:
            count += 1
            if batch.fits:
                room, size = self.rooms.filled(batch.graphs), batch.graphs.numel()
                self.recorder.run(("pair losses", size), lambda room=room: self._measure(room))  # type: ignore[misc]
            else:
                self.pair_losses += self.plain.measure([batch])
        return self.pair_losses / count

    def _descend(self, room: PaddedBuffers, first: int, second: int) -> None:
        with self.precision():
            embeddings = self.encoder.encode_padded(room.views)
            projected = self.heads(embeddings[0], first), self.heads(embeddings[1], second)
        loss = self.objective(*(each.float() for each in projected))
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss_sum += loss.detach() * room.graphs.numel()
        self.finite_steps += self.loss_sum.isfinite()

    @torch.no_grad()
    def _measure(self, room: PaddedBuffers) -> None:
        """As :func:`joao.training.steps.pair_losses`, all draws in one pass of the encoder."""
        numbers = range(len(self.pool))
        draws = [self.pool[k].padded(room.batch, self.evaluation_generator) for k in (*numbers, *numbers)]
        # Graphs that were left as they are need not be encoded again.
        repeated = [k for k in numbers if draws[k] is room.batch]
        kept = [k for k in range(len(draws)) if k - len(self.pool) not in repeated]
        with self.precision(), preserve_buffers(self.encoder):
            embeddings = self.encoder.encode_padded(stack_views([draws[k] for k in kept]))
            projected = {k: self.heads(embeddings[n], k % len(self.pool)).float() for n, k in enumerate(kept)}
        second = torch.stack([projected.get(k + len(self.pool), projected[k]) for k in numbers])
        self.pair_losses += torch.stack([self.objective(projected[k], second) for k in numbers])
