"""Batches and stores of graphs.

Every undirected edge is stored in both directions, sorted by target and then by source, without loops or duplicates.
The adjacency matrix is therefore symmetric, and ``source`` and ``first_edge`` are its CSR form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

Numbers = NDArray[np.int64]


def _offsets(sizes: Tensor) -> Tensor:
    """Convert ``(G,)`` sizes to ``(G + 1,)`` offsets."""
    return torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])


def concatenate_ranges(starts: Tensor, sizes: Tensor) -> Tensor:
    """Concatenate ``start, start + 1, ..., start + size - 1`` over all ranges."""
    offsets = torch.cumsum(sizes, 0) - sizes
    total = int(sizes.sum())
    shift = torch.repeat_interleave(starts - offsets, sizes, output_size=total)
    return torch.arange(total, device=starts.device) + shift


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``; on a CPU several times faster than torch's indexing."""
    if values.dim() == 2 and values.device.type == "cpu" and not values.requires_grad:
        return torch.from_numpy(values.numpy().take(index.numpy(), axis=0))  # faster than index_select
    return values.index_select(0, index)


def _take_floats(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``, with bytes converted to floats after the selection."""
    rows = take_rows(values, index)
    return rows.float() if rows.dtype == torch.uint8 else rows


def nonzero_indices(mask: Tensor) -> Tensor:
    """Indices where ``mask`` ``(N,)`` is true; on a CPU, numpy takes a fifth of torch's time."""
    if mask.device.type != "cpu":
        return mask.nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def _components(source: Numbers, first_edge: Numbers) -> Numbers:
    """Number of each node's connected component, ``(N,)``, ascending over successive graphs."""
    num_nodes = len(first_edge) - 1
    edges = csr_array((np.ones(len(source), dtype=bool), source, first_edge), shape=(num_nodes, num_nodes))
    component: Numbers = connected_components(edges, connection="strong")[1]
    return component


Tensors = TypeVar("Tensors", bound="GraphBatch | GraphStore")


def _to_device(value: Tensors, device: torch.device | str) -> Tensors:
    values = {each.name: getattr(value, each.name) for each in fields(value)}
    moved: Any = {name: each.to(device) for name, each in values.items() if isinstance(each, Tensor)}
    return replace(value, **moved)


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """A batch of graphs as plain tensors.

    Attributes:
        x: ``(N, d)`` node features.
        source: ``(E,)`` start of each directed edge.
        target: ``(E,)`` end of each directed edge, ascending.
        graph_of_node: ``(N,)`` graph of each node, ascending.
        num_graphs: number of graphs; a graph has at least one node.
        edge_attr: ``(E, k)`` edge attributes, or None.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(3), networkx.cycle_graph(4)])
    >>> batch.nodes_per_graph.tolist(), batch.graph_of_node.tolist()
    ([3, 4], [0, 0, 0, 1, 1, 1, 1])
    >>> batch.keep_nodes(torch.arange(7) != 1).num_edges // 2  # all edges of the path are gone
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
        """Number of nodes of all graphs."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges: twice that of undirected edges."""
        return self.source.numel()

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.x.device

    @property
    def edge_index(self) -> Tensor:
        """``(2, E)``, as in torch-geometric."""
        return torch.stack([self.source, self.target])

    @property
    def fields(self) -> tuple[Any, ...]:
        """All fields as a tuple, for tools that trace or export models and only know tensors."""
        return self.x, self.source, self.target, self.graph_of_node, self.num_graphs, self.edge_attr

    @cached_property
    def nodes_per_graph(self) -> Tensor:
        """``(G,)`` number of nodes of each graph."""
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
        """``(E,)`` index of each edge's other direction."""
        # Edges are sorted by (target, source). If sorted by (source, target) instead, the k-th edge is the other
        # direction of edge k. On a CPU, transposing a sparse matrix with scipy is the fastest such sort.
        if self.device.type != "cpu":
            return torch.argsort(self.source, stable=True)
        positions = np.arange(self.num_edges)
        csr = csr_array((positions, self.source.numpy(), self.first_edge.numpy()), shape=(self.num_nodes,) * 2)
        return torch.from_numpy(csr.tocsc().data)

    @cached_property
    def component(self) -> Tensor:
        """``(N,)`` number of each node's connected component, from 0; only on a CPU."""
        return torch.from_numpy(_components(self.source.numpy(), self.first_edge.numpy()))

    def to(self, device: torch.device | str) -> GraphBatch:
        """Copy the batch to another device."""
        return _to_device(self, device)

    def keep_nodes(self, keep: Tensor) -> GraphBatch:
        """Return the subgraphs induced by the nodes where ``keep`` ``(N,)`` is true."""
        inside = self.keep_edges(take_rows(keep, self.source) & take_rows(keep, self.target))
        nodes = nonzero_indices(keep)
        new_number = torch.cumsum(keep, 0) - 1
        return replace(
            inside,
            x=take_rows(self.x, nodes),
            source=take_rows(new_number, inside.source),
            target=take_rows(new_number, inside.target),
            graph_of_node=take_rows(self.graph_of_node, nodes),
        )

    def keep_edges(self, keep: Tensor) -> GraphBatch:
        """Return all nodes with the edges where ``keep`` ``(E,)`` is true."""
        kept = nonzero_indices(keep)
        return replace(
            self,
            source=take_rows(self.source, kept),
            target=take_rows(self.target, kept),
            edge_attr=None if self.edge_attr is None else take_rows(self.edge_attr, kept),
        )

    def between(self, first: int, last: int) -> GraphBatch:
        """Return graphs ``first`` to ``last - 1``."""
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
    """Graphs, in memory or on disk, from which batches are made."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the batches."""

    @property
    @abstractmethod
    def block(self) -> int:
        """Number of graphs that are stored together and cheap to read together; 0 if the order does not matter."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of graphs."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """Number of columns of ``x``."""

    @property
    @abstractmethod
    def num_edge_features(self) -> int:
        """Number of columns of ``edge_attr``; 0 without edge attributes."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Store:
        """Return a store with batches on another device."""

    @abstractmethod
    def sizes(self, graphs: Tensor) -> Tensor:
        """Number of nodes plus directed edges of the graphs numbered ``graphs``, ``(g,)``."""

    @abstractmethod
    def batch(self, graphs: Tensor) -> GraphBatch:
        """Return the graphs numbered ``graphs`` ``(g,)``, in that order, with any repetitions."""


@final
@dataclass(frozen=True, eq=False)
class GraphStore(Store):
    """All graphs of a data set in a few long tensors. It contains no labels, so none can reach pre-training.

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
        """Copy the store to another device."""
        return _to_device(self, device)

    def batch(self, graphs: Tensor) -> GraphBatch:
        return self._batch_on_cpu(graphs) if self.device.type == "cpu" else self._batch_anywhere(graphs)

    def _batch_anywhere(self, graphs: Tensor) -> GraphBatch:
        sizes = self.first_node[graphs + 1] - self.first_node[graphs]
        edge_sizes = self.first_edge[graphs + 1] - self.first_edge[graphs]
        nodes = concatenate_ranges(self.first_node[graphs], sizes)
        edges = concatenate_ranges(self.first_edge[graphs], edge_sizes)
        new_first = torch.cumsum(sizes, 0) - sizes
        shift = torch.repeat_interleave(new_first, edge_sizes, output_size=edges.numel())
        numbers = torch.arange(graphs.numel(), device=graphs.device)
        return GraphBatch(
            x=_take_floats(self.x, nodes),
            source=take_rows(self.source, edges) + shift,
            target=take_rows(self.target, edges) + shift,
            graph_of_node=torch.repeat_interleave(numbers, sizes, output_size=nodes.numel()),
            num_graphs=graphs.numel(),
            edge_attr=None if self.edge_attr is None else _take_floats(self.edge_attr, edges),
        )

    def _batch_on_cpu(self, graphs: Tensor) -> GraphBatch:
        # numpy takes half the time of torch. Properties that are known anyway are cached in the batch.
        numbers = graphs.numpy()
        nodes, sizes, first_node = select_groups(self.first_node.numpy(), numbers)
        edges, edge_sizes, _ = select_groups(self.first_edge.numpy(), numbers)
        shift = np.repeat(first_node[:-1], edge_sizes)
        component, num_components = self._components_of_graphs
        before = np.cumsum(num_components[numbers]) - num_components[numbers]
        batch = GraphBatch(
            x=_take_floats(self.x, torch.from_numpy(nodes)),
            source=torch.from_numpy(self.source.numpy().take(edges) + shift),
            target=torch.from_numpy(self.target.numpy().take(edges) + shift),
            graph_of_node=torch.from_numpy(np.repeat(np.arange(len(numbers)), sizes)),
            num_graphs=len(numbers),
            edge_attr=None if self.edge_attr is None else _take_floats(self.edge_attr, torch.from_numpy(edges)),
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
        """``(N,)`` number of each node's component inside its graph, and ``(G,)`` number of components."""
        first_node, sizes = self.first_node.numpy(), self.first_node.diff().numpy()
        shift = np.repeat(first_node[:-1], self.first_edge.diff().numpy())
        degrees = np.bincount(self.target.numpy() + shift, minlength=first_node[-1])
        first_edge = np.concatenate([[0], np.cumsum(degrees)])
        component = _components(self.source.numpy() + shift, first_edge)
        lowest = np.minimum.reduceat(component, first_node[:-1])
        num_components = np.maximum.reduceat(component, first_node[:-1]) - lowest + 1
        return component - np.repeat(lowest, sizes), num_components


def select_groups(first: Numbers, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Indices of the items of the groups ``numbers``, where group g starts at ``first[g]``; their sizes and offsets."""
    starts = first[numbers]
    sizes = first[numbers + 1] - starts
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    items = np.repeat(starts - offsets[:-1], sizes)
    items += np.arange(len(items))
    return items, sizes, offsets
