"""All graphs of a data set, ready to be laid out in padded batches without a word from the device to the host."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.graphs import GraphStore, rows
from joao.kernels.lay_out import lay_out
from joao.padded import PaddedBatch


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
        shift = rows(store.first_node, graph_of_edge)
        numbers = torch.arange(len(graph_of_node), device=store.device)
        first = torch.searchsorted(store.target + shift, numbers)
        self.edge_of_node = first - rows(store.first_edge, graph_of_node)
        # Edges are sorted by (graph, target, source). Sorted by (graph, source, target) instead, the k-th one is the
        # other direction of edge k.
        reverse = torch.argsort(store.source + shift, stable=True) - rows(store.first_edge, graph_of_edge)
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
        torch.cumsum(rows(self.nodes_of_graph, graphs), 0, out=batch.first_node[1:])
        torch.cumsum(rows(self.edges_of_graph, graphs), 0, out=first_edge_of_graph[1:])
        lay_out(self, graphs, first_edge_of_graph, batch)
