"""Training on padded batches: every step does the same to the same tensors, so that a GPU can replay it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.encoders.base import Encoder, PaddedEncoder
from joao.graphs import GraphStore
from joao.heads import Heads
from joao.objectives import Objective
from joao.padded import PaddedBatch, PaddedViews, stack
from joao.padded_store import PaddedStore
from joao.training.device import Fabric
from joao.training.model import statistics_untouched
from joao.training.recorder import Recorder
from joao.training.steps import Placed, PlainSteps, Steps


@dataclass(frozen=True)
class _Room:
    """The tensors that the recordings for one number of graphs read and write."""

    graphs: Tensor
    batch: PaddedBatch
    views: PaddedViews


def why_not_static(
    encoder: Encoder, pool: Sequence[Augmentation], objective: Objective, pair_per: str, fabric: Fabric
) -> str:
    """What stands in the way of :class:`StaticSteps`, in words; nothing, if empty."""
    if not isinstance(encoder, PaddedEncoder):
        own = getattr(encoder, "module", encoder)  # a user's, wrapped
        return f"the encoder {type(own).__name__} has no padded form"
    for each in pool:
        if not isinstance(each, PaddedAugmentation):
            return f"the augmentation {type(each).__name__} has no padded form"
    if not objective.static:
        return f"the objective {type(objective).__name__} does not say that it is static"
    if pair_per == "graph":
        return "pair_per = 'graph' mixes augmentations in a batch"
    precision = fabric.strategy.precision
    if getattr(precision, "scaler", None) is not None:
        return "16-mixed scales gradients by what it finds in them"
    if precision.precision not in ("32-true", "bf16-mixed"):
        return f"precision {precision.precision} is not 32-true, tf32 or bf16-mixed"
    if fabric.world_size > 1:
        return "gradients are averaged over several processes"
    if fabric.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return ""


def usual_room(sizes: Tensor, count: int) -> int:
    r"""Room for the items of ``count`` graphs drawn at random, of which there are ``sizes`` ``(G,)``.

    .. math:: b \bar n + 4 \sqrt{b} \, \sigma_n

    for :math:`b` graphs with sizes of mean :math:`\bar n` and deviation :math:`\sigma_n`, and never more than the
    largest have. It depends on the data alone: neither seed nor length of a training has a say in its draws.
    """
    most = int(sizes.sort(descending=True).values[:count].sum())
    numbers = sizes.double()
    return min(most, math.ceil(count * float(numbers.mean()) + 4 * math.sqrt(count) * float(numbers.std(correction=0))))


@final
class StaticSteps(Steps):
    """On padded batches, recorded and replayed; a batch that is unusually large takes plain steps.

    Args:
        store: the graphs, on the device to train on.
        pool: the augmentations.
        encoder, heads, objective: of the method.
        optimiser: of encoder and heads; on a GPU it must be capturable.
        generators: ``views`` and ``evaluation views``.
        precision: makes the context that projections are computed in.
        plain: the steps of batches that do not fit.

    """

    def __init__(
        self,
        store: GraphStore,
        pool: Sequence[PaddedAugmentation],
        encoder: PaddedEncoder,
        heads: Heads,
        objective: Objective,
        optimiser: torch.optim.Optimizer,
        generators: Mapping[str, torch.Generator],
        precision: Callable[[], AbstractContextManager[object]],
        plain: PlainSteps,
    ) -> None:
        self.store, self.plain = PaddedStore(store), plain
        self.sizes = store.first_node.diff().cpu(), store.first_edge.diff().cpu()
        self.pool, self.encoder, self.heads, self.objective = pool, encoder, heads, objective
        self.optimiser, self.precision = optimiser, precision
        self.views_generator, self.evaluation_generator = generators["views"], generators["evaluation views"]
        self.recorder = Recorder(store.device, [self.views_generator, self.evaluation_generator])
        self.loss_sum = plain.loss_sum
        self.pair_losses = torch.zeros(len(pool), len(pool), device=store.device)
        self.capacity: dict[int, tuple[int, int]] = {}
        self.rooms: dict[int, _Room] = {}

    def place(self, batches: Sequence[Tensor]) -> list[Placed]:
        fits = [self._fits(graphs) for graphs in batches]
        numbers = torch.cat(list(batches)).to(self.loss_sum.device)
        on_device = torch.split(numbers, [graphs.numel() for graphs in batches])
        return [Placed(*each) for each in zip(on_device, fits, strict=True)]

    def _fits(self, graphs: Tensor) -> bool:
        count = graphs.numel()
        if count not in self.capacity:
            nodes, edges = (usual_room(each, count) for each in self.sizes)
            self.capacity[count] = nodes, edges
        return all(int(each[graphs].sum()) <= room for each, room in zip(self.sizes, self.capacity[count], strict=True))

    def train(self, batch: Placed, pairs: Tensor) -> None:
        if not batch.fits:
            self.plain.train(batch, pairs)
            return
        room, size = self._room(batch.graphs), batch.graphs.numel()
        first, second = pairs[0].tolist()
        self.recorder.run(("view", size, 0, first), lambda: self._draw(room, 0, first))
        self.recorder.run(("view", size, 1, second), lambda: self._draw(room, 1, second))
        which_heads = None if self.heads.shared else (first, second)
        self.recorder.run(("step", size, which_heads), lambda: self._descend(room, first, second))

    def measure(self, batches: Sequence[Placed]) -> Tensor:
        self.pair_losses.zero_()
        for batch in batches:
            if batch.fits:
                room, size = self._room(batch.graphs), batch.graphs.numel()
                self.recorder.run(("pair losses", size), lambda room=room: self._measure(room))  # type: ignore[misc]
            else:
                self.pair_losses += self.plain.measure([batch])
        return self.pair_losses / len(batches)

    def _room(self, graphs: Tensor) -> _Room:
        size = graphs.numel()
        if size not in self.rooms:
            own = graphs.clone()
            num_nodes, num_edges = self.capacity[size]
            batch = self.store.batch(own, num_nodes + 1, num_edges)
            self.rooms[size] = _Room(own, batch, stack([batch, batch]))
        room = self.rooms[size]
        room.graphs.copy_(graphs)
        self.recorder.run(("batch", size), lambda: self.store.fill(room.batch, room.graphs))
        return room

    def _draw(self, room: _Room, side: int, number: int) -> None:
        view = self.pool[number].padded(room.batch, self.views_generator)
        for name in ("x", "source", "target", "first_edge", "keep"):
            getattr(room.views, name)[side].copy_(getattr(view, name))

    def _descend(self, room: _Room, first: int, second: int) -> None:
        with self.precision():
            embeddings = self.encoder.encode_padded(room.views)
            projected = self.heads(embeddings[0], first), self.heads(embeddings[1], second)
        loss = self.objective(*(each.float() for each in projected))
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss_sum += loss.detach() * room.graphs.numel()

    @torch.no_grad()
    def _measure(self, room: _Room) -> None:
        """As :func:`joao.training.lower_level.pair_losses`, all draws in one pass of the encoder."""
        numbers = range(len(self.pool))
        draws = [self.pool[k].padded(room.batch, self.evaluation_generator) for k in (*numbers, *numbers)]
        # Graphs that were left as they are need not be encoded again.
        repeated = [k for k in numbers if draws[k] is room.batch]
        kept = [k for k in range(len(draws)) if k - len(self.pool) not in repeated]
        with self.precision(), statistics_untouched(self.encoder):
            embeddings = self.encoder.encode_padded(stack([draws[k] for k in kept]))
            projected = {k: self.heads(embeddings[n], k % len(self.pool)).float() for n, k in enumerate(kept)}
        second = torch.stack([projected.get(k + len(self.pool), projected[k]) for k in numbers])
        self.pair_losses += torch.stack([self.objective(projected[k], second) for k in numbers])
