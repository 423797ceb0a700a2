"""Triton forms of the sums of :mod:`joao.kernels.layers`, and of the hidden layer of a GIN layer."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.core.padded import PaddedViews
from joao.kernels._triton.tiles import (
    ROWS,
    add_bias_and_clamp,
    part_rows,
    split_rows,
    sum_parts,
    tile_columns,
    tile_width,
    view_stride,
)


def neighbour_sum(x: Tensor, views: PaddedViews, dtype: torch.dtype, weight: Tensor | None = None) -> Tensor:
    """Sum each node and its neighbours, ``(V, N, d)``; ``weight`` ``(V, N)`` scales a term by both of its ends."""
    num_views, num_nodes, width = x.shape
    summed = torch.empty_like(x, dtype=dtype)
    columns = min(512, triton.next_power_of_2(width))
    shape = {"COLUMNS": columns, "EDGES": max(2, min(16, 512 // columns)), "num_warps": max(1, min(4, columns // 64))}
    grid = num_views * num_nodes, triton.cdiv(width, columns)
    sizes = num_nodes, views.source.shape[1], width
    _neighbour_sum[grid](x, views.source, views.first_edge, weight, summed, *sizes, **shape)
    return summed


@triton.jit
def _neighbour_sum(
    x, source, first_edge, weight, summed, num_nodes, num_edges, width, COLUMNS: tl.constexpr, EDGES: tl.constexpr
):
    """One program per node and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    view, node = row // num_nodes, row % num_nodes
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    x += view * num_nodes * width
    total = tl.load(x + node * width + column, mask=inside, other=0.0).to(tl.float32)
    if weight is not None:
        weight += view * num_nodes
        of_node = tl.load(weight + node)
        total *= of_node  # the node itself has the factor squared: here and at the end
    begin = tl.load(first_edge + view * (num_nodes + 1) + node)
    end = tl.load(first_edge + view * (num_nodes + 1) + node + 1)
    for edge in range(begin, end, EDGES):
        edges = edge + tl.arange(0, EDGES)
        is_edge = edges < end
        neighbour = tl.load(source + view * num_edges + edges, mask=is_edge, other=0)
        at = x + neighbour[:, None] * width + column[None, :]
        values = tl.load(at, mask=is_edge[:, None] & inside[None, :], other=0.0).to(tl.float32)
        if weight is not None:
            values *= tl.load(weight + neighbour, mask=is_edge, other=0.0)[:, None]
        total += tl.sum(values, 0)
    if weight is not None:
        total *= of_node
    tl.store(summed + row * width + column, total.to(summed.dtype.element_ty), mask=inside)


def graph_sum(x: Tensor, first_node: Tensor) -> Tensor:
    """Sum the nodes of each graph, ``(V, G, d)``; ``first_node`` is ``(G + 1,)`` or ``(V, G + 1)``."""
    num_views, num_nodes, width = x.shape
    num_graphs = first_node.shape[-1] - 1
    summed = x.new_empty(num_views, num_graphs, width)
    columns = tile_width(width)
    shape = {"ROWS": ROWS, "COLUMNS": columns, "num_warps": 2}
    grid = num_views * num_graphs, triton.cdiv(width, columns)
    _graph_sum[grid](x, first_node, view_stride(first_node), summed, num_nodes, num_graphs, width, **shape)
    return summed


