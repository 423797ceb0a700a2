"""What objectives share that tell true pairs of vectors from made-up ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def full_precision(vectors: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others as they are."""
    return vectors.float() if vectors.dtype.itemsize < 4 else vectors


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """``(P, d)`` and ``(P, d)`` to ``(P,)``."""
    return (first * second).sum(dim=1)


def means(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """``(num_groups, d)`` means of the ``vectors`` ``(n, d)`` of each of the ``groups`` ``(n,)``; 0 of an empty one.

    >>> means(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2).tolist()
    [[2.0], [0.0]]
    """
    total = vectors.new_zeros(num_groups, vectors.shape[1]).index_add(0, groups, vectors)
    return total / torch.bincount(groups, minlength=num_groups).clamp(min=1)[:, None]


def binary_loss(positive: Tensor, negative: Tensor) -> Tensor:
    r"""The cross-entropy of scores ``(P,)`` of true pairs and ``(Q,)`` of made-up ones.

    .. math:: - \frac{1}{P} \sum_p \log \sigma(a_p) - \frac{1}{Q} \sum_q \log (1 - \sigma(b_q))

    The mean of no pairs is 0.
    """
    return _mean(softplus(-positive)) + _mean(softplus(negative))


def random_numbers(below: Tensor, generator: torch.Generator) -> Tensor:
    """A uniform whole number from 0 to ``below - 1``, for each entry."""
    uniform = torch.rand(below.numel(), dtype=torch.float64, device=below.device, generator=generator)
    return (uniform * below).long()


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)
