from __future__ import annotations

import torch
from torch import Tensor

from joao.core.graphs import take_rows

# Up to this many items a group's ranks are counted by comparing all pairs, which takes less time than sorting.
MOST_COMPARED = 2048


def ranks(values: Tensor, group_of_item: Tensor, first: Tensor, most: int) -> Tensor:
    """Numbers the items of each group 0, 1, 2, ... by ascending value, equal ones as they come.

    Args:
        values: ``(N,)``
        group_of_item: ``(N,)`` ascending. Items behind the last group's end have any rank from its size on.
        first: ``(G + 1,)`` where each group's items begin.
        most: no group has more items.
    """
    if values.is_cuda and most <= MOST_COMPARED:
        from joao.kernels import _triton

        return _triton.ranks(values, group_of_item, first)
    return sorted_ranks(values, group_of_item, first)


def sorted_ranks(values: Tensor, group_of_item: Tensor, first: Tensor) -> Tensor:
    """The same by sorting."""
    place = torch.arange(values.numel(), device=values.device)
    is_over = place >= first[-1]
    order = torch.argsort(values, stable=True)
    order = take_rows(order, torch.argsort(take_rows(group_of_item + is_over, order), stable=True))
    return torch.empty_like(place).index_copy_(0, order, place - take_rows(first, group_of_item))
