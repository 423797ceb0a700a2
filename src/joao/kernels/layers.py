"""Layers of encoders on padded views: sums over neighbours and graphs, masked batch normalisation, a GIN layer."""

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.core.padded import PaddedViews


def neighbour_sum(x: Tensor, views: PaddedViews, weight: Tensor | None = None) -> Tensor:
    r"""Compute :math:`x_v + \sum_{u \sim v} x_u` for every node, ``(V, N, d)``.

    With ``weight`` :math:`c` ``(V, N)``, which gets no gradient, :math:`c_v (c_v x_v + \sum_{u \sim v} c_u x_u)`. Nodes
    that are not kept must be 0 in ``x``; their rows of the result are undefined and must not be used.
    """
    if x.is_cuda:
        return cast(Tensor, _NeighbourSum.apply(x, views, weight))  # type: ignore[no-untyped-call]
    if weight is not None:
        factor = weight.unsqueeze(-1).to(x.dtype)
        return factor * plain_neighbour_sum(factor * x, views)
    return plain_neighbour_sum(x, views)


def plain_neighbour_sum(x: Tensor, views: PaddedViews) -> Tensor:
    """Plain form of :func:`neighbour_sum` without weights, one view at a time."""
    return torch.stack(
        [each.index_add(0, to, each[of]) for each, of, to in zip(x, views.source, views.target, strict=True)]
    )


def graph_sum(x: Tensor, views: PaddedViews) -> Tensor:
    """Sum ``x`` ``(V, N, d)`` over the nodes of each graph, ``(V, G, d)``; nodes that are not kept must be 0."""
    if x.is_cuda:
        return cast(Tensor, _GraphSum.apply(x, views))  # type: ignore[no-untyped-call]
    return plain_graph_sum(x, views)


def plain_graph_sum(x: Tensor, views: PaddedViews) -> Tensor:
    sums = x.new_zeros(len(x), views.first_node.shape[-1] - 1, x.shape[2])
    return sums.flatten(0, 1).index_add(0, _rows_of_sums(views), x.flatten(0, 1)).view_as(sums)


def _rows_of_sums(views: PaddedViews) -> Tensor:
    """The row of ``(V G, d)`` sums that each node of each view is added to, ``(V N,)``."""
    num_views, num_graphs = len(views.x), views.first_node.shape[-1] - 1
    before = num_graphs * torch.arange(num_views, device=views.x.device).unsqueeze(1)
    return (views.graph_of_node + before).flatten()


