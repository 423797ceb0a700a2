"""The two values that hold graphs between the readers and the loss.

Both keep every undirected edge as its two directions, sorted by target and then by source, with neither
loops nor repeats. The adjacency matrix is therefore symmetric and its CSR form can be read off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

Numbers = NDArray[np.int64]


def _offsets(sizes: Tensor) -> Tensor:
    """``(G,)`` sizes to ``(G + 1,)`` offsets."""
    return torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])


def concatenate_ranges(starts: Tensor, sizes: Tensor) -> Tensor:
    """Concatenates ``start, start + 1, ..., start + size - 1`` over all ranges."""
    offsets = torch.cumsum(sizes, 0) - sizes
    total = int(sizes.sum())
    shift = torch.repeat_interleave(starts - offsets, sizes, output_size=total)
    return torch.arange(total, device=starts.device) + shift


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``, which on a CPU is several times slower."""
    if values.dim() == 2 and values.device.type == "cpu" and not values.requires_grad:
        return torch.from_numpy(values.numpy().take(index.numpy(), axis=0))  # faster again
    return values.index_select(0, index)


def _bytes_to_floats(values: Tensor) -> Tensor:
    return values.float() if values.dtype == torch.uint8 else values


def nonzero_indices(mask: Tensor) -> Tensor:
    """Where ``mask`` ``(N,)`` is true; on a CPU, numpy needs a fifth of torch's time."""
    if mask.device.type != "cpu":
        return mask.nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def _components(source: Numbers, first_edge: Numbers) -> Numbers:
    """``(N,)`` the number of each node's connected component; those of successive graphs do not mix."""
    num_nodes = len(first_edge) - 1
    edges = csr_array((np.ones(len(source), dtype=bool), source, first_edge), shape=(num_nodes, num_nodes))
    component: Numbers = connected_components(edges, connection="strong")[1]
    return component


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Some graphs, side by side, as plain tensors.

    Attributes:
        x: ``(N, d)`` node features.
        source: ``(E,)`` where each directed edge starts.
        target: ``(E,)`` where it ends; ascending.
        graph_of_node: ``(N,)`` ascending.
        num_graphs: a graph may be without edges, never without nodes.
        edge_attr: ``(E, k)`` or None.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(3), networkx.cycle_graph(4)])
    >>> batch.nodes_per_graph.tolist(), batch.graph_of_node.tolist()
    ([3, 4], [0, 0, 0, 1, 1, 1, 1])
    >>> batch.keep_nodes(torch.arange(7) != 1).num_edges // 2  # the path falls apart, the cycle stays
    4
    """

    x: Tensor
    source: Tensor
    target: Tensor
    graph_of_node: Tensor
    num_graphs: int
    edge_attr: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Of all graphs together."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Directed edges: twice the undirected ones."""
        return self.source.numel()

    @property
    def device(self) -> torch.device:
        """Where all its tensors are."""
        return self.x.device

    @property
    def edge_index(self) -> Tensor:
        """``(2, E)``, as torch-geometric's convolutions take it."""
        return torch.stack([self.source, self.target])

    @property
    def fields(self) -> tuple[Any, ...]:
        """What it is made of, for a model in the hands of what knows tensors and no batch of graphs."""
        return self.x, self.source, self.target, self.graph_of_node, self.num_graphs, self.edge_attr

    @cached_property
    def nodes_per_graph(self) -> Tensor:
        """``(G,)``"""
        return torch.bincount(self.graph_of_node, minlength=self.num_graphs)

    @cached_property
    def first_node(self) -> Tensor:
        """``(G + 1,)`` offsets of the graphs in the list of nodes."""
        return _offsets(self.nodes_per_graph)

    @cached_property
    def first_edge(self) -> Tensor:
        """``(N + 1,)`` offsets of the nodes in the list of edges by target: the CSR row pointer."""
        return _offsets(torch.bincount(self.target, minlength=self.num_nodes))

    @cached_property
    def reverse_edge(self) -> Tensor:
        """``(E,)`` the position of each edge's other direction."""
        # Edges are sorted by (target, source). Sorted by (source, target) instead, the k-th one is the other
        # direction of edge k. On a CPU, scipy's transposition of a matrix is the fastest such sort.
        if self.device.type != "cpu":
            return torch.argsort(self.source, stable=True)
        positions = np.arange(self.num_edges)
        csr = csr_array((positions, self.source.numpy(), self.first_edge.numpy()), shape=(self.num_nodes,) * 2)
        return torch.from_numpy(csr.tocsc().data)

    @cached_property
    def component(self) -> Tensor:
        """``(N,)`` the number of each node's connected component, from 0 on; for a batch on a CPU."""
        return torch.from_numpy(_components(self.source.numpy(), self.first_edge.numpy()))

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same graphs on another device."""
        return GraphBatch(
            x=self.x.to(device),
            source=self.source.to(device),
            target=self.target.to(device),
            graph_of_node=self.graph_of_node.to(device),
            num_graphs=self.num_graphs,
            edge_attr=None if self.edge_attr is None else self.edge_attr.to(device),
        )

    def keep_nodes(self, keep: Tensor) -> GraphBatch:
        """The subgraphs induced by the nodes where ``keep`` ``(N,)`` is true."""
        nodes = nonzero_indices(keep)
        edges = nonzero_indices(take_rows(keep, self.source) & take_rows(keep, self.target))
        new_number = torch.cumsum(keep, 0) - 1
        return replace(
            self,
            x=take_rows(self.x, nodes),
            source=take_rows(new_number, take_rows(self.source, edges)),
            target=take_rows(new_number, take_rows(self.target, edges)),
            graph_of_node=take_rows(self.graph_of_node, nodes),
            edge_attr=None if self.edge_attr is None else take_rows(self.edge_attr, edges),
        )

    def keep_edges(self, keep: Tensor) -> GraphBatch:
        """The same nodes with only the edges where ``keep`` ``(E,)`` is true."""
        kept = nonzero_indices(keep)
        return replace(
            self,
            source=take_rows(self.source, kept),
            target=take_rows(self.target, kept),
            edge_attr=None if self.edge_attr is None else take_rows(self.edge_attr, kept),
        )

    def between(self, first: int, last: int) -> GraphBatch:
        """The graphs numbered from ``first`` up to ``last``, without the latter."""
        if (first, last) == (0, self.num_graphs):
            return self
        nodes = slice(*self.first_node[[first, last]].tolist())
        ends = torch.tensor([nodes.start, nodes.stop], device=self.device)
        edges = slice(*torch.searchsorted(self.target, ends).tolist())
        return GraphBatch(
            x=self.x[nodes],
            source=self.source[edges] - nodes.start,
            target=self.target[edges] - nodes.start,
            graph_of_node=self.graph_of_node[nodes] - first,
            num_graphs=last - first,
            edge_attr=None if self.edge_attr is None else self.edge_attr[edges],
        )


def concatenate(batches: list[GraphBatch]) -> GraphBatch:
    """The graphs of all batches, in order, as one batch."""
    nodes = _offsets(torch.tensor([batch.num_nodes for batch in batches])).tolist()
    graphs = _offsets(torch.tensor([batch.num_graphs for batch in batches])).tolist()
    edge_attr = [batch.edge_attr for batch in batches if batch.edge_attr is not None]
    return GraphBatch(
        x=torch.cat([batch.x for batch in batches]),
        source=torch.cat([b.source + shift for b, shift in zip(batches, nodes, strict=False)]),
        target=torch.cat([b.target + shift for b, shift in zip(batches, nodes, strict=False)]),
        graph_of_node=torch.cat([b.graph_of_node + shift for b, shift in zip(batches, graphs, strict=False)]),
        num_graphs=graphs[-1],
        edge_attr=torch.cat(edge_attr) if edge_attr else None,
    )


class Store(ABC):
    """Graphs that batches can be had of, wherever they are kept."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where batches are."""

    @property
    @abstractmethod
    def block(self) -> int:
        """How many graphs lie together and are cheap to read together; 0 where any order costs the same."""

    @abstractmethod
    def __len__(self) -> int:
        """How many graphs."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """Columns of ``x``."""

    @property
    @abstractmethod
    def num_edge_features(self) -> int:
        """Columns of ``edge_attr``; 0 without."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Store:
        """The same graphs, with batches on another device."""

    @abstractmethod
    def sizes(self, graphs: Tensor) -> Tensor:
        """``(g,)`` nodes and directed edges, together, of the graphs numbered ``graphs``."""

    @abstractmethod
    def batch(self, graphs: Tensor) -> GraphBatch:
        """The graphs numbered ``graphs`` ``(g,)``, in that order; any numbers, on any device."""


