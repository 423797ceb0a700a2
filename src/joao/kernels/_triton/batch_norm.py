"""Triton form of masked ReLU and batch normalisation, forward and backward.

Statistics are computed in two stages (:mod:`joao.kernels._triton.tiles`): per part of a view, then per view.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

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

BACKWARD_ROWS = 8  # the backward kernels hold several tiles; more rows would not fit into registers


class Inputs(NamedTuple):
    """The values to normalise, h = max(z + bias, floor), and which nodes are kept."""

    z: Tensor
    bias: Tensor
    bias_stride: int
    keep: Tensor
    floor: float
    num_nodes: int
    width: int


class Statistics(NamedTuple):
    """Means and variances to normalise by."""

    means: Tensor
    variances: Tensor
    eps: float


class Gradients(NamedTuple):
    """Gradients of the node vectors (None if they are not used) and of their sums over graphs."""

    nodes: Tensor | None
    pooled: Tensor
    graph_of_node: Tensor
    num_graphs: int


def normalise(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalise max(z + bias, floor) over the kept nodes of each view: ``(V, N, d)``.

    Also returns means and variances ``(V, d)``, and the numbers of kept nodes ``(V,)``.

    ``bias``, ``scale`` and ``shift`` are ``(d,)``, shared by all views, or ``(V, d)``.
    """
    num_views, num_nodes, width = z.shape
    columns, (parts, rows_of_part) = tile_width(width), split_rows(num_nodes, ROWS)
    blocks, tile = triton.cdiv(width, columns), {"ROWS": ROWS, "COLUMNS": columns}
    of_parts = *torch.empty(2, num_views, parts, width, device=z.device), torch.empty(num_views, parts, device=z.device)
    means, variances = torch.empty(2, num_views, width, device=z.device)
    counts = torch.empty(num_views, device=z.device)
    y = torch.empty_like(z)
    inputs = Inputs(z, bias, view_stride(bias), keep, floor, num_nodes, width)
    _moments[(num_views, parts, blocks)](inputs, *of_parts, parts, rows_of_part, **tile)
    _combine_moments[(num_views, blocks)](
        *of_parts, means, variances, counts, parts, width, COLUMNS=columns, PARTS=triton.next_power_of_2(parts)
    )
    _normalise[(num_views, triton.cdiv(num_nodes, ROWS), blocks)](
        inputs, Statistics(means, variances, eps), scale, shift, view_stride(scale), y, **tile
    )
    return y, means, variances, counts


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
    counts: Tensor,
    eps: float,
    floor: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of z, scale, shift and bias from those of the nodes and of their sums over graphs.

    The gradients of scale, shift and bias are sums over all views, or ``(V, d)`` if the parameters have this shape.
    """
    num_views, num_nodes, width = z.shape
    columns, (parts, rows_of_part) = tile_width(width), split_rows(num_nodes, BACKWARD_ROWS)
    grid, tile = (num_views, parts, triton.cdiv(width, columns)), {"ROWS": BACKWARD_ROWS, "COLUMNS": columns}
    values = (
        Inputs(z, bias, view_stride(bias), keep, floor, num_nodes, width),
        Statistics(means, variances, eps),
        Gradients(None if dy is None else dy.contiguous(), d_pooled, graph_of_node, d_pooled.shape[1]),
    )
    partial = torch.empty(2, num_views, parts, width, device=z.device)
    _gradient_sums[grid](*values, *partial, parts, rows_of_part, **tile)
    sums, totals = sum_parts(partial)
    dz = torch.empty_like(z)
    bias_parts = torch.empty(1, num_views, parts, width, device=z.device)
    _normalise_backward[grid](
        *values, scale, view_stride(scale), (*sums, counts), dz, bias_parts, parts, rows_of_part, **tile
    )
    of_bias = sum_parts(bias_parts)
    of_scale = sums if scale.dim() == 2 else totals
    return dz, of_scale[1], of_scale[0], of_bias[0][0] if bias.dim() == 2 else of_bias[1][0]


@triton.jit
def _bias(inputs, view, column):
    return tl.load(inputs.bias + view * inputs.bias_stride + column, mask=column < inputs.width, other=0.0)


@triton.jit
def _tile(inputs, bias, view, nodes, end, column):
    """h for some nodes and columns, their offsets in memory, which nodes are kept, and which entries are valid."""
    kept = tl.load(inputs.keep + view * inputs.num_nodes + nodes, mask=nodes < end, other=0) != 0
    at = (view * inputs.num_nodes + nodes[:, None]) * inputs.width + column[None, :]
    mask = kept[:, None] & (column < inputs.width)[None, :]
    return add_bias_and_clamp(inputs.z + at, mask, bias, inputs.floor), at, kept, mask


@triton.jit
def _scaling(statistics, view, column, width):
    """Mean and reciprocal standard deviation."""
    at, inside = view * width + column, column < width
    mean = tl.load(statistics.means + at, mask=inside, other=0.0)
    return mean, tl.rsqrt(tl.load(statistics.variances + at, mask=inside, other=1.0) + statistics.eps)


@triton.jit
def _gradient(gradients, view, nodes, end, column, width, at, mask):
    """The gradient that arrives at a tile: of its nodes, and of the sum over each node's graph."""
    graph = tl.load(gradients.graph_of_node + nodes, mask=nodes < end, other=0)
    of_graph = (view * gradients.num_graphs + graph[:, None]) * width + column[None, :]
    gradient = tl.load(gradients.pooled + of_graph, mask=mask, other=0.0).to(tl.float32)
    if gradients.nodes is not None:
        gradient += tl.load(gradients.nodes + at, mask=mask, other=0.0).to(tl.float32)
    return gradient


