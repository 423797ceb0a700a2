"""Randomness as a value: one seed, split into named generators."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that adding one purpose changes no other.

    >>> derived_seed(0, "views") == derived_seed(0, "views") != derived_seed(0, "batches")
    True
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def torch_generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for one purpose ("weights", "batches", "views", "policy")."""
    return torch.Generator(device).manual_seed(derived_seed(seed, purpose))


def numpy_generator(seed: int, purpose: str) -> np.random.Generator:
    """A numpy generator for one purpose ("labels")."""
    return np.random.default_rng(derived_seed(seed, purpose))


def random_rank(group_of_item: Tensor, items_per_group: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers the items of each group 0, 1, 2, ... in a uniformly random order.

    Args:
        group_of_item: ``(N,)`` ascending group numbers.
        items_per_group: ``(G,)`` sizes of the groups, which sum to N.
        generator: on the device of ``group_of_item``.

    Returns:
        ``(N,)`` ranks. Items ranked below k are a uniform choice of k items without replacement.
    """
    # float64: in float32 the fractional part would shrink to a few bits behind a large group number.
    uniform = torch.rand(
        group_of_item.numel(), dtype=torch.float64, device=group_of_item.device, generator=generator
    )
    order = torch.argsort(group_of_item + uniform)
    first_of_group = torch.cumsum(items_per_group, 0) - items_per_group
    position = torch.arange(order.numel(), device=order.device)
    rank = torch.empty_like(order)
    rank[order] = position - first_of_group[group_of_item]
    return rank