@triton.jit
def _graph_sum(x, first_node, stride, summed, num_nodes, num_graphs, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One program per graph and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    view, graph = row // num_graphs, row % num_graphs
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    first_node += view * stride
    begin, end = tl.load(first_node + graph), tl.load(first_node + graph + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for node in range(begin, end, ROWS):
        nodes = node + tl.arange(0, ROWS)
        at = x + (view * num_nodes + nodes[:, None]) * width + column[None, :]
        values = tl.load(at, mask=(nodes < end)[:, None] & inside[None, :], other=0.0)
        total += tl.sum(values.to(tl.float32), 0)
    tl.store(summed + row * width + column, total.to(summed.dtype.element_ty), mask=inside)


def graph_max(x: Tensor, first_node: Tensor) -> tuple[Tensor, Tensor]:
    """Maximum of the nodes of each graph and 0, ``(V, G, d)``, and how many nodes have it, at least 1."""
    num_views, num_nodes, width = x.shape
    num_graphs = first_node.shape[-1] - 1
    top, ties = torch.empty(2, num_views, num_graphs, width, dtype=x.dtype, device=x.device)
    columns = tile_width(width)
    shape = {"ROWS": ROWS, "COLUMNS": columns, "num_warps": 2}
    grid = num_views * num_graphs, triton.cdiv(width, columns)
    _graph_max[grid](x, first_node, view_stride(first_node), top, ties, num_nodes, num_graphs, width, **shape)
    return top, ties


@triton.jit
def _graph_max(
    x, first_node, stride, top, ties, num_nodes, num_graphs, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """One program per graph and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    view, graph = row // num_graphs, row % num_graphs
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    first_node += view * stride
    begin, end = tl.load(first_node + graph), tl.load(first_node + graph + 1)
    best = tl.zeros((COLUMNS,), tl.float32)
    count = tl.zeros((COLUMNS,), tl.float32)
    for node in range(begin, end, ROWS):
        nodes = node + tl.arange(0, ROWS)
        at = x + (view * num_nodes + nodes[:, None]) * width + column[None, :]
        values = tl.load(at, mask=(nodes < end)[:, None] & inside[None, :], other=-1.0).to(tl.float32)
        larger = tl.maximum(best, tl.max(values, 0))
        count = tl.where(larger > best, 0.0, count) + tl.sum((values == larger[None, :]).to(tl.float32), 0)
        best = larger
    tl.store(top + row * width + column, best, mask=inside)
    tl.store(ties + row * width + column, tl.maximum(count, 1.0), mask=inside)


def message_sum(x: Tensor, views: PaddedViews, table: Tensor, kind: Tensor, dtype: torch.dtype) -> Tensor:
    """Add to each node its messages, ``(V, N, d)``; see :func:`joao.kernels.layers.message_sum`."""
    num_views, num_nodes, width = x.shape
    summed = torch.empty_like(x, dtype=dtype)
    edges = kind, views.source, views.first_edge
    columns, shape = _edge_tiles(width)
    grid = num_views * num_nodes, triton.cdiv(width, columns)
    _message_sum[grid](x, table, *edges, summed, num_nodes, views.source.shape[1], width, **shape)
    return summed


def message_sum_backward(
    gradient: Tensor, x: Tensor, views: PaddedViews, table: Tensor, kind: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ``x`` and, at the reverse edge, of each message before its ReLU, ``(V, E, d)``."""
    num_views, num_nodes, width = x.shape
    # Padding belongs to no node: its rows are not written.
    d_x, d_messages = torch.empty_like(x), gradient.new_zeros(*kind.shape, width)
    edges = kind, views.source, views.first_edge
    columns, shape = _edge_tiles(width)
    grid = num_views * num_nodes, triton.cdiv(width, columns)
    sizes = num_nodes, views.source.shape[1], width
    _message_sum_backward[grid](gradient, x, table, *edges, d_x, d_messages, *sizes, **shape)
    return d_x, d_messages


def _edge_tiles(width: int) -> tuple[int, dict[str, int]]:
    columns: int = min(256, triton.next_power_of_2(width))
    return columns, {"COLUMNS": columns, "EDGES": 4, "num_warps": max(1, columns // 64)}


@triton.jit
def _message_sum(
    x,
    table,
    kind,
    source,
    first_edge,
    summed,
    num_nodes,
    num_edges,
    width,
    COLUMNS: tl.constexpr,
    EDGES: tl.constexpr,
):
    """One program per node and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    view, node = row // num_nodes, row % num_nodes
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    total = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    begin = tl.load(first_edge + view * (num_nodes + 1) + node)
    end = tl.load(first_edge + view * (num_nodes + 1) + node + 1)
    for edge in range(begin, end, EDGES):
        edges = view * num_edges + edge + tl.arange(0, EDGES)
        is_edge = edge + tl.arange(0, EDGES) < end
        kinds = tl.load(kind + edges, mask=is_edge, other=-1)
        neighbour = view * num_nodes + tl.load(source + edges, mask=is_edge, other=0)
        mask = (kinds >= 0)[:, None] & inside[None, :]
        values = tl.load(x + neighbour[:, None] * width + column[None, :], mask=mask, other=0.0).to(tl.float32)
        values += tl.load(table + kinds[:, None] * width + column[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL), 0)
    tl.store(summed + row * width + column, total.to(summed.dtype.element_ty), mask=inside)


@triton.jit
def _message_sum_backward(
    gradient,
    x,
    table,
    kind,
    source,
    first_edge,
    d_x,
    d_messages,
    num_nodes,
    num_edges,
    width,
    COLUMNS: tl.constexpr,
    EDGES: tl.constexpr,
):
    """One program per node, whose messages go to the sources of the edges to it, and block of columns."""
    row = tl.program_id(0).to(tl.int64)
    view, node = row // num_nodes, row % num_nodes
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    own = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.load(gradient + row * width + column, mask=inside, other=0.0).to(tl.float32)
    begin = tl.load(first_edge + view * (num_nodes + 1) + node)
    end = tl.load(first_edge + view * (num_nodes + 1) + node + 1)
    for edge in range(begin, end, EDGES):
        edges = view * num_edges + edge + tl.arange(0, EDGES)
        is_edge = edge + tl.arange(0, EDGES) < end
        kinds = tl.load(kind + edges, mask=is_edge, other=-1)
        neighbour = view * num_nodes + tl.load(source + edges, mask=is_edge, other=0)
        mask = (kinds >= 0)[:, None] & inside[None, :]
        message = own[None, :] + tl.load(table + kinds[:, None] * width + column[None, :], mask=mask, other=0.0).to(
            tl.float32
        )
        values = tl.load(gradient + neighbour[:, None] * width + column[None, :], mask=mask, other=0.0).to(tl.float32)
        values = tl.where(message > 0, values, 0.0)
        total += tl.sum(values, 0)
        at = d_messages + edges[:, None] * width + column[None, :]
        tl.store(at, values.to(d_messages.dtype.element_ty), mask=is_edge[:, None] & inside[None, :])
    tl.store(d_x + row * width + column, total.to(d_x.dtype.element_ty), mask=inside)


def add_and_relu(z: Tensor, bias: Tensor) -> Tensor:
    """Compute ``max(z + bias, 0)`` in place for ``z`` ``(R, d)``."""
    num_rows, width = z.shape
    columns = tile_width(width)
    grid = triton.cdiv(num_rows, ROWS), triton.cdiv(width, columns)
    _add_and_relu[grid](z, bias, num_rows, width, ROWS=ROWS, COLUMNS=columns)
    return z


@triton.jit
def _add_and_relu(z, bias, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    mask = (row < num_rows)[:, None] & inside[None, :]
    at = z + row[:, None] * width + column[None, :]
    value = add_bias_and_clamp(at, mask, tl.load(bias + column, mask=inside, other=0.0), 0.0)
    tl.store(at, value.to(z.dtype.element_ty), mask=mask)


def relu_backward(gradient: Tensor, activation: Tensor) -> tuple[Tensor, Tensor]:
    """Set ``gradient`` ``(R, d)`` to 0, in place, where ``activation`` is 0; also return its sum ``(d,)``."""
    num_rows, width = gradient.shape
    columns, (parts, rows_of_part) = tile_width(width), split_rows(num_rows, ROWS)
    sums = torch.empty(1, 1, parts, width, device=gradient.device)
    grid = parts, triton.cdiv(width, columns)
    _relu_backward[grid](gradient, activation, sums, num_rows, rows_of_part, width, ROWS=ROWS, COLUMNS=columns)
    return gradient, sum_parts(sums)[1][0]


@triton.jit
def _relu_backward(
    gradient, activation, sums, num_rows, rows_of_part, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """One program per part of the rows and block of columns."""
    part = tl.program_id(0)
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    begin, end = part_rows(part, rows_of_part, num_rows)
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
