"""Operations on whole graphs of a padded batch."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from joao.core.graphs import take_rows
from joao.core.padded import PaddedBatch


def first_passage(batch: PaddedBatch, start: Tensor, waiting: Tensor) -> Tensor:
    r"""The smallest solution :math:`t` of :math:`t_v = \min(s_v, \; w_v + \min_{u \sim v} t_u)`, ``(N,)``.

    Args:
        batch: the graphs; their edges, whatever nodes are kept.
        start: ``(N,)`` float64, :math:`s \ge 0`.
        waiting: ``(N,)`` float64, :math:`w \ge 0`.
    """
    if start.is_cuda:
        from joao.kernels import _triton

        return _triton.first_passage(batch, start, waiting)
    return plain_first_passage(batch.source, batch.target, start, waiting)


def plain_first_passage(
    source: Tensor, target: Tensor, start: Tensor, waiting: Tensor, sweeps_per_check: int = 8
) -> Tensor:
    """The same by sweeps over all edges until nothing changes."""
    time = start.clone()
    arrival_waiting = take_rows(waiting, target)
    while True:
        before = time.clone()
        for _ in range(sweeps_per_check):
            time.scatter_reduce_(0, target, take_rows(time, source) + arrival_waiting, "amin")
        if torch.equal(before, time):
            return time


class PackedGraphs(Protocol):
    """What is read: see :class:`joao.training.fast.batches.PaddedStore`."""

    x: Tensor
    source: Tensor
    target: Tensor
    first_node: Tensor
    first_edge: Tensor
    edge_of_node: Tensor
    reverse_edge: Tensor
    edge_attr: Tensor | None


def copy_graphs(store: PackedGraphs, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """Copies the graphs numbered ``graphs`` ``(G,)`` one behind the other into ``batch``, and marks the room left over.

    Args:
        store: all graphs.
        graphs: their numbers.
        first_edge_of_graph: ``(G + 1,)`` where each graph's edges go.
        batch: to be filled; its ``first_node`` says where each graph's nodes go.
    """
    if batch.x.is_cuda:
        from joao.kernels import _triton

        _triton.copy_graphs(store, graphs, first_edge_of_graph, batch)
    else:
        plain_copy_graphs(store, graphs, first_edge_of_graph, batch)
    if batch.edge_attr is not None and store.edge_attr is not None:
        edge, _ = _gather_indices(store.first_edge, graphs, first_edge_of_graph, batch.num_edges)
        batch.edge_attr.copy_(take_rows(store.edge_attr, edge))


def plain_copy_graphs(store: PackedGraphs, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """The same, tensor by tensor."""
    node, graph_of_node = _gather_indices(store.first_node, graphs, batch.first_node, batch.num_nodes)
    edge, graph_of_edge = _gather_indices(store.first_edge, graphs, first_edge_of_graph, batch.num_edges)
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


def _gather_indices(first: Tensor, graphs: Tensor, new_first: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Where the items of ``graphs`` are that go to each place, and their graph; for room left over, anything."""
    place = torch.arange(room, device=graphs.device)
    graph = torch.searchsorted(new_first[1:], place, right=True).clamp(max=graphs.numel() - 1)
    item = place + take_rows(take_rows(first, graphs) - new_first[:-1], graph)
    return torch.where(place < new_first[-1], item, 0), graph


# Up to this many items a group's ranks are counted by comparing all pairs, which takes less time than sorting.
MAX_COMPARED = 2048


def rank_within_groups(values: Tensor, group_of_item: Tensor, first: Tensor, most: int) -> Tensor:
    """Numbers the items of each group 0, 1, 2, ... by ascending value, equal ones as they come.

    Args:
        values: ``(N,)``
        group_of_item: ``(N,)`` ascending. Items behind the last group's end have any rank from its size on.
        first: ``(G + 1,)`` where each group's items begin.
        most: no group has more items.
    """
    if values.is_cuda and most <= MAX_COMPARED:
        from joao.kernels import _triton

        return _triton.rank_within_groups(values, group_of_item, first)
    return plain_rank_within_groups(values, group_of_item, first)


def plain_rank_within_groups(values: Tensor, group_of_item: Tensor, first: Tensor) -> Tensor:
    """The same by sorting."""
    place = torch.arange(values.numel(), device=values.device)
    is_over = place >= first[-1]
    order = torch.argsort(values, stable=True)
    order = take_rows(order, torch.argsort(take_rows(group_of_item + is_over, order), stable=True))
    return torch.empty_like(place).index_copy_(0, order, place - take_rows(first, group_of_item))
