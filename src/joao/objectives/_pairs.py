"""What objectives share that compare vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus


def full_precision(vectors: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others as they are."""
    return vectors.float() if vectors.dtype.itemsize < 4 else vectors


def without_infinity(values: Tensor) -> Tensor:
    """The same, but nan where a value is infinite: what is divided by it shall not pass for 0."""
    return torch.add(values, values, alpha=0)  # infinity times 0 is nan


def unit(vectors: Tensor) -> Tensor:
    """``(..., d)`` vectors of length 1 in the same directions; 0 where a vector is 0.

    Vectors of float32 longer than about 1e19, whose squares have no sum, become nan.
    """
    norm = without_infinity(vectors.norm(dim=-1, keepdim=True))
    made: Tensor = vectors / norm.masked_fill(norm == 0, 1)
    return made


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """``(P, d)`` and ``(P, d)`` to ``(P,)``."""
    return (first * second).sum(dim=1)


def sums(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """``(num_groups, d)`` sums of the ``vectors`` ``(n, d)`` of each of the ``groups`` ``(n,)``."""
    return vectors.new_zeros(num_groups, vectors.shape[1]).index_add(0, groups, vectors)


def means(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """``(num_groups, d)`` means of the ``vectors`` ``(n, d)`` of each of the ``groups`` ``(n,)``; 0 of an empty one.

    >>> means(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2).tolist()
    [[2.0], [0.0]]
    """
    total = sums(vectors, groups, num_groups)
    return total / torch.bincount(groups, minlength=num_groups).clamp(min=1)[:, None]


def binary_loss(positive: Tensor, negative: Tensor) -> Tensor:
    r"""The cross-entropy of scores ``(P,)`` of true pairs and ``(Q,)`` of made-up ones.

    .. math:: - \frac{1}{P} \sum_p \log \sigma(a_p) - \frac{1}{Q} \sum_q \log (1 - \sigma(b_q))

    The mean of no pairs is 0.

    >>> round(binary_loss(torch.zeros(1), torch.zeros(0)).item(), 4)  # log 2 of one true pair
    0.6931
    """
    return _mean(softplus(-positive)) + _mean(softplus(negative))


class FeedForward(nn.Module):
    r"""Three layers with their ReLUs, beside a shortcut: :math:`f(x) + V x + c`, as wide inside as at both ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU(inplace=True))]
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layers(x) + self.shortcut(x)
        return made


def every_graph_loss(nodes: Tensor, graphs: Tensor, graph_of_node: Tensor) -> Tensor:
    r"""Every node against every graph, its own and all others: ``(N, d)`` and ``(B, d)`` to ``()``.

    With :math:`g(v)` the graph of node v, the Jensen-Shannon estimate of mutual information, its constant left out:

    .. math::
        - \frac{1}{N} \sum_v \log \sigma(x_v^\top s_{g(v)})
        - \frac{1}{N (B - 1)} \sum_v \sum_{h \ne g(v)} \log \big( 1 - \sigma(x_v^\top s_h) \big)
    """
    scores, own = nodes @ graphs.T, graph_of_node.unsqueeze(1)
    others = softplus(scores).scatter(1, own, 0.0)
    return _mean(softplus(-scores.gather(1, own))) + others.sum() / (others.numel() - len(nodes))


def random_numbers(below: Tensor, generator: torch.Generator) -> Tensor:
    """A uniform whole number from 0 to ``below - 1``, for each entry."""
    uniform = torch.rand(below.numel(), dtype=torch.float64, device=below.device, generator=generator)
    return (uniform * below).long()


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)