@triton.jit
def _moments(inputs, part_means, part_squares, counts, parts, rows_of_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and sum of squared deviations of h over the kept nodes of one part of a view, and their number.

    Two passes, because sums of squares minus squared sums would cancel in float32.
    """
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = tile_columns(tl.program_id(2), inputs.width, COLUMNS)
    bias = _bias(inputs, view, column)
    begin, end = part_rows(part, rows_of_part, inputs.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for row in range(begin, end, ROWS):
        h, _, kept, mask = _tile(inputs, bias, view, row + tl.arange(0, ROWS), end, column)
        total += tl.sum(tl.where(mask, h, 0.0), 0)
        count += tl.sum(kept.to(tl.float32), 0)
    mean = total / tl.maximum(count, 1.0)
    squares = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        h, _, _, mask = _tile(inputs, bias, view, row + tl.arange(0, ROWS), end, column)
        centred = tl.where(mask, h - mean[None, :], 0.0)
        squares += tl.sum(centred * centred, 0)
    to = (view * parts + part) * inputs.width + column
    tl.store(part_means + to, mean, mask=inside)
    tl.store(part_squares + to, squares, mask=inside)
    tl.store(counts + view * parts + part, count)


@triton.jit
def _combine_moments(
    part_means,
    part_squares,
    part_counts,
    means,
    variances,
    counts,
    parts,
    width,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Mean and variance of a view from those of its parts (the parallel form of Welford's update)."""
    view = tl.program_id(0).to(tl.int64)
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    each = tl.arange(0, PARTS)
    valid = (each < parts)[:, None] & inside[None, :]
    at = (view * parts + each[:, None]) * width + column[None, :]
    count = tl.load(part_counts + view * parts + each, mask=each < parts, other=0.0)
    of_part = tl.load(part_means + at, mask=valid, other=0.0)
    total = tl.maximum(tl.sum(count, 0), 1.0)
    mean = tl.sum(of_part * count[:, None], 0) / total
    # Deviations inside the parts, plus those of the means of the parts.
    off = of_part - mean[None, :]
    squares = tl.sum(tl.load(part_squares + at, mask=valid, other=0.0) + off * off * count[:, None], 0)
    tl.store(means + view * width + column, mean, mask=inside)
    tl.store(variances + view * width + column, squares / total, mask=inside)
    tl.store(counts + view, total)  # the same in every program of the view


@triton.jit
def _normalise(inputs, statistics, scale, shift, scale_stride, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    view = tl.program_id(0).to(tl.int64)
    nodes = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column, inside = tile_columns(tl.program_id(2), inputs.width, COLUMNS)
    mean, slope = _scaling(statistics, view, column, inputs.width)
    slope = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * slope
    offset = tl.load(shift + view * scale_stride + column, mask=inside, other=0.0)
    h, at, _, mask = _tile(inputs, _bias(inputs, view, column), view, nodes, inputs.num_nodes, column)
    value = tl.where(mask, (h - mean[None, :]) * slope[None, :] + offset[None, :], 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=(nodes < inputs.num_nodes)[:, None] & inside[None, :])


@triton.jit
def _gradient_sums(
    inputs, statistics, gradients, sums, products, parts, rows_of_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sums over one part of a view: of the gradient, and of the gradient times the normalised values."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = tile_columns(tl.program_id(2), inputs.width, COLUMNS)
    bias = _bias(inputs, view, column)
    mean, slope = _scaling(statistics, view, column, inputs.width)
    begin, end = part_rows(part, rows_of_part, inputs.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    product = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        h, at, _, mask = _tile(inputs, bias, view, nodes, end, column)
        gradient = _gradient(gradients, view, nodes, end, column, inputs.width, at, mask)
        total += tl.sum(gradient, 0)
        product += tl.sum(gradient * (h - mean[None, :]) * slope[None, :], 0)
    to = (view * parts + part) * inputs.width + column
    tl.store(sums + to, total, mask=inside)
    tl.store(products + to, product, mask=inside)


@triton.jit
def _normalise_backward(
    inputs,
    statistics,
    gradients,
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
    """Propagate the gradient of one part of a view through normalisation and ReLU, and sum it for the bias."""
    view, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inside = tile_columns(tl.program_id(2), inputs.width, COLUMNS)
    bias = _bias(inputs, view, column)
    mean, slope = _scaling(statistics, view, column, inputs.width)
    sums, products, counts = totals
    count = tl.load(counts + view)
    mean_gradient = tl.load(sums + view * inputs.width + column, mask=inside, other=0.0) / count
    mean_product = tl.load(products + view * inputs.width + column, mask=inside, other=0.0) / count
    weighted = tl.load(scale + view * scale_stride + column, mask=inside, other=0.0) * slope
    begin, end = part_rows(part, rows_of_part, inputs.num_nodes)
    total = tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        nodes = row + tl.arange(0, ROWS)
        h, at, _, mask = _tile(inputs, bias, view, nodes, end, column)
        gradient = _gradient(gradients, view, nodes, end, column, inputs.width, at, mask)
        # The gradient of normalisation: remove the mean and the component along the normalised values.
        normal = (h - mean[None, :]) * slope[None, :]
        value = weighted[None, :] * (gradient - mean_gradient[None, :] - normal * mean_product[None, :])
        value = tl.where(mask & (h > inputs.floor), value, 0.0)  # ReLU passes gradients only above its floor
        total += tl.sum(value, 0)
        tl.store(dz + at, value.to(dz.dtype.element_ty), mask=(nodes < end)[:, None] & inside[None, :])
    tl.store(bias_parts + (view * parts + part) * inputs.width + column, total, mask=inside)
