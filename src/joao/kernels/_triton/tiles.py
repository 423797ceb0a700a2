"""Helpers of several kernels: tiles of rows and columns, and sums over rows in two stages.

A sum over many rows is split into parts of whole tiles. Each program sums one part, and a second kernel adds up the
parts in a fixed order, so the result does not depend on which program finishes first.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 32  # rows of a tile
MAX_PARTS = 128  # parts of a sum over rows


def tile_width(width: int) -> int:
    columns: int = min(64, triton.next_power_of_2(width))
    return columns


def split_rows(num_rows: int, rows: int) -> tuple[int, int]:
    """Split ``num_rows`` into parts that are whole tiles of ``rows``: the number of parts and the rows of one part."""
    parts = min(MAX_PARTS, triton.cdiv(num_rows, rows))
    return parts, triton.cdiv(triton.cdiv(num_rows, parts), rows) * rows


def view_stride(values: Tensor) -> int:
    """Distance from the values of one view to those of the next; 0 if all views share them."""
    return values.shape[-1] if values.dim() == 2 else 0


def sum_parts(parts: Tensor) -> tuple[Tensor, Tensor]:
    """Add up ``(K, V, parts, d)`` over parts, ``(K, V, d)``, and also over views, ``(K, d)``."""
    num_kinds, num_views, num_parts, width = parts.shape
    by_view = torch.empty(num_kinds, num_views, width, device=parts.device)
    total = torch.empty(num_kinds, width, device=parts.device)
    columns = min(32, triton.next_power_of_2(width))
    shape = {"COLUMNS": columns, "PARTS": triton.next_power_of_2(num_parts)}
    grid = num_kinds, triton.cdiv(width, columns)
    _sum_parts[grid](parts, by_view, total, num_views, num_parts, width, **shape)
    return by_view, total


@triton.jit
def _sum_parts(parts, by_view, total, num_views, num_parts, width, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """One program per kind of sum and block of columns."""
    kind = tl.program_id(0).to(tl.int64)
    column, inside = tile_columns(tl.program_id(1), width, COLUMNS)
    part = tl.arange(0, PARTS)
    valid = (part < num_parts)[:, None] & inside[None, :]
    all_views = tl.zeros((COLUMNS,), tl.float32)
    for view in range(num_views):
        at = ((kind * num_views + view) * num_parts + part[:, None]) * width + column[None, :]
        one_view = tl.sum(tl.load(parts + at, mask=valid, other=0.0), 0)
        tl.store(by_view + (kind * num_views + view) * width + column, one_view, mask=inside)
        all_views += one_view
    tl.store(total + kind * width + column, all_views, mask=inside)


@triton.jit
def tile_columns(block, width, COLUMNS: tl.constexpr):
    """The columns of a block, and which of them exist."""
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    return column, column < width


@triton.jit
def part_rows(part, rows_of_part, num_rows):
    """The first row of a part and the end of its rows."""
    begin = part * rows_of_part
    return begin, tl.minimum(begin + rows_of_part, num_rows)


@triton.jit
def add_bias_and_clamp(z, mask, bias, floor):
    """A tile of max(z + bias, floor)."""
    value = tl.load(z, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
    return tl.maximum(value, floor, propagate_nan=tl.PropagateNan.ALL)  # NaN propagates as in torch
