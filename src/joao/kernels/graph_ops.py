"""Operations on the graphs of a padded batch: growth times, copying graphs into a batch, ranks within groups."""

from typing import Protocol

import torch
from torch import Tensor

from joao.core.graphs import take_rows
from joao.core.padded import PaddedBatch


def first_passage(batch: PaddedBatch, start: Tensor, waiting: Tensor) -> Tensor:
    r"""Compute first-passage times: the smallest :math:`t` with :math:`t_v = \min(s_v, \; w_v + \min_{u \sim v} t_u)`.

    Args:
        batch: the graphs. All their edges count, also those of nodes that are not kept.
        start: ``(N,)`` float64, :math:`s \ge 0`.
        waiting: ``(N,)`` float64, :math:`w \ge 0`.

    Returns:
        ``(N,)`` times.
    """
    if start.is_cuda:
        from joao.kernels import _triton

        return _triton.first_passage(batch, start, waiting)
    return plain_first_passage(batch.source, batch.target, start, waiting)


def plain_first_passage(
    source: Tensor, target: Tensor, start: Tensor, waiting: Tensor, sweeps_per_check: int = 8
) -> Tensor:
    """Plain form of :func:`first_passage`: relax all edges (Bellman-Ford) until nothing changes.

    Each comparison synchronises with the device, so it is made only every ``sweeps_per_check`` sweeps.
    """
    time = start.clone()
    arrival_waiting = take_rows(waiting, target)
    while True:
        before = time.clone()
        for _ in range(sweeps_per_check):
            time.scatter_reduce_(0, target, take_rows(time, source) + arrival_waiting, "amin")
        if torch.equal(before, time):
            return time


class PackedGraphs(Protocol):
    """The fields of :class:`joao.training.fast.batches.PaddedStore` that :func:`copy_graphs` reads."""

    x: Tensor
    source: Tensor
    target: Tensor
    first_node: Tensor
    first_edge: Tensor
    edge_of_node: Tensor
    reverse_edge: Tensor
    edge_attr: Tensor | None


def copy_graphs(store: PackedGraphs, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """Copy the graphs numbered ``graphs`` ``(G,)`` from ``store`` into ``batch`` and mark the rest of it as padding.

    Args:
        store: all graphs.
        graphs: the numbers of the graphs to copy, in order.
        first_edge_of_graph: ``(G + 1,)`` offsets of the graphs in the edge list of the batch.
        batch: filled in place; its ``first_node`` already has the offsets of the graphs in the node list.
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
    node, graph_of_node = _gather_indices(store.first_node, graphs, batch.first_node, batch.num_nodes)
    edge, graph_of_edge = _gather_indices(store.first_edge, graphs, first_edge_of_graph, batch.num_edges)
    is_node = torch.arange(batch.num_nodes, device=batch.device) < batch.first_node[-1]
    is_edge = torch.arange(batch.num_edges, device=batch.device) < first_edge_of_graph[-1]
    # Nodes are numbered inside their graph in the store, and through the whole batch in the batch.
    shift = take_rows(batch.first_node, graph_of_edge)
    padding_node = batch.num_nodes - 1  # never part of a graph: padding edges start and end there
    begin = take_rows(first_edge_of_graph, graph_of_node) + take_rows(store.edge_of_node, node)
    batch.x.copy_(take_rows(store.x, node) * is_node[:, None])
    batch.source.copy_(torch.where(is_edge, take_rows(store.source, edge) + shift, padding_node))
    batch.target.copy_(torch.where(is_edge, take_rows(store.target, edge) + shift, padding_node))
    batch.first_edge[:-1] = torch.where(is_node, begin, first_edge_of_graph[-1])
    batch.first_edge[-1] = first_edge_of_graph[-1]
    reverse = take_rows(first_edge_of_graph, graph_of_edge) + take_rows(store.reverse_edge, edge)
    batch.reverse_edge.copy_(torch.where(is_edge, reverse, batch.num_edges - 1))
    batch.keep.copy_(is_node)
    batch.graph_of_node.copy_(graph_of_node)


def _gather_indices(first: Tensor, graphs: Tensor, new_first: Tensor, num_slots: int) -> tuple[Tensor, Tensor]:
    """Find for each slot of the batch the item in the store that goes there, and its graph; padding slots get item 0.

    Args:
        first: ``(M + 1,)`` offsets of the graphs in the store.
        graphs: ``(G,)`` the chosen graphs.
        new_first: ``(G + 1,)`` their offsets in the batch.
        num_slots: number of slots in the batch.
    """
    slot = torch.arange(num_slots, device=graphs.device)
    graph = torch.searchsorted(new_first[1:], slot, right=True).clamp(max=graphs.numel() - 1)
    item = slot + take_rows(take_rows(first, graphs) - new_first[:-1], graph)
    return torch.where(slot < new_first[-1], item, 0), graph


# Up to this group size, comparing all pairs on a GPU is faster than sorting.
MAX_COMPARED = 2048


def rank_within_groups(values: Tensor, group_of_item: Tensor, first: Tensor, most: int) -> Tensor:
    """Rank the items of each group by value: 0, 1, 2, ... in ascending order, ties in order of position.

    Args:
        values: ``(N,)``.
        group_of_item: ``(N,)`` ascending. Items behind the end of the last group belong to padding; their ranks are at
            least the size of that group.
        first: ``(G + 1,)`` offsets of the groups.
        most: upper bound on the size of a group.
    """
    if values.is_cuda and most <= MAX_COMPARED:
        from joao.kernels import _triton

        return _triton.rank_within_groups(values, group_of_item, first)
    return plain_rank_within_groups(values, group_of_item, first)


def plain_rank_within_groups(values: Tensor, group_of_item: Tensor, first: Tensor) -> Tensor:
    """Plain form of :func:`rank_within_groups`: two stable sorts, by value and then by group."""
    position = torch.arange(values.numel(), device=values.device)
    is_padding = position >= first[-1]  # sorted after the last group, as a separate group
    order = torch.argsort(values, stable=True)
    order = take_rows(order, torch.argsort(take_rows(group_of_item + is_padding, order), stable=True))
    return torch.empty_like(position).index_copy_(0, order, position - take_rows(first, group_of_item))
