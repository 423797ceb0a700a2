"""Padded batches in buffers of fixed size, so that a GPU can capture the work on them in CUDA graphs and replay it.

A step on small graphs launches hundreds of short kernels, and launching them one by one takes longer than running them.
A captured CUDA graph launches all of them at once. It requires that every run uses the same tensors with the same
shapes, and that the host never waits for a value from the device. Hence batches are padded to a common size, live in
buffers that are refilled in place, and are assembled on the device.
"""

from __future__ import annotations

import copy
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.core.errors import UserError
from joao.core.graphs import GraphStore, take_rows
from joao.core.padded import PaddedBatch, PaddedViews, stack_views
from joao.encoders.base import Encoder, PaddedEncoder
from joao.kernels.graph_ops import copy_graphs

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from joao.training.fast.feed import ShardFeed


class CudaGraphRunner:
    """Run functions; on a GPU, capture each as a CUDA graph on its second call and replay it from then on.

    A function that is run under a key must do the same to the same tensors every time: it reads and writes tensors that
    persist, draws only from the registered generators or torch's own, and must not synchronise with the host. On a CPU
    it is simply called.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.captures = device.type == "cuda"
        self.generators = generators
        self._warmed_up: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._memory = torch.cuda.graph_pool_handle() if self.captures else None

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Call ``function``, or replay the CUDA graph that was captured from it under ``key``."""
        if key in self._graphs:
            self._graphs[key].replay()
        elif not self.captures:
            function()
        elif key not in self._warmed_up:
            # The first call only warms up: Triton compiles kernels and the optimiser creates its state.
            # It runs on a side stream, as torch requires before a capture.
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function()
            torch.cuda.current_stream().wait_stream(stream)
            self._warmed_up.add(key)
        else:
            self._graphs[key] = self._capture(function)
            self._graphs[key].replay()

    def _capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        # All CUDA graphs share one memory pool: no intermediate result is needed after a replay.
        # Other threads, such as that of nccl, may meanwhile use the GPU.
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            function()
        # Capturing resets the generators' offsets on a separate stream; a replay must not start before that.
        torch.cuda.synchronize()
        return graph


class PaddedStore:
    """Assemble padded batches of the graphs of ``store`` on its device.

    Args:
        most: maximum number of nodes and of directed edges of a graph of the data set, if ``store`` is a part of it. If
            it is given, the host does not wait for a GPU.

    Attributes:
        x, source, target, first_node, first_edge, edge_attr: as in ``store``.
        nodes_of_graph, edges_of_graph: ``(G,)`` sizes of the graphs.
        edge_of_node: ``(N,)`` index of the first edge of each node, relative to the first edge of its graph.
        reverse_edge: ``(E,)`` index of the reverse of each edge, relative to the first edge of its graph.
    """

    def __init__(self, store: GraphStore, most: tuple[int, int] | None = None) -> None:
        self.x, self.first_node, self.first_edge = store.x, store.first_node, store.first_edge
        # Unused slots of a batch read an arbitrary edge; the extra one at the end makes sure that there is one.
        self.source, self.target = (F.pad(end, (0, 1)) for end in (store.source, store.target))
        self.edge_attr = None if store.edge_attr is None else F.pad(store.edge_attr, (0, 0, 0, 1))
        self.nodes_of_graph, self.edges_of_graph = store.first_node.diff(), store.first_edge.diff()
        self.most_nodes, self.most_edges = most or (int(self.nodes_of_graph.max()), int(self.edges_of_graph.max()))
        graph_of_node = torch.repeat_interleave(self.nodes_of_graph, output_size=len(store.x))
        graph_of_edge = torch.repeat_interleave(self.edges_of_graph, output_size=len(store.source))
        shift = take_rows(store.first_node, graph_of_edge)
        # Edges are sorted by target, so a binary search for each node finds its first edge in the whole store.
        nodes = torch.arange(len(graph_of_node), device=store.device)
        first = torch.searchsorted(store.target + shift, nodes)
        self.edge_of_node = first - take_rows(store.first_edge, graph_of_node)
        # Edges are sorted by (graph, target, source). By (graph, source, target), the k-th is the reverse of edge k.
        reverse = torch.argsort(store.source + shift, stable=True) - take_rows(store.first_edge, graph_of_edge)
        self.reverse_edge = F.pad(reverse, (0, 1))

    def with_capacity(self, num_nodes: int, num_edges: int) -> PaddedStore:
        """Return a store with capacity for as many nodes and edges of other graphs, see :meth:`copy_`."""
        store = copy.copy(self)
        for name, value in self._tensors():
            rows = num_edges + 1 if name in ("source", "target", "reverse_edge", "edge_attr") else num_nodes + 1
            kind = {"x": torch.float32, "edge_attr": torch.float32}.get(name, torch.long)
            setattr(store, name, torch.zeros(rows, *value.shape[1:], dtype=kind, device=value.device))
        return store

    def copy_(self, other: PaddedStore) -> None:
        """Overwrite the graphs by those of ``other``."""
        for name, value in other._tensors():
            getattr(self, name)[: len(value)].copy_(value, non_blocking=True)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [(name, value) for name, value in vars(self).items() if isinstance(value, Tensor)]

    def batch(self, graphs: Tensor, num_nodes: int, num_edges: int) -> PaddedBatch:
        """Allocate a batch and fill it with ``graphs`` ``(g,)``.

        They must have fewer than ``num_nodes`` nodes in total, because one node absorbs the padding, and at most
        ``num_edges`` directed edges.
        """
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
        """Overwrite the tensors of ``batch`` with the same number of other graphs."""
        first_edge_of_graph = torch.zeros_like(batch.first_node)
        torch.cumsum(take_rows(self.nodes_of_graph, graphs), 0, out=batch.first_node[1:])
        torch.cumsum(take_rows(self.edges_of_graph, graphs), 0, out=first_edge_of_graph[1:])
        copy_graphs(self, graphs, first_edge_of_graph, batch)


