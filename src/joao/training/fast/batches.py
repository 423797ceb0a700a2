"""Replaying work on a GPU instead of sending it kernel by kernel.

All graphs of a data set, ready to be laid out in padded batches without a word from the device to the host.

Buffers: padded batches in tensors that stay, so that work on them can be recorded."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.core.errors import UserError
from joao.core.graphs import GraphStore, take_rows
from joao.core.padded import PaddedBatch, PaddedViews, stack_views
from joao.encoders.base import Encoder, PaddedEncoder
from joao.kernels.graph_ops import copy_graphs
from joao.training.device import Fabric


class CudaGraphRunner:
    """Runs functions; on a GPU each is recorded as a CUDA graph when it comes up again, and replayed from then on.

    A function that is run under a key does the same to the same tensors every time: it reads and writes tensors that
    stay, draws only from the registered generators or torch's own, and asks the device nothing. On a CPU it is simply
    called.

    Args:
        device: where the functions work.
        generators: those they draw from.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.records = device.type == "cuda"
        self.generators = generators
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._memory = torch.cuda.graph_pool_handle() if self.records else None

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Calls ``function``, or what was recorded of it under ``key``."""
        if key in self._graphs:
            self._graphs[key].replay()
        elif not self.records:
            function()
        elif key not in self._seen:
            # The first time nothing is recorded: kernels are compiled and the optimiser's state comes into being.
            with _side_stream():
                function()
            self._seen.add(key)
        else:
            self._graphs[key] = self._record(function)
            self._graphs[key].replay()

    def _record(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        # One pool of memory serves all recordings: nothing in it is needed once a replay is over.
        with torch.cuda.graph(graph, pool=self._memory):
            function()
        # Recording sets the generators' place to 0 on a stream of its own, which a replay must not overtake.
        torch.cuda.synchronize()
        return graph


@contextmanager
def _side_stream() -> Iterator[None]:
    """Where work must be warmed up that is to be recorded."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


class PaddedStore:
    """The graphs of ``store`` as padded batches.

    Attributes:
        x, source, target, first_node, first_edge, edge_attr: of ``store``.
        nodes_of_graph, edges_of_graph: ``(G,)`` the graphs' sizes.
        edge_of_node: ``(N,)`` where each node's edges begin, counted inside its graph.
        reverse_edge: ``(E,)`` the position of each edge's other direction, counted inside its graph.
    """

    def __init__(self, store: GraphStore) -> None:
        self.x, self.first_node, self.first_edge = store.x, store.first_node, store.first_edge
        # Room left over reads some edge, whatever it is: there must be one.
        self.source, self.target = (F.pad(end, (0, 1)) for end in (store.source, store.target))
        self.edge_attr = None if store.edge_attr is None else F.pad(store.edge_attr, (0, 0, 0, 1))
        self.nodes_of_graph, self.edges_of_graph = store.first_node.diff(), store.first_edge.diff()
        self.most_nodes, self.most_edges = int(self.nodes_of_graph.max()), int(self.edges_of_graph.max())
        graph_of_node = torch.repeat_interleave(self.nodes_of_graph)
        graph_of_edge = torch.repeat_interleave(self.edges_of_graph)
        shift = take_rows(store.first_node, graph_of_edge)
        numbers = torch.arange(len(graph_of_node), device=store.device)
        first = torch.searchsorted(store.target + shift, numbers)
        self.edge_of_node = first - take_rows(store.first_edge, graph_of_node)
        # Edges are sorted by (graph, target, source). Sorted by (graph, source, target) instead, the k-th one is the
        # other direction of edge k.
        reverse = torch.argsort(store.source + shift, stable=True) - take_rows(store.first_edge, graph_of_edge)
        self.reverse_edge = F.pad(reverse, (0, 1))

    def batch(self, graphs: Tensor, num_nodes: int, num_edges: int) -> PaddedBatch:
        """The graphs numbered ``graphs`` ``(g,)``, which must have fewer than ``num_nodes`` nodes and at most
        ``num_edges`` directed edges."""
        device = self.x.device

        def integers(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.long, device=device)

        batch = PaddedBatch(
            x=torch.empty(num_nodes, self.x.shape[1], device=device),
            source=integers(num_edges),
            target=integers(num_edges),
            first_edge=integers(num_nodes + 1),
            reverse_edge=integers(num_edges),
            keep=torch.empty(num_nodes, dtype=torch.bool, device=device),
            graph_of_node=integers(num_nodes),
            first_node=integers(len(graphs) + 1),
            most_nodes=self.most_nodes,
            most_edges=self.most_edges,
            edge_attr=None if self.edge_attr is None else self.edge_attr.new_zeros(num_edges, self.edge_attr.shape[1]),
        )
        self.fill(batch, graphs)
        return batch

    def fill(self, batch: PaddedBatch, graphs: Tensor) -> None:
        """Puts other graphs, as many as there were, into the tensors of ``batch``."""
        first_edge_of_graph = torch.zeros_like(batch.first_node)
        torch.cumsum(take_rows(self.nodes_of_graph, graphs), 0, out=batch.first_node[1:])
        torch.cumsum(take_rows(self.edges_of_graph, graphs), 0, out=first_edge_of_graph[1:])
        copy_graphs(self, graphs, first_edge_of_graph, batch)


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """A batch on its device: the numbers of its graphs, ``(B,)``, and whether it is of a usual size."""

    graphs: Tensor
    fits: bool = True


