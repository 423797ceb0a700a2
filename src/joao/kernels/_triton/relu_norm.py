"""ReLU and normalisation, forward and backward. The rows of a view are cut into parts, whose sums are then joined."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.kernels._triton.tiles import ROWS, add_and_cut, columns_of, columns_of_tile, cut, joined, rows_of, stride_of

FEWER_ROWS = 8  # where a program holds several tiles: more would not fit its registers


class Given(NamedTuple):
    """What is normalised, h = max(z + bias, floor), over the nodes that are kept."""

    z: Tensor
    bias: Tensor
    bias_stride: int
    keep: Tensor
    floor: float
    num_nodes: int
    width: int


class Statistics(NamedTuple):
    """By which it is normalised."""

    means: Tensor
    variances: Tensor
    eps: float


class Upstream(NamedTuple):
    """Gradients of the nodes, if any, and of their graphs' sums."""

    nodes: Tensor | None
    pooled: Tensor
    graph_of_node: Tensor
    num_graphs: int


def normalise(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """``(V, N, d)`` max(z + bias, floor), normalised view by view over the kept nodes; ``(V, d)`` means, variances.

    ``bias``, ``scale`` and ``shift`` are ``(d,)`` of all views, or ``(V, d)``.
    """
    num_views, num_nodes, width = z.shape
    columns, (parts, rows_of_part) = columns_of_tile(width), cut(num_nodes, ROWS)
    blocks, tile = triton.cdiv(width, columns), {"ROWS": ROWS, "COLUMNS": columns}
    of_parts = *torch.empty(2, num_views, parts, width, device=z.device), torch.empty(num_views, parts, device=z.device)
    means, variances = torch.empty(2, num_views, width, device=z.device)
    y = torch.empty_like(z)
    given = Given(z, bias, stride_of(bias), keep, floor, num_nodes, width)
    _moments[(num_views, parts, blocks)](given, *of_parts, parts, rows_of_part, **tile)
    _join_moments[(num_views, blocks)](
        *of_parts, means, variances, parts, width, COLUMNS=columns, PARTS=triton.next_power_of_2(parts)
    )
    _normalise[(num_views, triton.cdiv(num_nodes, ROWS), blocks)](
        given, Statistics(means, variances, eps), scale, shift, stride_of(scale), y, **tile
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
    columns, (parts, rows_of_part) = columns_of_tile(width), cut(num_nodes, FEWER_ROWS)
    grid, tile = (num_views, parts, triton.cdiv(width, columns)), {"ROWS": FEWER_ROWS, "COLUMNS": columns}
    values = (
        Given(z, bias, stride_of(bias), keep, floor, num_nodes, width),
        Statistics(means, variances, eps),
        Upstream(None if dy is None else dy.contiguous(), d_pooled, graph_of_node, d_pooled.shape[1]),
    )
    partial = torch.empty(2, num_views, parts, width, device=z.device)
    _gradient_sums[grid](*values, *partial, parts, rows_of_part, **tile)
    sums, totals = joined(partial)
    dz = torch.empty_like(z)
    bias_parts = torch.empty(1, num_views, parts, width, device=z.device)
    counts = keep.sum(1, dtype=torch.float32)
    _normalise_backward[grid](
        *values, scale, stride_of(scale), (*sums, counts), dz, bias_parts, parts, rows_of_part, **tile
    )
    of_bias = joined(bias_parts)
    of_scale = sums if scale.dim() == 2 else totals
    return dz, of_scale[1], of_scale[0], of_bias[0][0] if bias.dim() == 2 else of_bias[1][0]


@triton.jit
def _bias(given, view, column):
    return tl.load(given.bias + view * given.bias_stride + column, mask=column < given.width, other=0.0)


@triton.jit
def _tile(given, bias, view, nodes, end, column):
    """h of some nodes and columns, where they lie, and which are kept."""
    kept = tl.load(given.keep + view * given.num_nodes + nodes, mask=nodes < end, other=0) != 0
    at = (view * given.num_nodes + nodes[:, None]) * given.width + column[None, :]
    mask = kept[:, None] & (column < given.width)[None, :]
    return add_and_cut(given.z + at, mask, bias, given.floor), at, kept, mask


@triton.jit
def _scaling(statistics, view, column, width):
    """Mean and one over the standard deviation."""
    at, inside = view * width + column, column < width
    mean = tl.load(statistics.means + at, mask=inside, other=0.0)
    return mean, tl.rsqrt(tl.load(statistics.variances + at, mask=inside, other=1.0) + statistics.eps)


@triton.jit
def _gradient(upstream, view, nodes, end, column, width, at, mask):
    """What comes back to a tile."""
    graph = tl.load(upstream.graph_of_node + nodes, mask=nodes < end, other=0)
    of_graph = (view * upstream.num_graphs + graph[:, None]) * width + column[None, :]
    gradient = tl.load(upstream.pooled + of_graph, mask=mask, other=0.0).to(tl.float32)
    if upstream.nodes is not None:
        gradient += tl.load(upstream.nodes + at, mask=mask, other=0.0).to(tl.float32)
    return gradient


@triton.jit
def _moments(given, part_means, part_squares, counts, parts, rows_of_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and sum of squared deviations of h over the kept nodes of a part of a view, and their number."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = columns_of(tl.program_id(2), given.width, COLUMNS)
    bias = _bias(given, view, column)
    begin, end = rows_of(part, rows_of_part, given.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for row in range(begin, end, ROWS):
        h, _, kept, mask = _tile(given, bias, view, row + tl.arange(0, ROWS), end, column)
        total += tl.sum(tl.where(mask, h, 0.0), 0)
        count += tl.sum(kept.to(tl.float32), 0)
    mean = total / tl.maximum(count, 1.0)
    squares = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        h, _, _, mask = _tile(given, bias, view, row + tl.arange(0, ROWS), end, column)
        centred = tl.where(mask, h - mean[None, :], 0.0)
        squares += tl.sum(centred * centred, 0)
    to = (view * parts + part) * given.width + column
    tl.store(part_means + to, mean, mask=inside)
    tl.store(part_squares + to, squares, mask=inside)
    tl.store(counts + view * parts + part, count)


@triton.jit
def _join_moments(
    part_means, part_squares, counts, means, variances, parts, width, COLUMNS: tl.constexpr, PARTS: tl.constexpr
):
    """Mean and variance of a view, from those of its parts."""
    view = tl.program_id(0).to(tl.int64)
    column, inside = columns_of(tl.program_id(1), width, COLUMNS)
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
def _normalise(given, statistics, scale, shift, scale_stride, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    view = tl.program_id(0).to(tl.int64)
    nodes = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column, inside = columns_of(tl.program_id(2), given.width, COLUMNS)
    mean, slope = _scaling(statistics, view, column, given.width)
    slope = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * slope
    offset = tl.load(shift + view * scale_stride + column, mask=inside, other=0.0)
    h, at, _, mask = _tile(given, _bias(given, view, column), view, nodes, given.num_nodes, column)
    value = tl.where(mask, (h - mean[None, :]) * slope[None, :] + offset[None, :], 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=(nodes < given.num_nodes)[:, None] & inside[None, :])


@triton.jit
def _gradient_sums(
    given, statistics, upstream, sums, products, parts, rows_of_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The sums of the gradient, and of its product with the normalised values, over a part of a view."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = columns_of(tl.program_id(2), given.width, COLUMNS)
    bias = _bias(given, view, column)
    mean, slope = _scaling(statistics, view, column, given.width)
    begin, end = rows_of(part, rows_of_part, given.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    product = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        h, at, _, mask = _tile(given, bias, view, nodes, end, column)
        gradient = _gradient(upstream, view, nodes, end, column, given.width, at, mask)
        total += tl.sum(gradient, 0)
        product += tl.sum(gradient * (h - mean[None, :]) * slope[None, :], 0)
    to = (view * parts + part) * given.width + column
    tl.store(sums + to, total, mask=inside)
    tl.store(products + to, product, mask=inside)


@triton.jit
def _normalise_backward(
    given,
    statistics,
    upstream,
    scale,
    scale_stride,
    totals,
    dz,
    bias_parts,
    parts,
    rows_of_part,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Takes the gradient of a part of a view through normalisation and ReLU, and adds it up."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = columns_of(tl.program_id(2), given.width, COLUMNS)
    bias = _bias(given, view, column)
    mean, slope = _scaling(statistics, view, column, given.width)
    sums, products, counts = totals
    count = tl.load(counts + view)
    mean_gradient = tl.load(sums + view * given.width + column, mask=inside, other=0.0) / count
    mean_product = tl.load(products + view * given.width + column, mask=inside, other=0.0) / count
    weighted = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * slope
    begin, end = rows_of(part, rows_of_part, given.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        h, at, _, mask = _tile(given, bias, view, nodes, end, column)
        gradient = _gradient(upstream, view, nodes, end, column, given.width, at, mask)
        normal = (h - mean[None, :]) * slope[None, :]
        value = weighted[None, :] * (gradient - mean_gradient[None, :] - normal * mean_product[None, :])
        value = tl.where(mask & (h > given.floor), value, 0.0)
        total += tl.sum(value, 0)
        tl.store(dz + at, value.to(dz.dtype.element_ty), mask=(nodes < end)[:, None] & inside[None, :])
    tl.store(bias_parts + (view * parts + part) * given.width + column, total, mask=inside)
