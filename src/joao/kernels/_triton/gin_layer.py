"""The ReLU between the two linear maps of a layer, with the first one's bias."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.kernels._triton.tiles import ROWS, add_and_cut, columns_of, columns_of_tile, cut, joined, rows_of


def add_and_relu(z: Tensor, bias: Tensor) -> Tensor:
    """``max(z + bias, 0)``, in the place of ``z`` ``(R, d)``."""
    num_rows, width = z.shape
    columns = columns_of_tile(width)
    grid = triton.cdiv(num_rows, ROWS), triton.cdiv(width, columns)
    _add_and_relu[grid](z, bias, num_rows, width, ROWS=ROWS, COLUMNS=columns)
    return z


@triton.jit
def _add_and_relu(z, bias, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, inside = columns_of(tl.program_id(1), width, COLUMNS)
    mask = (row < num_rows)[:, None] & inside[None, :]
    at = z + row[:, None] * width + column[None, :]
    value = add_and_cut(at, mask, tl.load(bias + column, mask=inside, other=0.0), 0.0)
    tl.store(at, value.to(z.dtype.element_ty), mask=mask)


def relu_backward(gradient: Tensor, activation: Tensor) -> tuple[Tensor, Tensor]:
    """Where ``activation`` ``(R, d)`` is 0 the gradient, changed in place, becomes 0; and its sum ``(d,)``."""
    num_rows, width = gradient.shape
    columns, (parts, rows_of_part) = columns_of_tile(width), cut(num_rows, ROWS)
    sums = torch.empty(1, 1, parts, width, device=gradient.device)
    grid = parts, triton.cdiv(width, columns)
    _relu_backward[grid](gradient, activation, sums, num_rows, rows_of_part, width, ROWS=ROWS, COLUMNS=columns)
    return gradient, joined(sums)[1][0]


@triton.jit
def _relu_backward(
    gradient, activation, sums, num_rows, rows_of_part, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A program is a part of the rows and some columns."""
    part = tl.program_id(0)
    column, inside = columns_of(tl.program_id(1), width, COLUMNS)
    begin, end = rows_of(part, rows_of_part, num_rows)
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
