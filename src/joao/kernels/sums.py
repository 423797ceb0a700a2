"""Sums over neighbours and over graphs, of padded views."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from joao.core.padded import PaddedViews


def neighbour_sum(x: Tensor, views: PaddedViews, weight: Tensor | None = None) -> Tensor:
    r""":math:`x_v + \sum_{u \sim v} x_u` for every node, ``(V, N, d)``; nodes that are not kept must be 0 in ``x``.

    With ``weight`` :math:`c` ``(V, N)``, which gets no gradient, :math:`c_v (c_v x_v + \sum_{u \sim v} c_u x_u)`.
    What becomes of a node that is not kept is anything, and must not be used.
    """
    if x.is_cuda:
        summed: Tensor = _NeighbourSum.apply(x, views, weight)  # type: ignore[no-untyped-call]
        return summed
    if weight is not None:
        factor = weight.unsqueeze(-1).to(x.dtype)
        return factor * plain_neighbour_sum(factor * x, views)
    return plain_neighbour_sum(x, views)


def plain_neighbour_sum(x: Tensor, views: PaddedViews) -> Tensor:
    """The same without weights, view by view."""
    return torch.stack(
        [each.index_add(0, to, each[of]) for each, of, to in zip(x, views.source, views.target, strict=True)]
    )


def graph_sum(x: Tensor, views: PaddedViews) -> Tensor:
    """``(V, G, d)`` the sum over each graph's nodes; nodes that are not kept must be 0 in ``x`` ``(V, N, d)``."""
    if x.is_cuda:
        summed: Tensor = _GraphSum.apply(x, views)  # type: ignore[no-untyped-call]
        return summed
    return plain_graph_sum(x, views)


def plain_graph_sum(x: Tensor, views: PaddedViews) -> Tensor:
    """The same, in one operation of torch."""
    sums = x.new_zeros(len(x), views.first_node.shape[-1] - 1, x.shape[2])
    return sums.flatten(0, 1).index_add(0, _rows_of_sums(views), x.flatten(0, 1)).view_as(sums)


def _rows_of_sums(views: PaddedViews) -> Tensor:
    """``(V N,)`` the graph of every node of every view, counted over all views."""
    num_views, num_graphs = len(views.x), views.first_node.shape[-1] - 1
    before = num_graphs * torch.arange(num_views, device=views.x.device).unsqueeze(1)
    return (views.graph_of_node + before).flatten()


class _NeighbourSum(torch.autograd.Function):
    """The gradient of a sum over neighbours is the same sum, as undirected graphs are symmetric.

    A gradient must be 0 where nodes are not kept; it is, if what becomes of them is not used.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, views: PaddedViews, weight: Tensor | None) -> Tensor:
        from joao.kernels import _triton

        ctx.views, ctx.weight = views, weight
        return _triton.neighbour_sum(x.contiguous(), views, x.dtype, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        from joao.kernels import _triton

        return _triton.neighbour_sum(gradient.contiguous(), ctx.views, gradient.dtype, ctx.weight), None, None


class _GraphSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, views: PaddedViews) -> Tensor:
        from joao.kernels import _triton

        ctx.views, ctx.shape = views, x.shape
        return _triton.graph_sum(x.contiguous(), views.first_node)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.flatten(0, 1).index_select(0, _rows_of_sums(ctx.views)).view(ctx.shape), None
