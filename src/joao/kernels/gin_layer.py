from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.core.padded import PaddedViews
from joao.kernels.relu_norm import masked_norm
from joao.kernels.sums import plain_graph_sum, plain_neighbour_sum


class GinWeights(NamedTuple):
    """Of a layer that takes ``(N, a)`` to ``(N, d)``.

    Attributes:
        weight_1, bias_1: ``(c, a)`` and ``(c,)`` of the first linear map.
        weight_2, bias_2: ``(d, c)`` and ``(d,)`` of the second.
        scale, shift: ``(d,)`` of the normalisation.
        eps: of the normalisation.
    """

    weight_1: Tensor
    bias_1: Tensor
    weight_2: Tensor
    bias_2: Tensor
    scale: Tensor
    shift: Tensor
    eps: float


class GinOutput(NamedTuple):
    """What a layer gives.

    Attributes:
        x: ``(V, N, d)`` the nodes.
        pooled: ``(V, G, d)`` the sum over each graph's nodes.
        means, variances: ``(V, d)`` of each view's nodes before normalisation; without gradient.
    """

    x: Tensor
    pooled: Tensor
    means: Tensor
    variances: Tensor


def gin_layer(x: Tensor, views: PaddedViews, weights: GinWeights) -> GinOutput:
    r"""A layer of :class:`joao.encoders.Gin` on padded views.

    .. math::
        s_v = x_v + \sum_{u \sim v} x_u, \qquad h_v = \max(W_2 \max(W_1 s_v + b_1, 0) + b_2, 0), \qquad
        y_v = a \, (h_v - \mu) / \sqrt{\sigma^2 + \epsilon} + b

    with the mean :math:`\mu` and variance :math:`\sigma^2` over the kept nodes of each view by itself. Nodes that are
    not kept are 0, must be 0 in ``x`` ``(V, N, a)``, and get no gradient: sums are over kept nodes.
    """
    if x.is_cuda:
        return GinOutput(*_GinLayer.apply(x, views, *weights))  # type: ignore[no-untyped-call]
    return plain_gin_layer(x, views, weights)


def plain_gin_layer(x: Tensor, views: PaddedViews, weights: GinWeights) -> GinOutput:
    """The same, operation by operation."""
    summed = plain_neighbour_sum(x, views)
    hidden = torch.relu(F.linear(summed, weights.weight_1, weights.bias_1))
    z = F.linear(hidden, weights.weight_2, weights.bias_2)
    y, means, variances = masked_norm(torch.relu(z), views.keep, weights.scale, weights.shift, weights.eps)
    y = y.to(z.dtype)
    return GinOutput(y, plain_graph_sum(y, views), means, variances)


class _GinLayer(torch.autograd.Function):
    """By hand: the gradient of a sum over neighbours is the same sum, as undirected graphs are symmetric."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        views: PaddedViews,
        weight_1: Tensor,
        bias_1: Tensor,
        weight_2: Tensor,
        bias_2: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from joao.kernels import _triton

        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        with torch.autocast(device, enabled=False):
            weight_1, weight_2 = weight_1.to(dtype), weight_2.to(dtype)
            summed = _triton.neighbour_sum(x, views, dtype)
            hidden = _triton.add_and_relu(summed.flatten(0, 1) @ weight_1.T, bias_1)
            z = (hidden @ weight_2.T).view(*x.shape[:2], -1)
            y, means, variances = _triton.normalise(z, bias_2, views.keep, scale, shift, eps)
            pooled = _triton.graph_sum(y, views.first_node)
        ctx.save_for_backward(summed, hidden, z, means, variances, weight_1, weight_2, bias_2, scale)
        ctx.views, ctx.eps = views, eps
        ctx.mark_non_differentiable(means, variances)
        ctx.set_materialize_grads(False)
        return y, pooled, means, variances

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, d_pooled: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        from joao.kernels import _triton

        summed, hidden, z, means, variances, weight_1, weight_2, bias_2, scale = ctx.saved_tensors
        views: PaddedViews = ctx.views
        dz, d_scale, d_shift, d_bias_2 = _triton.normalise_backward(
            dy, d_pooled.contiguous(), views.graph_of_node, z, bias_2, views.keep, scale, means, variances, ctx.eps
        )
        dz = dz.flatten(0, 1)
        d_hidden, d_bias_1 = _triton.relu_backward(dz @ weight_2, hidden)
        dx = None
        if ctx.needs_input_grad[0]:
            d_summed = (d_hidden @ weight_1).view_as(summed)
            dx = _triton.neighbour_sum(d_summed, views, summed.dtype)
        d_weight_1 = d_hidden.T @ summed.flatten(0, 1)
        return dx, None, d_weight_1, d_bias_1, dz.T @ hidden, d_bias_2, d_scale, d_shift, None
