from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from joao.core.padded import PaddedBatch
from joao.kernels.lay_out import Packed

ITEMS = 64  # at once
SHARES = 8  # of a graph


def lay_out(store: Packed, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """See :func:`joao.kernels.lay_out.lay_out`."""
    width = store.x.shape[1]
    _lay_out[(graphs.numel() + 1, SHARES)](
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
def _lay_out(
    packed, offsets, batch, marks, graphs, sizes, ITEMS: tl.constexpr, SHARES: tl.constexpr, COLUMNS: tl.constexpr
):
    """A program is a share of a graph; behind the last graph, of the room left over."""
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
            there = items < size
            tl.store(graph_of_node + node + items, graph.to(tl.int64), mask=there)
            tl.store(keep + node + items, 1, mask=there)
            begin = tl.load(edge_of_node + from_node + items, mask=there, other=0)
            tl.store(first_edge + node + items, edge + begin, mask=there)
            mask = there[:, None] & inside
            value = tl.load(from_x + (from_node + items)[:, None] * width + column[None, :], mask=mask, other=0)
            tl.store(x + (node + items)[:, None] * width + column[None, :], value.to(tl.float32), mask=mask)
        size = tl.load(first_edge_of_graph + graph + 1) - edge
        for item in range(share, size, SHARES * ITEMS):
            items = item + each
            there = items < size
            tl.store(source + edge + items, node + tl.load(from_source + from_edge + items, mask=there), mask=there)
            tl.store(target + edge + items, node + tl.load(from_target + from_edge + items, mask=there), mask=there)
            tl.store(reverse + edge + items, edge + tl.load(from_reverse + from_edge + items, mask=there), mask=there)
    else:
        tl.store(first_edge + num_nodes, edge)
        for place in range(node + share, num_nodes, SHARES * ITEMS):
            places = place + each
            there = places < num_nodes
            tl.store(graph_of_node + places, (num_graphs - 1).to(tl.int64), mask=there)
            tl.store(keep + places, 0, mask=there)
            tl.store(first_edge + places, edge, mask=there)
            tl.store(x + places[:, None] * width + column[None, :], 0.0, mask=there[:, None] & inside)
        for place in range(edge + share, num_edges, SHARES * ITEMS):
            places = place + each
            there = places < num_edges
            tl.store(source + places, num_nodes - 1, mask=there)
            tl.store(target + places, num_nodes - 1, mask=there)
            tl.store(reverse + places, num_edges - 1, mask=there)
