"""The Triton forms. Only imported where tensors are on an NVIDIA GPU.

Every sum is in a fixed order: the same input gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.kernels.lay_out import Packed
from joao.padded import PaddedBatch

ROWS = 32  # of a tile
FEWER_ROWS = 8  # where a program holds several tiles: more would not fit its registers
MOST_PARTS = 128  # into which rows are cut for sums over them
SHARES = 8  # of a graph that is copied


def lay_out(store: Packed, graphs: Tensor, first_edge_of_graph: Tensor, batch: PaddedBatch) -> None:
    """See :func:`joao.kernels.lay_out`."""
    width = store.x.shape[1]
    _lay_out[(graphs.numel() + 1, SHARES)](
        store.x,
        store.source,
        store.target,
        store.first_node,
        store.first_edge,
        store.edge_of_node,
        store.reverse_edge,
        graphs,
        batch.first_node,
        first_edge_of_graph,
        batch.x,
        batch.source,
        batch.target,
        batch.first_edge,
        batch.reverse_edge,
        batch.keep,
        batch.graph_of_node,
        graphs.numel(),
        batch.num_nodes,
        batch.num_edges,
        width,
        ITEMS=64,
        SHARES=SHARES,
        COLUMNS=triton.next_power_of_2(width),
    )


@triton.jit
def _lay_out(
    from_x,
    from_source,
    from_target,
    from_first_node,
    from_first_edge,
    edge_of_node,
    from_reverse,
    graphs,
    first_node,
    first_edge_of_graph,
    x,
    source,
    target,
    first_edge,
    reverse,
    keep,
    graph_of_node,
    num_graphs,
    num_nodes,
    num_edges,
    width,
    ITEMS: tl.constexpr,
    SHARES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program is a share of a graph; behind the last graph, of the room left over."""
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