@dataclass(frozen=True, eq=False)
class PaddedBuffers:
    """The tensors that the recordings for one number of graphs read and write."""

    graphs: Tensor
    batch: PaddedBatch
    views: PaddedViews


class BufferPool:
    """A room for each number of graphs, made when it is first needed.

    Args:
        store: the graphs, on the device to work on.
        num_views: of each batch.
        recorder: of the work.
    """

    def __init__(self, store: GraphStore, num_views: int, recorder: CudaGraphRunner) -> None:
        self.store, self.num_views, self.recorder = PaddedStore(store), num_views, recorder
        self.sizes = store.first_node.diff().cpu(), store.first_edge.diff().cpu()
        self.capacity: dict[int, tuple[int, int]] = {}
        self.rooms: dict[int, PaddedBuffers] = {}

    def place(self, batches: Sequence[Tensor]) -> list[DeviceBatch]:
        """Brings batches, the numbers of their graphs on the CPU, to the device."""
        fits = [self._fits(graphs) for graphs in batches]
        numbers = torch.cat(list(batches)).to(self.store.x.device)
        on_device = torch.split(numbers, [graphs.numel() for graphs in batches])
        return [DeviceBatch(*each) for each in zip(on_device, fits, strict=True)]

    def _fits(self, graphs: Tensor) -> bool:
        count = graphs.numel()
        if count not in self.capacity:
            nodes, edges = (buffer_capacity(each, count) for each in self.sizes)
            self.capacity[count] = nodes, edges
        return all(int(each[graphs].sum()) <= room for each, room in zip(self.sizes, self.capacity[count], strict=True))

    def filled(self, graphs: Tensor) -> PaddedBuffers:
        """The room with these graphs in it, which fit."""
        size = graphs.numel()
        if size not in self.rooms:
            own = graphs.clone()
            num_nodes, num_edges = self.capacity[size]
            batch = self.store.batch(own, num_nodes + 1, num_edges)
            self.rooms[size] = PaddedBuffers(own, batch, stack_views([batch] * self.num_views))
        room = self.rooms[size]
        room.graphs.copy_(graphs)
        self.recorder.run(("batch", size), lambda: self.store.fill(room.batch, room.graphs))
        return room

    def show(
        self,
        room: PaddedBuffers,
        side: int,
        number: int,
        pool: Sequence[PaddedAugmentation],
        generator: torch.Generator,
    ) -> None:
        """Makes view ``side`` of the room's batch by augmentation ``number``."""

        def draw() -> None:
            view = pool[number].padded(room.batch, generator)
            for name in ("x", "source", "target", "first_edge", "keep", "edge_attr"):
                if getattr(view, name) is not None:
                    getattr(room.views, name)[side].copy_(getattr(view, name))

        self.recorder.run(("view", room.graphs.numel(), side, number), draw)


def drop_unused_edge_attr(encoder: Encoder, store: GraphStore) -> GraphStore:
    """``store`` without edge attributes where they do not matter to ``encoder``."""
    return store if encoder.uses_edge_attr else replace(store, edge_attr=None)


def find_padding_obstacle(encoder: Encoder, pool: Sequence[Augmentation], fabric: Fabric) -> str:
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


def choose_fast_path(place: str, wanted: bool | None, reason: str, on_gpu: bool) -> bool:
    """Whether to train on padded batches: as ``wanted`` or, where nothing is said, on a GPU; not against a reason."""
    if wanted and reason:
        raise UserError(f"{place}: the fast path is not possible: {reason}. Leave 'fast' out, or say plain.")
    return not reason and (on_gpu if wanted is None else wanted)


def buffer_capacity(sizes: Tensor, count: int) -> int:
    r"""Room for the items of ``count`` graphs drawn at random, of which there are ``sizes`` ``(G,)``.

    .. math:: b \bar n + 4 \sqrt{b} \, \sigma_n

    for :math:`b` graphs with sizes of mean :math:`\bar n` and deviation :math:`\sigma_n`, and never more than the
    largest have. It depends on the data alone: neither seed nor length of a training has a say in its draws.
    """
    most = int(sizes.sort(descending=True).values[:count].sum())
    numbers = sizes.double()
    return min(most, math.ceil(count * float(numbers.mean()) + 4 * math.sqrt(count) * float(numbers.std(correction=0))))
