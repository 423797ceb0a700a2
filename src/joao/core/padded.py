"""Padded batches: tensors whose shapes do not depend on the graphs, so that a GPU can replay work on them.

A batch has capacity for a fixed number of nodes and edges. Nodes that are padding, or that an augmentation removed,
stay in place and are masked. The last node is always padding: removed edges start there and contribute nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from joao.core.graphs import GraphBatch, take_rows


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """A batch of graphs with capacity for N nodes and E directed edges.

    Attributes:
        x: ``(N, d)`` node features; arbitrary for masked nodes.
        source, target: ``(E,)`` as in :class:`~joao.core.graphs.GraphBatch`; padding is at the end.
        first_edge: ``(N + 1,)`` offsets of the nodes in the list of edges by target.
        reverse_edge: ``(E,)`` index of each edge's other direction, in a batch as it comes from the store.
        keep: ``(N,)`` whether a node is part of its graph.
        graph_of_node: ``(N,)`` ascending; the number of the last graph for padding.
        first_node: ``(G + 1,)`` offsets of the graphs in the list of nodes.
        edge_attr: ``(E, k)`` or None; arbitrary for padding.
        most_nodes, most_edges: maximum number of nodes and directed edges of a graph of the data set.
    """

    x: Tensor
    source: Tensor
    target: Tensor
    first_edge: Tensor
    reverse_edge: Tensor
    keep: Tensor
    graph_of_node: Tensor
    first_node: Tensor
    most_nodes: int
    most_edges: int
    edge_attr: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Capacity for nodes."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """Capacity for directed edges."""
        return self.source.numel()

    @property
    def num_graphs(self) -> int:
        return self.first_node.numel() - 1

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def nodes_per_graph(self) -> Tensor:
        """``(G,)`` number of nodes, including masked ones."""
        return self.first_node.diff()

    @property
    def graph_of_edge(self) -> Tensor:
        """``(E,)`` graph of each edge; the number of the last graph for padding."""
        return take_rows(self.graph_of_node, self.target)

    def compact(self) -> GraphBatch:
        """Return the graphs without padding and masked nodes; the shapes depend on the graphs."""
        padded = GraphBatch(self.x, self.source, self.target, self.graph_of_node, self.num_graphs, self.edge_attr)
        return padded.keep_nodes(self.keep)  # removes the last node, and with it padding and removed edges


@dataclass(frozen=True, eq=False)
class PaddedViews:
    """Several views with the same capacity, of the same graphs or of different graphs.

    Attributes:
        x: ``(V, N, d)``
        source, target: ``(V, E)``
        first_edge: ``(V, N + 1)``
        keep: ``(V, N)``
        graph_of_node: ``(N,)`` if all views have the same graphs, else ``(V, N)``
        first_node: ``(G + 1,)`` if all views have the same graphs, else ``(V, G + 1)``, where a graph without nodes is
            padding
        edge_attr: ``(V, E, k)`` or None
    """

    x: Tensor
    source: Tensor
    target: Tensor
    first_edge: Tensor
    keep: Tensor
    graph_of_node: Tensor
    first_node: Tensor
    edge_attr: Tensor | None = None


def stack_views(views: Sequence[PaddedBatch]) -> PaddedViews:
    has_attributes = views[0].edge_attr is not None
    names = ("x", "source", "target", "first_edge", "keep", *(("edge_attr",) if has_attributes else ()))
    stacked = {name: torch.stack([getattr(view, name) for view in views]) for name in names}
    return PaddedViews(graph_of_node=views[0].graph_of_node, first_node=views[0].first_node, **stacked)


def as_views(batch: PaddedBatch) -> PaddedViews:
    """One view, which shares the memory of ``batch``."""
    own = {name: getattr(batch, name).unsqueeze(0) for name in ("x", "source", "target", "first_edge", "keep")}
    attr = None if batch.edge_attr is None else batch.edge_attr.unsqueeze(0)
    return PaddedViews(graph_of_node=batch.graph_of_node, first_node=batch.first_node, edge_attr=attr, **own)


def keep_nodes(batch: PaddedBatch, keep: Tensor) -> PaddedBatch:
    """Mask all nodes except those where ``keep`` ``(N,)`` is true."""
    return replace(batch, keep=batch.keep & keep)
