"""Triton form of :mod:`joao.kernels.nt_xent`: everything but the matrix products, in three kernels."""

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 1024  # of a vector that are read at once


def unit_vectors(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Scale the rows of two ``(B, d)`` to length 1, ``(2, B, d)``; also return the divisors, ``(2, B)``."""
    num_rows, width = first.shape
    units, norms = first.new_empty(2, num_rows, width), first.new_empty(2, num_rows)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _unit_vectors[(num_rows, 2)](first, second, units, norms, num_rows, width, COLUMNS=columns)
    return units, norms


@triton.jit
def _unit_vectors(first, second, units, norms, num_rows, width, COLUMNS: tl.constexpr):
    """One program per row of each view."""
    row, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = row * width
    to = (side * num_rows + row) * width
    # The columns to read of each view: those of the other one are left out.
    of_first = tl.where(side == 0, width, 0)
    of_second = width - of_first
    squares = tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        value = tl.load(first + at + column, mask=column < of_first, other=0.0)
        value += tl.load(second + at + column, mask=column < of_second, other=0.0)
        squares += value * value
    norm = tl.sqrt(tl.sum(squares, 0))
    # Dividing by infinity would silently give 0, and the vector 0 stays 0.
    norm = tl.where(norm == float("inf"), float("nan"), tl.where(norm == 0, 1.0, norm))
    tl.store(norms + side * num_rows + row, norm)
    for begin in range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        value = tl.load(first + at + column, mask=column < of_first, other=0.0)
        value += tl.load(second + at + column, mask=column < of_second, other=0.0)
        tl.store(units + to + column, value / norm, mask=column < width)


def losses_and_gradient(cosines: Tensor, temperature: float, positive_in_denominator: bool) -> Tensor:
    """Losses of the rows of ``cosines`` ``(B, B)``, which are replaced by the gradient of the mean loss."""
    size = len(cosines)
    losses = cosines.new_empty(size)
    block = triton.next_power_of_2(size)
    _losses_and_gradient[(size,)](
        cosines,
        losses,
        size,
        1 / temperature,
        POSITIVE=positive_in_denominator,
        BLOCK=block,
        num_warps=min(16, max(1, block // 256)),
    )
    return losses


@triton.jit
def _losses_and_gradient(cosines, losses, size, sharpness, POSITIVE: tl.constexpr, BLOCK: tl.constexpr):
    """One program per row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    logit = tl.load(cosines + row * size + column, mask=inside, other=float("-inf")) * sharpness
    positive = tl.sum(tl.where(column == row, logit, 0.0), 0)
    if not POSITIVE:
        logit = tl.where(column == row, float("-inf"), logit)
    most = tl.max(logit, 0)
    weight = tl.exp(logit - most)
    total = tl.sum(weight, 0)
    tl.store(losses + row, most + tl.log(total) - positive)
    gradient = (weight / total - tl.where(column == row, 1.0, 0.0)) * (sharpness / size)
    tl.store(cosines + row * size + column, gradient, mask=inside)


def unit_vectors_backward(d_units: Tensor, units: Tensor, norms: Tensor, factor: Tensor) -> Tensor:
    """Gradient of the vectors of :func:`unit_vectors`, ``(2, B, d)``, times the number ``factor``."""
    _, num_rows, width = units.shape
    gradient = torch.empty_like(units)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _unit_vectors_backward[(2 * num_rows,)](d_units, units, norms, factor, gradient, width, COLUMNS=columns)
    return gradient


@triton.jit
def _unit_vectors_backward(d_units, units, norms, factor, gradient, width, COLUMNS: tl.constexpr):
    """One program per row of each view. It removes the part along the vector, which does not change its direction."""
    row = tl.program_id(0).to(tl.int64)
    products = tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        unit = tl.load(units + row * width + column, mask=column < width, other=0.0)
        products += unit * tl.load(d_units + row * width + column, mask=column < width, other=0.0)
    along = tl.sum(products, 0)
    scale = tl.load(factor) / tl.load(norms + row)
    for begin in range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        unit = tl.load(units + row * width + column, mask=column < width, other=0.0)
        value = tl.load(d_units + row * width + column, mask=column < width, other=0.0)
        tl.store(gradient + row * width + column, (value - along * unit) * scale, mask=column < width)
