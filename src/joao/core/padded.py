"""Graphs in tensors whose shapes do not depend on the graphs, so that a GPU can replay work on them.

A batch has room for a fixed number of nodes and edges. Nodes that are no part of a graph, because there is room
left over or because an augmentation removed them, stay where they are and are left out by a mask. The last node is
never part of a graph: an edge that is to be left out starts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from joao.core.graphs import GraphBatch, take_rows


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """Some graphs, side by side, with room for N nodes and E directed edges.

    Attributes:
        x: ``(N, d)`` node features; of nodes that are not kept, anything.
        source, target: ``(E,)`` as in :class:`~joao.core.graphs.GraphBatch`; room left over is at the end.
        first_edge: ``(N + 1,)`` offsets of the nodes in the list of edges by target.
        reverse_edge: ``(E,)`` the position of each edge's other direction, in a batch as it comes from the store.
        keep: ``(N,)`` whether a node is part of its graph.
        graph_of_node: ``(N,)`` ascending; the last graph's number for room left over.
        first_node: ``(G + 1,)`` offsets of the graphs in the list of nodes.
        edge_attr: ``(E, k)`` or None; of room left over, anything.
        most_nodes, most_edges: no graph of the data set has more nodes, or directed edges.
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
        """The room for nodes."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """The room for directed edges."""
        return self.source.numel()

    @property
    def num_graphs(self) -> int:
        return self.first_node.numel() - 1

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def nodes_per_graph(self) -> Tensor:
        """``(G,)`` as they came from the store."""
        return self.first_node.diff()

    @property
    def graph_of_edge(self) -> Tensor:
        """``(E,)``; the last graph's number for room left over."""
        return take_rows(self.graph_of_node, self.target)

    @property
    def is_edge(self) -> Tensor:
        """``(E,)`` false for room left over."""
        return torch.arange(self.num_edges, device=self.device) < self.first_edge[-1]

    def compact(self) -> GraphBatch:
        """The same graphs without what is left out; its shapes depend on the graphs."""
        room = GraphBatch(self.x, self.source, self.target, self.graph_of_node, self.num_graphs, self.edge_attr)
        return room.keep_nodes(self.keep)  # which the last node never is


@dataclass(frozen=True, eq=False)
class PaddedViews:
    """Several views of the same graphs, or of graphs of their own, all with the same room.

    Attributes:
        x: ``(V, N, d)``
        source, target: ``(V, E)``
        first_edge: ``(V, N + 1)``
        keep: ``(V, N)``
        graph_of_node: ``(N,)`` of all views, or ``(V, N)``
        first_node: ``(G + 1,)`` of all views, or ``(V, G + 1)``; where views have graphs of their own, one without
            nodes is room left over.
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
    """Views of the same graphs as one value."""
    return PaddedViews(
        x=torch.stack([view.x for view in views]),
        source=torch.stack([view.source for view in views]),
        target=torch.stack([view.target for view in views]),
        first_edge=torch.stack([view.first_edge for view in views]),
        keep=torch.stack([view.keep for view in views]),
        graph_of_node=views[0].graph_of_node,
        first_node=views[0].first_node,
        edge_attr=None
        if views[0].edge_attr is None
        else torch.stack([view.edge_attr for view in views if view.edge_attr is not None]),
    )


def keep_nodes(batch: PaddedBatch, keep: Tensor) -> PaddedBatch:
    """The subgraphs induced by those kept nodes where ``keep`` ``(N,)`` is true."""
    return replace(batch, keep=batch.keep & keep)
