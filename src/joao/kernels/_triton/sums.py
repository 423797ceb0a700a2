"""Sums over neighbours and over graphs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.core.padded import PaddedViews
from joao.kernels._triton.tiles import ROWS, columns_of, columns_of_tile, stride_of


def neighbour_sum(x: Tensor, views: PaddedViews, dtype: torch.dtype, weight: Tensor | None = None) -> Tensor:
    """``(V, N, d)`` each node and its neighbours, added up; ``weight`` ``(V, N)`` of both ends are factors."""
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
    """A program is a node and some columns."""
    place = tl.program_id(0).to(tl.int64)
    view, node = place // num_nodes, place % num_nodes
    column, inside = columns_of(tl.program_id(1), width, COLUMNS)
    x += view * num_nodes * width
    total = tl.load(x + node * width + column, mask=inside, other=0.0).to(tl.float32)
    if weight is not None:
        weight += view * num_nodes
        of_node = tl.load(weight + node)
        total *= of_node
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
    tl.store(summed + place * width + column, total.to(summed.dtype.element_ty), mask=inside)


def graph_sum(x: Tensor, first_node: Tensor) -> Tensor:
    """``(V, G, d)`` the sum over each graph's nodes; ``first_node`` is ``(G + 1,)`` or ``(V, G + 1)``."""
    num_views, num_nodes, width = x.shape
    num_graphs = first_node.shape[-1] - 1
    summed = x.new_empty(num_views, num_graphs, width)
    columns = columns_of_tile(width)
    shape = {"ROWS": ROWS, "COLUMNS": columns, "num_warps": 2}
    grid = num_views * num_graphs, triton.cdiv(width, columns)
    _graph_sum[grid](x, first_node, stride_of(first_node), summed, num_nodes, num_graphs, width, **shape)
    return summed


@triton.jit
def _graph_sum(x, first_node, stride, summed, num_nodes, num_graphs, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A program is a graph and some columns."""
    place = tl.program_id(0).to(tl.int64)
    view, graph = place // num_graphs, place % num_graphs
    column, inside = columns_of(tl.program_id(1), width, COLUMNS)
    first_node += view * stride
    begin, end = tl.load(first_node + graph), tl.load(first_node + graph + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for node in range(begin, end, ROWS):
        nodes = node + tl.arange(0, ROWS)
        at = x + (view * num_nodes + nodes[:, None]) * width + column[None, :]
        values = tl.load(at, mask=(nodes < end)[:, None] & inside[None, :], other=0.0)
        total += tl.sum(values.to(tl.float32), 0)
    tl.store(summed + place * width + column, total.to(summed.dtype.element_ty), mask=inside)