@final
@dataclass(frozen=True, eq=False)
class GraphStore(Store):
    """All graphs of a data set, packed: a few long tensors and the offsets of the graphs in them.

    It has no place for labels, so none can reach pre-training.

    Attributes:
        x: ``(N, d)`` node features; bytes become floats in a batch.
        source, target: ``(E,)`` node numbers *inside their graph*.
        first_node: ``(G + 1,)`` offsets of the graphs in ``x``.
        first_edge: ``(G + 1,)`` offsets of the graphs in ``source`` and ``target``.
        edge_attr: ``(E, k)`` or None; bytes become floats in a batch.
    """

    x: Tensor
    source: Tensor
    target: Tensor
    first_node: Tensor
    first_edge: Tensor
    edge_attr: Tensor | None = None

    def __len__(self) -> int:
        return self.first_node.numel() - 1

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_edge_features(self) -> int:
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def block(self) -> int:
        return 0

    def sizes(self, graphs: Tensor) -> Tensor:
        return sum((first[graphs + 1] - first[graphs] for first in (self.first_node, self.first_edge)), 0 * graphs)

    def to(self, device: torch.device | str) -> GraphStore:
        """The whole store on another device."""
        return GraphStore(
            x=self.x.to(device),
            source=self.source.to(device),
            target=self.target.to(device),
            first_node=self.first_node.to(device),
            first_edge=self.first_edge.to(device),
            edge_attr=None if self.edge_attr is None else self.edge_attr.to(device),
        )

    def batch(self, graphs: Tensor) -> GraphBatch:
        """The graphs numbered ``graphs`` ``(g,)``, in that order, by index selection."""
        return self._batch_on_cpu(graphs) if self.device.type == "cpu" else self._batch_anywhere(graphs)

    def _batch_anywhere(self, graphs: Tensor) -> GraphBatch:
        sizes = self.first_node[graphs + 1] - self.first_node[graphs]
        edge_sizes = self.first_edge[graphs + 1] - self.first_edge[graphs]
        nodes = concatenate_ranges(self.first_node[graphs], sizes)
        edges = concatenate_ranges(self.first_edge[graphs], edge_sizes)
        new_first = torch.cumsum(sizes, 0) - sizes
        shift = torch.repeat_interleave(new_first, edge_sizes, output_size=edges.numel())
        numbers = torch.arange(graphs.numel(), device=graphs.device)
        x = take_rows(self.x, nodes)
        return GraphBatch(
            x=_bytes_to_floats(x),
            source=take_rows(self.source, edges) + shift,
            target=take_rows(self.target, edges) + shift,
            graph_of_node=torch.repeat_interleave(numbers, sizes, output_size=nodes.numel()),
            num_graphs=graphs.numel(),
            edge_attr=None if self.edge_attr is None else _bytes_to_floats(take_rows(self.edge_attr, edges)),
        )

    def _batch_on_cpu(self, graphs: Tensor) -> GraphBatch:
        # The same in numpy, which needs half the time; what is known of the batch on the way is kept.
        numbers = graphs.numpy()
        nodes, sizes, first_node = _selection(self.first_node.numpy(), numbers)
        edges, edge_sizes, _ = _selection(self.first_edge.numpy(), numbers)
        shift = np.repeat(first_node[:-1], edge_sizes)
        component, num_components = self._components_of_graphs
        before = np.cumsum(num_components[numbers]) - num_components[numbers]
        x = torch.from_numpy(self.x.numpy().take(nodes, axis=0))
        batch = GraphBatch(
            x=_bytes_to_floats(x),
            source=torch.from_numpy(self.source.numpy().take(edges) + shift),
            target=torch.from_numpy(self.target.numpy().take(edges) + shift),
            graph_of_node=torch.from_numpy(np.repeat(np.arange(len(numbers)), sizes)),
            num_graphs=len(numbers),
            edge_attr=None
            if self.edge_attr is None
            else _bytes_to_floats(take_rows(self.edge_attr, torch.from_numpy(edges))),
        )
        known = {
            "nodes_per_graph": sizes,
            "first_node": first_node,
            "component": component.take(nodes) + np.repeat(before, sizes),
        }
        batch.__dict__.update({name: torch.from_numpy(value) for name, value in known.items()})  # cached properties
        return batch

    @cached_property
    def _components_of_graphs(self) -> tuple[Numbers, Numbers]:
        """``(N,)`` the number of each node's component inside its graph, and ``(G,)`` how many a graph has."""
        first_node, sizes = self.first_node.numpy(), self.first_node.diff().numpy()
        shift = np.repeat(first_node[:-1], self.first_edge.diff().numpy())
        degrees = np.bincount(self.target.numpy() + shift, minlength=first_node[-1])
        first_edge = np.concatenate([[0], np.cumsum(degrees)])
        component = _components(self.source.numpy() + shift, first_edge)
        lowest = np.minimum.reduceat(component, first_node[:-1])
        num_components = np.maximum.reduceat(component, first_node[:-1]) - lowest + 1
        return component - np.repeat(lowest, sizes), num_components


def _selection(first: Numbers, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The items of the groups ``numbers`` of those that begin at ``first``, the groups' sizes, and their offsets."""
    starts = first[numbers]
    sizes = first[numbers + 1] - starts
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    items = np.repeat(starts - offsets[:-1], sizes)
    items += np.arange(len(items))
    return items, sizes, offsets
