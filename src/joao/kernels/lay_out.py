from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from joao.core.graphs import take_rows
from joao.core.padded import PaddedBatch


class Packed(Protocol):
    """What is read: see :class:`joao.training.fast.batches.PaddedStore`."""

    x: Tensor
    source: Tensor
    target: Tensor
    first_node: Tensor
    first_edge: Tensor
    edge_of_node: Tensor
    reverse_edge: Tensor
    edge_attr: Tensor | None


def lay_out(store: Packed, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """Copies the graphs numbered ``graphs`` ``(G,)`` one behind the other into ``batch``, and marks the room left over.

    Args:
        store: all graphs.
        graphs: their numbers.
        first_edge_of_graph: ``(G + 1,)`` where each graph's edges go.
        batch: to be filled; its ``first_node`` says where each graph's nodes go.
    """
    if batch.x.is_cuda:
        from joao.kernels import _triton

        _triton.lay_out(store, graphs, first_edge_of_graph, batch)
    else:
        plain_lay_out(store, graphs, first_edge_of_graph, batch)
    if batch.edge_attr is not None and store.edge_attr is not None:
        edge, _ = _places(store.first_edge, graphs, first_edge_of_graph, batch.num_edges)
        batch.edge_attr.copy_(take_rows(store.edge_attr, edge))


def plain_lay_out(store: Packed, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """The same, tensor by tensor."""
    node, graph_of_node = _places(store.first_node, graphs, batch.first_node, batch.num_nodes)
    edge, graph_of_edge = _places(store.first_edge, graphs, first_edge_of_graph, batch.num_edges)
    is_node = torch.arange(batch.num_nodes, device=batch.device) < batch.first_node[-1]
    is_edge = torch.arange(batch.num_edges, device=batch.device) < first_edge_of_graph[-1]
    shift = take_rows(batch.first_node, graph_of_edge)
    nowhere = batch.num_nodes - 1
    begin = take_rows(first_edge_of_graph, graph_of_node) + take_rows(store.edge_of_node, node)
    batch.x.copy_(take_rows(store.x, node) * is_node[:, None])
    batch.source.copy_(torch.where(is_edge, take_rows(store.source, edge) + shift, nowhere))
    batch.target.copy_(torch.where(is_edge, take_rows(store.target, edge) + shift, nowhere))
    batch.first_edge[:-1] = torch.where(is_node, begin, first_edge_of_graph[-1])
    batch.first_edge[-1] = first_edge_of_graph[-1]
    reverse = take_rows(first_edge_of_graph, graph_of_edge) + take_rows(store.reverse_edge, edge)
    batch.reverse_edge.copy_(torch.where(is_edge, reverse, batch.num_edges - 1))
    batch.keep.copy_(is_node)
    batch.graph_of_node.copy_(graph_of_node)


def _places(first: Tensor, graphs: Tensor, new_first: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Where the items of ``graphs`` are that go to each place, and their graph; for room left over, anything."""
    place = torch.arange(room, device=graphs.device)
    graph = torch.searchsorted(new_first[1:], place, right=True).clamp(max=graphs.numel() - 1)
    item = place + take_rows(take_rows(first, graphs) - new_first[:-1], graph)
    return torch.where(place < new_first[-1], item, 0), graph
