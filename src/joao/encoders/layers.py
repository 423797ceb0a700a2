"""Sums over neighbours: a product with the sparse adjacency matrix.

The running statistics of batch normalisation, where it was computed by hand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.kernels.layers import batch_norm

with warnings.catch_warnings():
    # torch says once per process that CSR tensors are in beta and go unchecked; here, nobody needs to hear it.
    warnings.filterwarnings("ignore", message="Sparse")
    torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), (1, 1))


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """For a CPU: each node with its neighbours, one list after the other, and where each node's begins."""

    nodes: Tensor
    first: Tensor


@dataclass(frozen=True, eq=False)
class Diffusion:
    """What :func:`diffusion` needs: the graphs' adjacency, ``(N, 1)`` scales of nodes, and weights of polynomials."""

    matrix: NeighbourLists | Tensor
    scale: Tensor
    weights: tuple[float, ...]


def add_neighbours(x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
    r""":math:`x_v + \sum_{u \sim v} x_u` for every node, ``(N, d)``: the sum in :class:`Gin`.

    ``matrix`` is the graphs' :func:`adjacency`, or their :func:`diffusion`, whose product takes the place of the sum.

    The adjacency matrix of undirected graphs is its own transpose, so the gradient is the same product again.
    Sparse products know no 16-bit numbers: under mixed precision the sum is in float32.
    """
    x = x.float() if x.dtype.itemsize < 4 else x
    summed: Tensor = _SymmetricProduct.apply(x, matrix)  # type: ignore[no-untyped-call]
    return summed


def adjacency(batch: GraphBatch, dtype: torch.dtype = torch.float32) -> NeighbourLists | Tensor:
    """Who is next to whom; on a GPU the ``(N, N)`` sparse matrix of ones, read off the edges without a copy of them."""
    if batch.device.type == "cpu":
        return _neighbour_lists(batch)
    return torch.sparse_csr_tensor(
        batch.first_edge,
        batch.source,
        torch.ones(batch.num_edges, dtype=dtype, device=batch.device),
        (batch.num_nodes, batch.num_nodes),
        check_invariants=False,
    )


def diffusion(batch: GraphBatch, alpha: float, dtype: torch.dtype, tolerance: float = 1e-3) -> Diffusion:
    r"""Personalised PageRank: every node against every other of its graph, the nearer the heavier.

    .. math::
        S = \alpha \big( I - a \hat A \big)^{-1} \quad \text{with} \quad a = 1 - \alpha, \quad
        \hat A_{vu} = (1 + \deg v)^{-1/2} (1 + \deg u)^{-1/2} \text{ for } u = v, \, u \sim v .

    :math:`S` has an entry for every pair of nodes and is never made. With the polynomials :math:`T_k` of Chebyshev,
    :math:`T_{k + 1}(t) = 2 t \, T_k(t) - T_{k - 1}(t)`,

    .. math::
        S = w_0 + w_1 T_1(\hat A) + w_2 T_2(\hat A) + \dots , \quad
        w_k = \frac{2 \alpha}{\sqrt{1 - a^2}} q^k , \quad w_0 = \frac{\alpha}{\sqrt{1 - a^2}} , \quad
        q = \frac{1 - \sqrt{1 - a^2}}{a} ,

    of which enough are taken for an error of at most ``tolerance`` in the largest eigenvalue, which is 1: 10 products
    with :math:`\hat A` for :math:`\alpha = 0.2`, where :math:`q = 1/2`.
    """
    root = math.sqrt(1 - (1 - alpha) ** 2)
    q = (1 - root) / (1 - alpha)
    last = math.ceil(math.log(tolerance * root * (1 - q) / (2 * alpha * q)) / math.log(q))
    scale = (1 + batch.first_edge.diff()).to(dtype).rsqrt().unsqueeze(1)
    weights = tuple((2 if k else 1) * alpha / root * q**k for k in range(max(last, 1) + 1))
    return Diffusion(adjacency(batch, dtype), scale, weights)


def sum_lists(x: Tensor, nodes: Tensor, first: Tensor) -> Tensor:
    """The sum over each list of ``nodes`` of their rows of ``x``: the quickest way that torch has on a CPU."""
    return torch.embedding_bag(x.contiguous(), nodes, first, mode=0, include_last_offset=True)[0]


def _neighbour_lists(batch: GraphBatch) -> NeighbourLists:
    numbers = np.arange(max(batch.num_edges, batch.num_nodes + 1))
    first = batch.first_edge.numpy() + numbers[: batch.num_nodes + 1]
    nodes = np.empty(batch.num_nodes + batch.num_edges, dtype=np.int32)
    nodes[numbers[: batch.num_edges] + batch.target.numpy()] = batch.source.numpy()
    nodes[first[1:] - 1] = numbers[: batch.num_nodes]
    return NeighbourLists(torch.from_numpy(nodes), torch.from_numpy(first.astype(np.int32)))


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
        ctx.matrix = matrix
        return _add_product(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _add_product(gradient, ctx.matrix), None


def _add_product(x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
    if isinstance(matrix, Diffusion):
        return _diffuse(x, matrix)
    if isinstance(matrix, NeighbourLists):
        return sum_lists(x, matrix.nodes, matrix.first)
    with torch.autocast(x.device.type, enabled=False):
        return torch.addmm(x, matrix, x)


def _diffuse(x: Tensor, diffusion: Diffusion) -> Tensor:
    first, second, *others = diffusion.weights
    before, now = x, _propagate(x, diffusion)
    total = first * before + second * now
    for weight in others:
        before, now = now, 2 * _propagate(now, diffusion) - before
        total += weight * now
    return total


def _propagate(x: Tensor, diffusion: Diffusion) -> Tensor:
    return diffusion.scale * _add_product(diffusion.scale * x, diffusion.matrix)


Moments = tuple[Tensor, Tensor]


def normalise_views(h: Tensor, keep: Tensor, norm: nn.BatchNorm1d, moments: list[Moments]) -> Tensor:
    """``h`` ``(V, N, d)`` as ``norm`` does it, each view by itself, over the rows that are kept; 0 in the others.

    By the statistics of each view, which are added to ``moments``; in evaluation mode by those remembered.
    """
    if norm.training:
        y, means, variances = batch_norm(h, keep, norm.weight, norm.bias, norm.eps)
        moments.append((means, variances))
        return y
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    slope = norm.weight * torch.rsqrt(variance + norm.eps)
    y = (h - mean.unsqueeze(-2)) * slope.unsqueeze(-2) + norm.bias.unsqueeze(-2)
    return y * keep.unsqueeze(-1)


def update_running_statistics(norms: Sequence[nn.BatchNorm1d], keep: Tensor, moments: Sequence[Moments]) -> None:
    """Updates the running statistics of ``norms`` as they do it themselves, view by view.

    Args:
        norms: all with the same momentum; their statistics are ``(d,)``, or ``(V, d)``: a view's own.
        keep: ``(V, N)`` the rows that all of them have normalised.
        moments: ``(V, d)`` means and variances of each norm's rows, by which they were normalised.
    """
    count = keep.sum(1, keepdim=True, dtype=torch.float64)
    means, variances = zip(*moments, strict=True)
    of_means, of_variances, batches = (list(each) for each in zip(*(norm.buffers() for norm in norms), strict=True))
    correction = (count / (count - 1)).to(of_variances[0].dtype)
    unbiased = [each * correction for each in variances]
    momentum = cast(float, norms[0].momentum)
    are_stacked = of_means[0].dim() == 2
    views = [slice(None)] if are_stacked else [*range(len(count))]
    for view in views:
        torch._foreach_lerp_(of_means, [each[view] for each in means], momentum)
        torch._foreach_lerp_(of_variances, [each[view] for each in unbiased], momentum)
    torch._foreach_add_(batches, len(views))
