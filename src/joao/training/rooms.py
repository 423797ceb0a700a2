"""Rooms: padded batches in tensors that stay, so that work on them can be recorded."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.encoders.base import Encoder, PaddedEncoder
from joao.errors import UserError
from joao.graphs import GraphStore
from joao.padded import PaddedBatch, PaddedViews, stack
from joao.padded_store import PaddedStore
from joao.training.device import Fabric
from joao.training.recorder import Recorder


@dataclass(frozen=True, eq=False)
class Placed:
    """A batch on its device: the numbers of its graphs, ``(B,)``, and whether it is of a usual size."""

    graphs: Tensor
    fits: bool = True


@dataclass(frozen=True, eq=False)
class Room:
    """The tensors that the recordings for one number of graphs read and write."""

    graphs: Tensor
    batch: PaddedBatch
    views: PaddedViews


class Rooms:
    """A room for each number of graphs, made when it is first needed.

    Args:
        store: the graphs, on the device to work on.
        num_views: of each batch.
        recorder: of the work.
    """

    def __init__(self, store: GraphStore, num_views: int, recorder: Recorder) -> None:
        self.store, self.num_views, self.recorder = PaddedStore(store), num_views, recorder
        self.sizes = store.first_node.diff().cpu(), store.first_edge.diff().cpu()
        self.capacity: dict[int, tuple[int, int]] = {}
        self.rooms: dict[int, Room] = {}

    def place(self, batches: Sequence[Tensor]) -> list[Placed]:
        """Brings batches, the numbers of their graphs on the CPU, to the device."""
        fits = [self._fits(graphs) for graphs in batches]
        numbers = torch.cat(list(batches)).to(self.store.x.device)
        on_device = torch.split(numbers, [graphs.numel() for graphs in batches])
        return [Placed(*each) for each in zip(on_device, fits, strict=True)]

    def _fits(self, graphs: Tensor) -> bool:
        count = graphs.numel()
        if count not in self.capacity:
            nodes, edges = (usual_room(each, count) for each in self.sizes)
            self.capacity[count] = nodes, edges
        return all(int(each[graphs].sum()) <= room for each, room in zip(self.sizes, self.capacity[count], strict=True))

    def filled(self, graphs: Tensor) -> Room:
        """The room with these graphs in it, which fit."""
        size = graphs.numel()
        if size not in self.rooms:
            own = graphs.clone()
            num_nodes, num_edges = self.capacity[size]
            batch = self.store.batch(own, num_nodes + 1, num_edges)
            self.rooms[size] = Room(own, batch, stack([batch] * self.num_views))
        room = self.rooms[size]
        room.graphs.copy_(graphs)
        self.recorder.run(("batch", size), lambda: self.store.fill(room.batch, room.graphs))
        return room

    def show(
        self, room: Room, side: int, number: int, pool: Sequence[PaddedAugmentation], generator: torch.Generator
    ) -> None:
        """Makes view ``side`` of the room's batch by augmentation ``number``."""

        def draw() -> None:
            view = pool[number].padded(room.batch, generator)
            for name in ("x", "source", "target", "first_edge", "keep", "edge_attr"):
                if getattr(view, name) is not None:
                    getattr(room.views, name)[side].copy_(getattr(view, name))

        self.recorder.run(("view", room.graphs.numel(), side, number), draw)


def as_seen_by(encoder: Encoder, store: GraphStore) -> GraphStore:
    """``store`` without edge attributes where they do not matter to ``encoder``."""
    return store if encoder.uses_edge_attr else replace(store, edge_attr=None)


def why_not_padded(encoder: Encoder, pool: Sequence[Augmentation], fabric: Fabric) -> str:
    """What stands in the way of training on padded batches, in words; nothing, if empty."""
    if not isinstance(encoder, PaddedEncoder):
        own = getattr(encoder, "module", encoder)  # a user's, wrapped
        return f"the encoder {type(own).__name__} has no padded form"
    for each in pool:
        if not isinstance(each, PaddedAugmentation):
            return f"the augmentation {type(each).__name__} has no padded form"
    precision = fabric.strategy.precision
    if getattr(precision, "scaler", None) is not None:
        return "16-mixed scales gradients by what it finds in them"
    if precision.precision not in ("32-true", "bf16-mixed"):
        return f"precision {precision.precision} is not 32-true, tf32 or bf16-mixed"
    if fabric.world_size > 1:
        return "gradients are averaged over several processes"
    if fabric.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    return ""


def takes_fast_path(place: str, wanted: bool | None, reason: str, on_gpu: bool) -> bool:
    """Whether to train on padded batches: as ``wanted`` or, where nothing is said, on a GPU; not against a reason."""
    if wanted and reason:
        raise UserError(f"{place}: the fast path is not possible: {reason}. Leave 'fast' out, or say plain.")
    return not reason and (on_gpu if wanted is None else wanted)


def usual_room(sizes: Tensor, count: int) -> int:
    r"""Room for the items of ``count`` graphs drawn at random, of which there are ``sizes`` ``(G,)``.

    .. math:: b \bar n + 4 \sqrt{b} \, \sigma_n

    for :math:`b` graphs with sizes of mean :math:`\bar n` and deviation :math:`\sigma_n`, and never more than the
    largest have. It depends on the data alone: neither seed nor length of a training has a say in its draws.
    """
    most = int(sizes.sort(descending=True).values[:count].sum())
    numbers = sizes.double()
    return min(most, math.ceil(count * float(numbers.mean()) + 4 * math.sqrt(count) * float(numbers.std(correction=0))))
