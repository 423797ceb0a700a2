"""Triton forms of :mod:`joao.kernels.graph_ops`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.core.padded import PaddedBatch
from joao.kernels.graph_ops import PackedGraphs


def first_passage(batch: PaddedBatch, start: Tensor, waiting: Tensor) -> Tensor:
    """See :func:`joao.kernels.graph_ops.first_passage`."""
    # There is no atomic minimum of float64. Non-negative float64 are ordered like their bits, read as int64.
    time = start.clone().view(torch.int64)
    edges = min(1024, max(64, triton.next_power_of_2(batch.most_edges)))
    graphs = batch.source, batch.target, batch.first_edge, batch.first_node
    _first_passage[(batch.num_graphs,)](*graphs, time, waiting, EDGES=edges, num_warps=max(2, edges // 128))
    return time.view(torch.float64)


@triton.jit
def _first_passage(source, target, first_edge, first_node, time, waiting, EDGES: tl.constexpr):
    """One program per graph. It relaxes all edges of the graph until nothing changes."""
    graph = tl.program_id(0)
    begin = tl.load(first_edge + tl.load(first_node + graph))
    end = tl.load(first_edge + tl.load(first_node + graph + 1))
    changed = 1
    while changed > 0:
        changed = 0
        for edge in range(begin, end, EDGES):
            edges = edge + tl.arange(0, EDGES)
            is_edge = edges < end
            of = tl.load(source + edges, mask=is_edge, other=0)
            to = tl.load(target + edges, mask=is_edge, other=0)
            # volatile: read what other threads of the program have written, not an old value from the L1 cache.
            known = tl.load(time + of, mask=is_edge, other=0, volatile=True).to(tl.float64, bitcast=True)
            arrival = known + tl.load(waiting + to, mask=is_edge, other=0.0)
            bits = arrival.to(tl.int64, bitcast=True)
            earlier = tl.atomic_min(time + to, bits, mask=is_edge)
            changed += tl.sum(((bits < earlier) & is_edge).to(tl.int32), 0)
        tl.debug_barrier()


ITEMS = 64  # nodes or edges that a program copies at once
SHARES = 8  # programs per graph


def copy_graphs(store: PackedGraphs, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """See :func:`joao.kernels.graph_ops.copy_graphs`."""
    width = store.x.shape[1]
    _copy_graphs[(graphs.numel() + 1, SHARES)](
        (store.x, store.source, store.target, store.reverse_edge),
        (store.first_node, store.first_edge, store.edge_of_node),
        (batch.x, batch.source, batch.target, batch.reverse_edge),
        (batch.first_node, first_edge_of_graph, batch.first_edge, batch.keep, batch.graph_of_node),
        graphs,
        (graphs.numel(), batch.num_nodes, batch.num_edges, width),
        ITEMS=ITEMS,
        SHARES=SHARES,
        COLUMNS=triton.next_power_of_2(width),
    )


@triton.jit
def _copy_graphs(
    packed, offsets, batch, marks, graphs, sizes, ITEMS: tl.constexpr, SHARES: tl.constexpr, COLUMNS: tl.constexpr
):
    """One program per graph and share of its items; the programs after the last graph fill the padding."""
    from_x, from_source, from_target, from_reverse = packed
    from_first_node, from_first_edge, edge_of_node = offsets
    x, source, target, reverse = batch
    first_node, first_edge_of_graph, first_edge, keep, graph_of_node = marks
    num_graphs, num_nodes, num_edges, width = sizes
    graph, share = tl.program_id(0), tl.program_id(1) * ITEMS
    each = tl.arange(0, ITEMS)
    column = tl.arange(0, COLUMNS)
    inside = (column < width)[None, :]
    node, edge = tl.load(first_node + graph), tl.load(first_edge_of_graph + graph)
    if graph < num_graphs:
        number = tl.load(graphs + graph)
        from_node, from_edge = tl.load(from_first_node + number), tl.load(from_first_edge + number)
        size = tl.load(first_node + graph + 1) - node
        for item in range(share, size, SHARES * ITEMS):
            items = item + each
            valid = items < size
            tl.store(graph_of_node + node + items, graph.to(tl.int64), mask=valid)
            tl.store(keep + node + items, 1, mask=valid)
            begin = tl.load(edge_of_node + from_node + items, mask=valid, other=0)
            tl.store(first_edge + node + items, edge + begin, mask=valid)
            mask = valid[:, None] & inside
            value = tl.load(from_x + (from_node + items)[:, None] * width + column[None, :], mask=mask, other=0)
            tl.store(x + (node + items)[:, None] * width + column[None, :], value.to(tl.float32), mask=mask)
        size = tl.load(first_edge_of_graph + graph + 1) - edge
        for item in range(share, size, SHARES * ITEMS):
            items = item + each
            valid = items < size
            tl.store(source + edge + items, node + tl.load(from_source + from_edge + items, mask=valid), mask=valid)
            tl.store(target + edge + items, node + tl.load(from_target + from_edge + items, mask=valid), mask=valid)
            tl.store(reverse + edge + items, edge + tl.load(from_reverse + from_edge + items, mask=valid), mask=valid)
    else:
        tl.store(first_edge + num_nodes, edge)
        for slot in range(node + share, num_nodes, SHARES * ITEMS):
            slots = slot + each
            valid = slots < num_nodes
            tl.store(graph_of_node + slots, (num_graphs - 1).to(tl.int64), mask=valid)
            tl.store(keep + slots, 0, mask=valid)
            tl.store(first_edge + slots, edge, mask=valid)
            tl.store(x + slots[:, None] * width + column[None, :], 0.0, mask=valid[:, None] & inside)
        for slot in range(edge + share, num_edges, SHARES * ITEMS):
            slots = slot + each
            valid = slots < num_edges
            tl.store(source + slots, num_nodes - 1, mask=valid)
            tl.store(target + slots, num_nodes - 1, mask=valid)
            tl.store(reverse + slots, num_edges - 1, mask=valid)


def rank_within_groups(values: Tensor, group_of_item: Tensor, first: Tensor) -> Tensor:
    """See :func:`joao.kernels.graph_ops.rank_within_groups`; counts the items that come before each one."""
    counted = torch.empty_like(group_of_item)
    num_items, items = values.numel(), 64
    _rank_within_groups[(triton.cdiv(num_items, items),)](values, group_of_item, first, counted, num_items, ITEMS=items)
    return counted


@triton.jit
def _rank_within_groups(values, group_of_item, first, counted, num_items, ITEMS: tl.constexpr):
    """One program per block of items, which it compares with all items of all their groups."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    inside = item < num_items
    value = tl.load(values + item, mask=inside, other=0.0)
    group = tl.load(group_of_item + item, mask=inside, other=0)
    begin = tl.load(first + group, mask=inside, other=2**62)
    end = tl.load(first + group + 1, mask=inside, other=0)
    is_padding = item >= end  # after the last group: ranked by position
    count = tl.where(is_padding, item - begin, 0)
    for other_first in range(tl.min(begin, 0), tl.max(end, 0), ITEMS):
        other = other_first + tl.arange(0, ITEMS)
        other_value = tl.load(values + other, mask=other < num_items, other=0.0)
        is_before = (other_value[None, :] < value[:, None]) | (
            (other_value[None, :] == value[:, None]) & (other[None, :] < item[:, None])
        )
        in_group = (other[None, :] >= begin[:, None]) & (other[None, :] < end[:, None])
        count += tl.sum((is_before & in_group & ~is_padding[:, None]).to(tl.int64), 1)
    tl.store(counted + item, count, mask=inside)