def neighbour_sum(
    x: Tensor, source: Tensor, first_edge: Tensor, dtype: torch.dtype, weight: Tensor | None = None
) -> Tensor:
    """``(V, N, d)`` each node and its neighbours, added up; ``weight`` ``(V, N)`` of both ends are factors."""
    num_views, num_nodes, width = x.shape
    summed = torch.empty_like(x, dtype=dtype)
    columns = min(512, triton.next_power_of_2(width))
    _neighbour_sum[(num_views * num_nodes, triton.cdiv(width, columns))](
        x,
        source,
        first_edge,
        x if weight is None else weight,
        summed,
        num_nodes,
        source.shape[1],
        width,
        WEIGHTED=weight is not None,
        COLUMNS=columns,
        EDGES=max(2, min(16, 512 // columns)),
        num_warps=max(1, min(4, columns // 64)),
    )
    return summed


@triton.jit
def _neighbour_sum(
    x,
    source,
    first_edge,
    weight,
    summed,
    num_nodes,
    num_edges,
    width,
    WEIGHTED: tl.constexpr,
    COLUMNS: tl.constexpr,
    EDGES: tl.constexpr,
):
    """A program is a node and some columns."""
    place = tl.program_id(0).to(tl.int64)
    view, node = place // num_nodes, place % num_nodes
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    x += view * num_nodes * width
    total = tl.load(x + node * width + column, mask=inside, other=0.0).to(tl.float32)
    weight += view * num_nodes
    if WEIGHTED:
        of_node = tl.load(weight + node)
        total *= of_node
    begin = tl.load(first_edge + view * (num_nodes + 1) + node)
    end = tl.load(first_edge + view * (num_nodes + 1) + node + 1)
    for edge in range(begin, end, EDGES):
        edges = edge + tl.arange(0, EDGES)
        is_edge = edges < end
        neighbour = tl.load(source + view * num_edges + edges, mask=is_edge, other=0)
        values = tl.load(
            x + neighbour[:, None] * width + column[None, :], mask=is_edge[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        if WEIGHTED:
            values *= tl.load(weight + neighbour, mask=is_edge, other=0.0)[:, None]
        total += tl.sum(values, 0)
    if WEIGHTED:
        total *= of_node
    tl.store(summed + place * width + column, total.to(summed.dtype.element_ty), mask=inside)


def graph_sum(x: Tensor, first_node: Tensor) -> Tensor:
    """``(V, G, d)`` the sum over each graph's nodes; ``first_node`` is ``(G + 1,)`` or ``(V, G + 1)``."""
    num_views, num_nodes, width = x.shape
    num_graphs = first_node.shape[-1] - 1
    summed = x.new_empty(num_views, num_graphs, width)
    columns = min(64, triton.next_power_of_2(width))
    _graph_sum[(num_views * num_graphs, triton.cdiv(width, columns))](
        x,
        first_node,
        _stride(first_node),
        summed,
        num_nodes,
        num_graphs,
        width,
        ROWS=ROWS,
        COLUMNS=columns,
        num_warps=2,
    )
    return summed


@triton.jit
def _graph_sum(x, first_node, stride, summed, num_nodes, num_graphs, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A program is a graph and some columns."""
    place = tl.program_id(0).to(tl.int64)
    view, graph = place // num_graphs, place % num_graphs
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    first_node += view * stride
    begin, end = tl.load(first_node + graph), tl.load(first_node + graph + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for node in range(begin, end, ROWS):
        nodes = node + tl.arange(0, ROWS)
        at = x + (view * num_nodes + nodes[:, None]) * width + column[None, :]
        values = tl.load(at, mask=(nodes < end)[:, None] & inside[None, :], other=0.0)
        total += tl.sum(values.to(tl.float32), 0)
    tl.store(summed + place * width + column, total.to(summed.dtype.element_ty), mask=inside)


def add_and_relu(z: Tensor, bias: Tensor) -> Tensor:
    """``max(z + bias, 0)``, in the place of ``z`` ``(R, d)``."""
    columns = _columns(z.shape[1])
    grid = (triton.cdiv(z.shape[0], ROWS), triton.cdiv(z.shape[1], columns))
    _add_and_relu[grid](z, bias, z.shape[0], z.shape[1], ROWS=ROWS, COLUMNS=columns)
    return z


@triton.jit
def _add_and_relu(z, bias, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    at = z + row[:, None] * width + column[None, :]
    added = tl.load(bias + column, mask=column < width, other=0.0)
    value = tl.load(at, mask=inside, other=0.0).to(tl.float32) + added[None, :]
    value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)  # as torch: a fault must be seen
    tl.store(at, value.to(z.dtype.element_ty), mask=inside)


def relu_backward(gradient: Tensor, activation: Tensor) -> tuple[Tensor, Tensor]:
    """Where ``activation`` ``(R, d)`` is 0 the gradient, changed in place, becomes 0; and its sum ``(d,)``."""
    num_rows, width = gradient.shape
    columns, parts, rows_of_part = _parts(num_rows, width, ROWS)
    sums = torch.empty(1, 1, parts, width, device=gradient.device)
    _relu_backward[(parts, triton.cdiv(width, columns))](
        gradient, activation, sums, num_rows, rows_of_part, width, ROWS=ROWS, COLUMNS=columns
    )
    return gradient, _joined(sums)[1][0]


@triton.jit
def _relu_backward(
    gradient, activation, sums, num_rows, rows_of_part, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A program is a part of the rows and some columns."""
    part = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, num_rows)
    total = tl.zeros((COLUMNS,), tl.float32)
    for first in range(begin, end, ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        mask = (row < end)[:, None] & inside[None, :]
        at = row[:, None] * width + column[None, :]
        passes = tl.load(activation + at, mask=mask, other=0.0) > 0
        value = tl.where(passes, tl.load(gradient + at, mask=mask, other=0.0), 0.0)
        tl.store(gradient + at, value, mask=mask)
        total += tl.sum(value.to(tl.float32), 0)
    tl.store(sums + part * width + column, total, mask=inside)


def normalise(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """``(V, N, d)`` max(z + bias, floor), normalised view by view over the kept nodes; ``(V, d)`` means, variances.

    ``bias``, ``scale`` and ``shift`` are ``(d,)`` of all views, or ``(V, d)``.
    """
    num_views, num_nodes, width = z.shape
    columns, parts, rows_of_part = _parts(num_nodes, width, ROWS)
    blocks = triton.cdiv(width, columns)
    part_means, part_squares = torch.empty(2, num_views, parts, width, device=z.device)
    counts = torch.empty(num_views, parts, device=z.device)
    means, variances = torch.empty(2, num_views, width, device=z.device)
    y = torch.empty_like(z)
    _moments[(num_views, parts, blocks)](
        z,
        bias,
        _stride(bias),
        keep,
        part_means,
        part_squares,
        counts,
        floor,
        num_nodes,
        parts,
        rows_of_part,
        width,
        ROWS=ROWS,
        COLUMNS=columns,
    )
    _join_moments[(num_views, blocks)](
        part_means,
        part_squares,
        counts,
        means,
        variances,
        parts,
        width,
        COLUMNS=columns,
        PARTS=triton.next_power_of_2(parts),
    )
    _normalise[(num_views, triton.cdiv(num_nodes, ROWS), blocks)](
        z,
        bias,
        keep,
        scale,
        shift,
        _stride(bias),
        _stride(scale),
        means,
        variances,
        y,
        eps,
        floor,
        num_nodes,
        width,
        ROWS=ROWS,
        COLUMNS=columns,
    )
    return y, means, variances


def normalise_backward(
    dy: Tensor | None,
    d_pooled: Tensor,
    graph_of_node: Tensor,
    z: Tensor,
    bias: Tensor,
    keep: Tensor,
    scale: Tensor,
    means: Tensor,
    variances: Tensor,
    eps: float,
    floor: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of z, scale, shift and bias, given those of the nodes (if any) and of their graphs' sums.

    Those of scale, shift and bias are sums over all views, or ``(V, d)`` where they were.
    """
    num_views, num_nodes, width = z.shape
    columns, parts, rows_of_part = _parts(num_nodes, width, FEWER_ROWS)
    blocks = triton.cdiv(width, columns)
    gradients = (d_pooled if dy is None else dy.contiguous(), d_pooled, graph_of_node, d_pooled.shape[1])
    partial = torch.empty(2, num_views, parts, width, device=z.device)
    dz = torch.empty_like(z)
    _gradient_sums[(num_views, parts, blocks)](
        *gradients,
        z,
        bias,
        _stride(bias),
        keep,
        means,
        variances,
        partial[0],
        partial[1],
        eps,
        floor,
        num_nodes,
        parts,
        rows_of_part,
        width,
        NODES=dy is not None,
        ROWS=FEWER_ROWS,
        COLUMNS=columns,
    )
    sums, totals = _joined(partial)
    bias_parts = torch.empty(1, num_views, parts, width, device=z.device)
    _normalise_backward[(num_views, parts, blocks)](
        *gradients,
        z,
        bias,
        keep,
        scale,
        _stride(bias),
        _stride(scale),
        means,
        variances,
        sums[0],
        sums[1],
        keep.sum(1, dtype=torch.float32),
        dz,
        bias_parts,
        eps,
        floor,
        num_nodes,
        parts,
        rows_of_part,
        width,
        NODES=dy is not None,
        ROWS=FEWER_ROWS,
        COLUMNS=columns,
    )
    of_bias = _joined(bias_parts)
    of_scale = sums if scale.dim() == 2 else totals
    return dz, of_scale[1], of_scale[0], of_bias[0][0] if bias.dim() == 2 else of_bias[1][0]


def _stride(values: Tensor) -> int:
    """From one view's values to the next one's; 0 where all views share them."""
    return values.shape[-1] if values.dim() == 2 else 0


def _joined(parts: Tensor) -> tuple[Tensor, Tensor]:
    """Adds up ``(K, V, parts, d)``: to ``(K, V, d)``, and further to ``(K, d)``."""
    num_kinds, num_views, num_parts, width = parts.shape
    by_view = torch.empty(num_kinds, num_views, width, device=parts.device)
    total = torch.empty(num_kinds, width, device=parts.device)
    columns = min(32, triton.next_power_of_2(width))
    _join_sums[(num_kinds, triton.cdiv(width, columns))](
        parts,
        by_view,
        total,
        num_views,
        num_parts,
        width,
        COLUMNS=columns,
        PARTS=triton.next_power_of_2(num_parts),
    )
    return by_view, total


@triton.jit
def _join_sums(parts, by_view, total, num_views, num_parts, width, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """A program is a kind of sums and some columns."""
    kind = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    part = tl.arange(0, PARTS)
    there = (part < num_parts)[:, None] & inside[None, :]
    all_views = tl.zeros((COLUMNS,), tl.float32)
    for view in range(num_views):
        at = ((kind * num_views + view) * num_parts + part[:, None]) * width + column[None, :]
        one_view = tl.sum(tl.load(parts + at, mask=there, other=0.0), 0)
        tl.store(by_view + (kind * num_views + view) * width + column, one_view, mask=inside)
        all_views += one_view
    tl.store(total + kind * width + column, all_views, mask=inside)


def _columns(width: int) -> int:
    """Of a tile."""
    columns: int = min(64, triton.next_power_of_2(width))
    return columns


def _parts(num_rows: int, width: int, rows: int) -> tuple[int, int, int]:
    """Columns of a tile of ``rows``, the number of parts the rows are cut into, and the rows of a part."""
    parts = min(MOST_PARTS, triton.cdiv(num_rows, rows))
    return _columns(width), parts, triton.cdiv(triton.cdiv(num_rows, parts), rows) * rows


@triton.jit
def _moments(
    z,
    bias,
    bias_stride,
    keep,
    part_means,
    part_squares,
    counts,
    floor,
    num_nodes,
    parts,
    rows_of_part,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Count, mean and sum of squared deviations of h = max(z + bias, floor) over the kept nodes of a part of a view."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    added = tl.load(bias + view * bias_stride + column, mask=inside, other=0.0)
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        kept = tl.load(keep + view * num_nodes + nodes, mask=nodes < end, other=0) != 0
        at = (view * num_nodes + nodes[:, None]) * width + column[None, :]
        mask = kept[:, None] & inside[None, :]
        h = tl.load(z + at, mask=mask, other=0.0).to(tl.float32) + added[None, :]
        h = tl.maximum(h, floor, propagate_nan=tl.PropagateNan.ALL)
        total += tl.sum(tl.where(mask, h, 0.0), 0)
        count += tl.sum(kept.to(tl.float32), 0)
    mean = total / tl.maximum(count, 1.0)
    squares = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        kept = tl.load(keep + view * num_nodes + nodes, mask=nodes < end, other=0) != 0
        at = (view * num_nodes + nodes[:, None]) * width + column[None, :]
        mask = kept[:, None] & inside[None, :]
        h = tl.load(z + at, mask=mask, other=0.0).to(tl.float32) + added[None, :]
        h = tl.maximum(h, floor, propagate_nan=tl.PropagateNan.ALL)
        centred = tl.where(mask, h - mean[None, :], 0.0)
        squares += tl.sum(centred * centred, 0)
    to = (view * parts + part) * width + column
    tl.store(part_means + to, mean, mask=inside)
    tl.store(part_squares + to, squares, mask=inside)
    tl.store(counts + view * parts + part, count)


@triton.jit
def _join_moments(
    part_means, part_squares, counts, means, variances, parts, width, COLUMNS: tl.constexpr, PARTS: tl.constexpr
):
    """Mean and variance of a view, from those of its parts."""
    view = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    each = tl.arange(0, PARTS)
    there = (each < parts)[:, None] & inside[None, :]
    at = (view * parts + each[:, None]) * width + column[None, :]
    count = tl.load(counts + view * parts + each, mask=each < parts, other=0.0)
    of_part = tl.load(part_means + at, mask=there, other=0.0)
    total = tl.maximum(tl.sum(count, 0), 1.0)
    mean = tl.sum(of_part * count[:, None], 0) / total
    off = of_part - mean[None, :]
    squares = tl.sum(tl.load(part_squares + at, mask=there, other=0.0) + off * off * count[:, None], 0)
    tl.store(means + view * width + column, mean, mask=inside)
    tl.store(variances + view * width + column, squares / total, mask=inside)


@triton.jit
def _normalise(
    z,
    bias,
    keep,
    scale,
    shift,
    bias_stride,
    scale_stride,
    means,
    variances,
    y,
    eps,
    floor,
    num_nodes,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    nodes = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    added = tl.load(bias + view * bias_stride + column, mask=inside, other=0.0)
    mean = tl.load(means + view * width + column, mask=inside, other=0.0)
    variance = tl.load(variances + view * width + column, mask=inside, other=1.0)
    slope = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * tl.rsqrt(variance + eps)
    offset = tl.load(shift + view * scale_stride + column, mask=inside, other=0.0)
    kept = tl.load(keep + view * num_nodes + nodes, mask=nodes < num_nodes, other=0) != 0
    at = (view * num_nodes + nodes[:, None]) * width + column[None, :]
    mask = kept[:, None] & inside[None, :]
    h = tl.maximum(tl.load(z + at, mask=mask, other=0.0).to(tl.float32) + added[None, :], floor)
    value = tl.where(mask, (h - mean[None, :]) * slope[None, :] + offset[None, :], 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=(nodes < num_nodes)[:, None] & inside[None, :])


@triton.jit
def _gradient_sums(
    dy,
    d_pooled,
    graph_of_node,
    num_graphs,
    z,
    bias,
    bias_stride,
    keep,
    means,
    variances,
    part_sums,
    part_products,
    eps,
    floor,
    num_nodes,
    parts,
    rows_of_part,
    width,
    NODES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sums of the gradient, and of its product with the normalised values, over a part of a view."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    added = tl.load(bias + view * bias_stride + column, mask=inside, other=0.0)
    mean = tl.load(means + view * width + column, mask=inside, other=0.0)
    slope = tl.rsqrt(tl.load(variances + view * width + column, mask=inside, other=1.0) + eps)
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    product = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        kept = tl.load(keep + view * num_nodes + nodes, mask=nodes < end, other=0) != 0
        at = (view * num_nodes + nodes[:, None]) * width + column[None, :]
        mask = kept[:, None] & inside[None, :]
        graph = tl.load(graph_of_node + nodes, mask=nodes < end, other=0)
        of_graph = (view * num_graphs + graph[:, None]) * width + column[None, :]
        gradient = tl.load(d_pooled + of_graph, mask=mask, other=0.0).to(tl.float32)
        if NODES:
            gradient += tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        h = tl.load(z + at, mask=mask, other=0.0).to(tl.float32) + added[None, :]
        h = tl.maximum(h, floor, propagate_nan=tl.PropagateNan.ALL)
        total += tl.sum(gradient, 0)
        product += tl.sum(gradient * (h - mean[None, :]) * slope[None, :], 0)
    to = (view * parts + part) * width + column
    tl.store(part_sums + to, total, mask=inside)
    tl.store(part_products + to, product, mask=inside)


@triton.jit
def _normalise_backward(
    dy,
    d_pooled,
    graph_of_node,
    num_graphs,
    z,
    bias,
    keep,
    scale,
    bias_stride,
    scale_stride,
    means,
    variances,
    sums,
    products,
    counts,
    dz,
    bias_parts,
    eps,
    floor,
    num_nodes,
    parts,
    rows_of_part,
    width,
    NODES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Takes the gradient of a part of a view through normalisation and ReLU, and adds it up."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    added = tl.load(bias + view * bias_stride + column, mask=inside, other=0.0)
    mean = tl.load(means + view * width + column, mask=inside, other=0.0)
    slope = tl.rsqrt(tl.load(variances + view * width + column, mask=inside, other=1.0) + eps)
    count = tl.load(counts + view)
    mean_gradient = tl.load(sums + view * width + column, mask=inside, other=0.0) / count
    mean_product = tl.load(products + view * width + column, mask=inside, other=0.0) / count
    weighted = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * slope
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        kept = tl.load(keep + view * num_nodes + nodes, mask=nodes < end, other=0) != 0
        at = (view * num_nodes + nodes[:, None]) * width + column[None, :]
        mask = kept[:, None] & inside[None, :]
        graph = tl.load(graph_of_node + nodes, mask=nodes < end, other=0)
        of_graph = (view * num_graphs + graph[:, None]) * width + column[None, :]
        gradient = tl.load(d_pooled + of_graph, mask=mask, other=0.0).to(tl.float32)
        if NODES:
            gradient += tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        before = tl.load(z + at, mask=mask, other=0.0).to(tl.float32) + added[None, :]
        normal = (tl.maximum(before, floor) - mean[None, :]) * slope[None, :]
        value = weighted[None, :] * (gradient - mean_gradient[None, :] - normal * mean_product[None, :])
        value = tl.where(mask & (before > floor), value, 0.0)
        total += tl.sum(value, 0)
        tl.store(dz + at, value.to(dz.dtype.element_ty), mask=(nodes < end)[:, None] & inside[None, :])
    tl.store(bias_parts + (view * parts + part) * width + column, total, mask=inside)


def ranks(values: Tensor, group_of_item: Tensor, first: Tensor) -> Tensor:
    """``(N,)`` how many items of its group come before each one."""
    counted = torch.empty_like(group_of_item)
    num_items, items = values.numel(), 64
    _ranks[(triton.cdiv(num_items, items),)](values, group_of_item, first, counted, num_items, ITEMS=items)
    return counted


@triton.jit
def _ranks(values, group_of_item, first, counted, num_items, ITEMS: tl.constexpr):
    """A program is some items, which it compares with all items of all their groups."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    inside = item < num_items
    value = tl.load(values + item, mask=inside, other=0.0)
    group = tl.load(group_of_item + item, mask=inside, other=0)
    begin = tl.load(first + group, mask=inside, other=2**62)
    end = tl.load(first + group + 1, mask=inside, other=0)
    is_over = item >= end
    count = tl.where(is_over, item - begin, 0)
    for other_first in range(tl.min(begin, 0), tl.max(end, 0), ITEMS):
        other = other_first + tl.arange(0, ITEMS)
        other_value = tl.load(values + other, mask=other < num_items, other=0.0)
        is_before = (other_value[None, :] < value[:, None]) | (
            (other_value[None, :] == value[:, None]) & (other[None, :] < item[:, None])
        )
        in_group = (other[None, :] >= begin[:, None]) & (other[None, :] < end[:, None])
        count += tl.sum((is_before & in_group & ~is_over[:, None]).to(tl.int64), 1)
    tl.store(counted + item, count, mask=inside)


def first_passage(
    source: Tensor,
    target: Tensor,
    first_edge: Tensor,
    first_node: Tensor,
    start: Tensor,
    waiting: Tensor,
    most_edges: int,
) -> Tensor:
    # Non-negative numbers of type float64 are in the order of their bits as int64, which atomics can compare.
    time = start.clone().view(torch.int64)
    edges = min(1024, max(64, triton.next_power_of_2(most_edges)))
    _first_passage[(first_node.numel() - 1,)](
        source, target, first_edge, first_node, time, waiting, EDGES=edges, num_warps=max(2, edges // 128)
    )
    return time.view(torch.float64)


@triton.jit
def _first_passage(source, target, first_edge, first_node, time, waiting, EDGES: tl.constexpr):
    """A program is a graph: sweeps over its edges until nothing changes."""
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
            # What other threads of the program have written must be seen: past the first cache.
            known = tl.load(time + of, mask=is_edge, other=0, volatile=True).to(tl.float64, bitcast=True)
            arrival = known + tl.load(waiting + to, mask=is_edge, other=0.0)
            bits = arrival.to(tl.int64, bitcast=True)
            earlier = tl.atomic_min(time + to, bits, mask=is_edge)
            changed += tl.sum(((bits < earlier) & is_edge).to(tl.int32), 0)
        tl.debug_barrier()
