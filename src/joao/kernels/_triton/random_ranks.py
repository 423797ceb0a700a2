from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


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