class DeviceBatch(NamedTuple):
    """A batch before it is assembled.

    Attributes:
        graphs: ``(B,)`` indices of the graphs.
        fits: whether they fit into the buffers.
        store, rows: the graphs on the device, and ``(B,)`` where the batch is among them; None if it does not fit.
    """

    graphs: Tensor
    fits: bool
    store: PaddedStore | None
    rows: Tensor


class PaddedBuffers(NamedTuple):
    """The tensors that the CUDA graphs for one number of graphs read and write."""

    graphs: Tensor
    batch: PaddedBatch
    views: PaddedViews


class BufferPool:
    """Buffers for each number of graphs in a batch, with ``num_views`` views, allocated when first needed."""

    def __init__(self, store: GraphStore | ShardFeed, num_views: int, runner: CudaGraphRunner) -> None:
        self.num_views, self.runner = num_views, runner
        self.feed = None if isinstance(store, GraphStore) else store
        if isinstance(store, GraphStore):
            self.store = PaddedStore(store)
            # The sizes are needed on the host, where it is decided which batches fit.
            self.sizes = store.first_node.diff().cpu(), store.first_edge.diff().cpu()
            self.size_counts = Counter(self.sizes[0].tolist()), Counter(self.sizes[1].tolist())
        else:
            self.size_counts = store.count_sizes()
        self.capacities: dict[int, tuple[int, int]] = {}
        self.buffers: dict[int, PaddedBuffers] = {}

    def load(self, batches: Sequence[Tensor]) -> Iterable[DeviceBatch]:
        """Move batches (indices of graphs on the CPU) to the device: in one transfer, or from shards when needed."""
        # Which batches fit is decided on the host, before any of them is moved, so that training never waits for it.
        indices = torch.cat(list(batches))
        own_sizes = [each[indices] for each in self.sizes] if self.feed is None else self.feed.sizes(indices)
        counts = [graphs.numel() for graphs in batches]
        nodes, edges = ([int(part.sum()) for part in torch.split(each, counts)] for each in own_sizes)
        sizes = [*zip(nodes, edges, strict=True)]
        fits = [
            all(size <= most for size, most in zip(own, self._capacity(count), strict=True))
            for own, count in zip(sizes, counts, strict=True)
        ]
        if self.feed is not None:
            return self._load_from_shards(batches, sizes, fits)
        on_device = torch.split(indices.to(self.store.x.device), counts)
        return [DeviceBatch(graphs, fit, self.store, graphs) for graphs, fit in zip(on_device, fits, strict=True)]

    def _load_from_shards(
        self, batches: Sequence[Tensor], sizes: Sequence[tuple[int, int]], fits: Sequence[bool]
    ) -> Iterator[DeviceBatch]:
        assert self.feed is not None
        largest = self._capacity(max(map(len, batches)))
        fed = self.feed.feed([*compress(batches, fits)], [*compress(sizes, fits)], largest)
        for graphs, fit in zip(batches, fits, strict=True):
            yield DeviceBatch(graphs, fit, *(next(fed) if fit else (None, graphs)))

    def _capacity(self, count: int) -> tuple[int, int]:
        """Nodes and edges that a batch of ``count`` graphs may have."""
        if count not in self.capacities:
            nodes, edges = (buffer_capacity(each, count) for each in self.size_counts)
            self.capacities[count] = nodes, edges
        return self.capacities[count]

    def fill(self, batch: DeviceBatch) -> PaddedBuffers:
        """Return the buffers for as many graphs, filled with those of ``batch``, which must fit."""
        size, store = batch.graphs.numel(), batch.store
        assert store is not None  # it fits
        if size not in self.buffers:
            own = batch.rows.clone()
            num_nodes, num_edges = self.capacities[size]
            padded = store.batch(own, num_nodes + 1, num_edges)
            self.buffers[size] = PaddedBuffers(own, padded, stack_views([padded] * self.num_views))
        buffers = self.buffers[size]
        buffers.graphs.copy_(batch.rows)
        # A CUDA graph is tied to the store that it copies from.
        self.runner.run(("batch", size, id(store)), lambda: store.fill(buffers.batch, buffers.graphs))
        return buffers

    def draw_view(
        self,
        buffers: PaddedBuffers,
        side: int,
        index: int,
        pool: Sequence[PaddedAugmentation],
        generator: torch.Generator,
    ) -> None:
        """Augment the batch with ``pool[index]`` and write the result into view ``side``."""

        def draw() -> None:
            view = pool[index].padded(buffers.batch, generator)
            for name in ("x", "source", "target", "first_edge", "keep", "edge_attr"):
                if getattr(view, name) is not None:
                    getattr(buffers.views, name)[side].copy_(getattr(view, name))

        self.runner.run(("view", buffers.graphs.numel(), side, index), draw)