class _NeighbourSum(torch.autograd.Function):
    """Undirected graphs have a symmetric adjacency matrix, so the gradient of the sum is the same sum.

    The gradient must be 0 at nodes that are not kept. It is, because their rows of the result are not used.
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


def graph_max(x: Tensor, views: PaddedViews) -> Tensor:
    """Take the maximum of ``x`` ``(V, N, d)`` over the nodes of each graph, ``(V, G, d)``; 0 for graphs without nodes.

    No value may be negative, and nodes that are not kept must be 0. Equal values share the gradient.
    """
    if x.is_cuda:
        return cast(Tensor, _GraphMax.apply(x, views))  # type: ignore[no-untyped-call]
    lowest = x.new_zeros(len(x) * (views.first_node.shape[-1] - 1), x.shape[2])
    index = _rows_of_sums(views).unsqueeze(1).expand(-1, x.shape[2])
    return lowest.scatter_reduce(0, index, x.flatten(0, 1), "amax").view(len(x), -1, x.shape[2])


class _GraphMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, views: PaddedViews) -> Tensor:
        from joao.kernels import _triton

        x = x.contiguous()
        top, ties = _triton.graph_max(x, views.first_node)
        ctx.save_for_backward(x, top, ties)
        ctx.views = views
        return top

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, top, ties = ctx.saved_tensors
        rows = _rows_of_sums(ctx.views)
        top, share = (each.flatten(0, 1).index_select(0, rows).view_as(x) for each in (top, gradient / ties))
        return torch.where(x == top, share, 0), None


def message_sum(x: Tensor, views: PaddedViews, table: Tensor, kind: Tensor) -> Tensor:
    r"""Compute :math:`x_v + \sum_{u \to v} \max(x_u + t_{k(uv)}, 0)` for every node, ``(V, N, d)``.

    Args:
        x: ``(V, N, d)``.
        views: rows of nodes that are not kept are undefined in the result and must not be used.
        table: ``(K, d)`` :math:`t`, a vector for each kind of edge.
        kind: ``(V, E)`` :math:`k`, the same for both directions; -1 for edges that do not count. These must include all
            edges of nodes that are not kept.
    """
    if x.is_cuda:
        return cast(Tensor, _MessageSum.apply(x, views, table, kind))  # type: ignore[no-untyped-call]
    return plain_message_sum(x, views, table, kind)


def plain_message_sum(x: Tensor, views: PaddedViews, table: Tensor, kind: Tensor) -> Tensor:
    """Plain form of :func:`message_sum`, one view at a time."""
    summed = []
    for each, of, to, kinds in zip(x, views.source, views.target, kind, strict=True):
        messages = torch.relu(each[of] + table[kinds.clamp(min=0)]) * (kinds >= 0).unsqueeze(1)
        summed.append(each.index_add(0, to, messages.to(each.dtype)))
    return torch.stack(summed)


class _MessageSum(torch.autograd.Function):
    """Every edge has a reverse edge of the same kind, so node u finds the gradient of its messages at its own edges."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, views: PaddedViews, table: Tensor, kind: Tensor) -> Tensor:
        from joao.kernels import _triton

        x, table = x.contiguous(), table.contiguous()
        ctx.save_for_backward(x, table, kind)
        ctx.views = views
        device = x.device.type
        # Under autocast, a linear map follows, which takes low precision.
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        return _triton.message_sum(x, views, table, kind, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        from joao.kernels import _triton

        x, table, kind = ctx.saved_tensors
        d_x, d_messages = _triton.message_sum_backward(gradient.contiguous(), x, ctx.views, table, kind)
        is_kind = torch.arange(len(table), device=x.device).unsqueeze(1) == kind.flatten()
        d_table = is_kind.to(d_messages.dtype) @ d_messages.flatten(0, 1)
        return d_x, None, d_table.to(table.dtype), None


def relu_norm(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Apply bias, ReLU and batch normalisation, separately for each view and over the kept rows only.

    .. math:: h = \max(z + b, 0), \qquad y = a \, (h - \mu) / \sqrt{\sigma^2 + \epsilon} + c

    Args:
        z: ``(V, N, d)``.
        bias: ``(d,)`` :math:`b`, or ``(V, d)`` for a bias per view. The same holds for ``scale`` and ``shift``.
        keep: ``(V, N)``.
        scale, shift: ``(d,)`` :math:`a` and :math:`c`.
        eps: :math:`\epsilon`.

    Returns:
        :math:`y` ``(V, N, d)``, 0 in rows that are not kept, and the means and variances ``(V, d)``, without gradient.
    """
    if z.is_cuda:
        return _fused(z, bias, keep, scale, shift, eps, 0.0)
    return plain_batch_norm(torch.relu(z + bias.unsqueeze(-2)), keep, scale, shift, eps)


def batch_norm(h: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`relu_norm` without bias and ReLU: normalise ``h`` ``(V, N, d)``."""
    if h.is_cuda:
        return _fused(h, torch.zeros_like(shift, requires_grad=False), keep, scale, shift, eps, -math.inf)
    return plain_batch_norm(h, keep, scale, shift, eps)


def plain_batch_norm(
    h: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Plain form of :func:`batch_norm`. Rows of ``h`` that are not kept have no effect."""
    mask = keep.unsqueeze(-1)
    h = h.to(scale.dtype)
    count = mask.sum(1, keepdim=True)
    means = (h * mask).sum(1, keepdim=True) / count
    centred = (h - means) * mask
    variances = centred.square().sum(1, keepdim=True) / count
    y = (centred * torch.rsqrt(variances + eps) * scale.unsqueeze(-2) + shift.unsqueeze(-2)) * mask
    return y, means.squeeze(1).detach(), variances.squeeze(1).detach()


def _fused(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float
) -> tuple[Tensor, Tensor, Tensor]:
    results: tuple[Tensor, Tensor, Tensor] = _ReluNorm.apply(z, bias, keep, scale, shift, eps, floor)  # type: ignore[no-untyped-call]
    return results


class _ReluNorm(torch.autograd.Function):
    """Computes max(z + bias, floor) and normalises it: ``floor`` is 0 for ReLU and minus infinity for none."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from joao.kernels import _triton

        z, keep = z.contiguous(), keep.contiguous()
        y, means, variances, counts = _triton.normalise(z, bias, keep, scale, shift, eps, floor)
        ctx.save_for_backward(z, bias, keep, scale, means, variances, counts)
        ctx.eps, ctx.floor = eps, floor
        ctx.mark_non_differentiable(means, variances)
        return y, means, variances

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        from joao.kernels import _triton

        z, bias, keep, scale, means, variances, counts = ctx.saved_tensors
        # The kernel also adds gradients of sums over graphs; here there are none: one graph with gradient 0.
        no_gradient = z.new_zeros(len(z), 1, z.shape[2])
        one_graph = keep.new_zeros(z.shape[1], dtype=torch.long)
        dz, d_scale, d_shift, d_bias = _triton.normalise_backward(
            dy, no_gradient, one_graph, z, bias, keep, scale, means, variances, counts, ctx.eps, ctx.floor
        )
        return dz, d_bias, None, d_scale, d_shift, None, None


class GinWeights(NamedTuple):
    """Weights of a layer that maps ``(N, a)`` to ``(N, d)``.

    Attributes:
        weight_1, bias_1: ``(c, a)`` and ``(c,)`` of the first linear map.
        weight_2, bias_2: ``(d, c)`` and ``(d,)`` of the second linear map.
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
    """Output of a layer.

    Attributes:
        x: ``(V, N, d)`` node vectors.
        pooled: ``(V, G, d)`` their sums over each graph.
        means, variances: ``(V, d)`` of the nodes of each view before normalisation, without gradient.
    """

    x: Tensor
    pooled: Tensor
    means: Tensor
    variances: Tensor


def gin_layer(x: Tensor, views: PaddedViews, weights: GinWeights) -> GinOutput:
    r"""Apply one layer of :class:`joao.encoders.Gin` to padded views.

    .. math::
        s_v = x_v + \sum_{u \sim v} x_u, \qquad h_v = \max(W_2 \max(W_1 s_v + b_1, 0) + b_2, 0), \qquad
        y_v = a \, (h_v - \mu) / \sqrt{\sigma^2 + \epsilon} + b

    The mean :math:`\mu` and variance :math:`\sigma^2` are those of the kept nodes of each view. Nodes that are not kept
    must be 0 in ``x`` ``(V, N, a)``; they are 0 in the output and get no gradient.
    """
    if x.is_cuda:
        return GinOutput(*_GinLayer.apply(x, views, *weights))  # type: ignore[no-untyped-call]
    return plain_gin_layer(x, views, weights)


def plain_gin_layer(x: Tensor, views: PaddedViews, weights: GinWeights) -> GinOutput:
    summed = plain_neighbour_sum(x, views)
    hidden = torch.relu(F.linear(summed, weights.weight_1, weights.bias_1))
    z = F.linear(hidden, weights.weight_2, weights.bias_2)
    y, means, variances = plain_batch_norm(torch.relu(z), views.keep, weights.scale, weights.shift, weights.eps)
    y = y.to(z.dtype)
    return GinOutput(y, plain_graph_sum(y, views), means, variances)


class _GinLayer(torch.autograd.Function):
    """Forward and backward pass with fused kernels.

    The gradient of a sum over neighbours is the same sum, because the graphs are undirected.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, views: PaddedViews, *weights: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from joao.kernels import _triton

        weight_1, bias_1, weight_2, bias_2, scale, shift, eps = weights
        device = x.device.type
        # Under autocast, matrix products and stored activations are in low precision, as torch.nn would have it.
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        with torch.autocast(device, enabled=False):
            weight_1, weight_2 = weight_1.to(dtype), weight_2.to(dtype)
            summed = _triton.neighbour_sum(x, views, dtype)
            hidden = _triton.add_and_relu(summed.flatten(0, 1) @ weight_1.T, bias_1)
            z = (hidden @ weight_2.T).view(*x.shape[:2], -1)
            y, means, variances, counts = _triton.normalise(z, bias_2, views.keep, scale, shift, eps)
            pooled = _triton.graph_sum(y, views.first_node)
        ctx.save_for_backward(summed, hidden, z, means, variances, counts, weight_1, weight_2, bias_2, scale)
        ctx.views, ctx.eps = views, eps
        ctx.mark_non_differentiable(means, variances)
        ctx.set_materialize_grads(False)  # the last layer's nodes are not used: dy is None, not zeros
        return y, pooled, means, variances

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, d_pooled: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        from joao.kernels import _triton

        summed, hidden, z, means, variances, counts, weight_1, weight_2, bias_2, scale = ctx.saved_tensors
        views: PaddedViews = ctx.views
        dz, d_scale, d_shift, d_bias_2 = _triton.normalise_backward(
            dy,
            d_pooled.contiguous(),
            views.graph_of_node,
            z,
            bias_2,
            views.keep,
            scale,
            means,
            variances,
            counts,
            ctx.eps,
        )
        dz = dz.flatten(0, 1)
        d_hidden, d_bias_1 = _triton.relu_backward(dz @ weight_2, hidden)
        dx = None
        if ctx.needs_input_grad[0]:
            d_summed = (d_hidden @ weight_1).view_as(summed)
            dx = _triton.neighbour_sum(d_summed, views, summed.dtype)
        d_weight_1 = d_hidden.T @ summed.flatten(0, 1)
        return dx, None, d_weight_1, d_bias_1, dz.T @ hidden, d_bias_2, d_scale, d_shift, None