def buffer_capacity(sizes: Counter[int], count: int) -> int:
    r"""Compute the capacity of a buffer for the nodes or edges of ``count`` random graphs, from all graphs by size.

    .. math:: b \bar n + 4 \sqrt{b} \, \sigma_n

    for :math:`b` graphs with sizes of mean :math:`\bar n` and deviation :math:`\sigma_n`, and at most the total size of
    the largest :math:`b` graphs. It depends on the data only, so that neither seed nor length of a training changes the
    shapes and with them the random draws.
    """
    largest_total, remaining = 0, count
    for size in sorted(sizes, reverse=True):
        number = min(remaining, sizes[size])
        largest_total, remaining = largest_total + number * size, remaining - number  # of the largest graphs
    # Integers are exact, so that graphs in memory and in shards give the same.
    total = sum(size * graphs for size, graphs in sizes.items())
    squares = sum(size * size * graphs for size, graphs in sizes.items())
    graphs = sizes.total()
    deviation = math.sqrt((graphs * squares - total**2) / graphs**2)
    return min(largest_total, math.ceil(count * (total / graphs) + 4 * math.sqrt(count) * deviation))


def drop_unused_edge_attr(encoder: Encoder, store: GraphStore) -> GraphStore:
    """Return ``store`` without edge attributes if ``encoder`` ignores them."""
    return store if encoder.uses_edge_attr else replace(store, edge_attr=None)


def find_padding_obstacle(encoder: Encoder, pool: Sequence[Augmentation], fabric: Fabric) -> str:
    """Return why training on padded batches is impossible, or an empty string."""
    if not isinstance(encoder, PaddedEncoder):
        custom = getattr(encoder, "module", encoder)  # the user's module inside ModuleEncoder
        return f"the encoder {type(custom).__name__} has no padded form"
    for each in pool:
        if not isinstance(each, PaddedAugmentation):
            return f"the augmentation {type(each).__name__} has no padded form"
    precision = fabric.strategy.precision
    if getattr(precision, "scaler", None) is not None:
        return "the gradient scaler of 16-mixed synchronises with the host"
    if precision.precision not in ("32-true", "bf16-mixed"):
        return f"precision {precision.precision} is not 32-true, tf32 or bf16-mixed"
    if fabric.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    return ""


def choose_fast_path(where: str, requested: bool | None, obstacle: str) -> bool:
    """Return whether to train on padded batches, which is ``requested`` (None: preferred) unless there is an obstacle.

    Raises:
        UserError: if it was requested and is impossible.
    """
    if requested and obstacle:
        raise UserError(f"{where}: the fast path is not possible: {obstacle}. Leave out 'fast', or pass --plain.")
    return not obstacle
