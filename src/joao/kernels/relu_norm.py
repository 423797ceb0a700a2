from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def relu_norm(
    z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""ReLU and batch normalisation, each view by itself, over the rows that are kept.

    .. math:: h = \max(z + b, 0), \qquad y = a \, (h - \mu) / \sqrt{\sigma^2 + \epsilon} + c

    Args:
        z: ``(V, N, d)``.
        bias: ``(d,)`` :math:`b`, or ``(V, d)``: one for each view; so, too, scale and shift.
        keep: ``(V, N)``.
        scale, shift: ``(d,)`` :math:`a` and :math:`c`.
        eps: :math:`\epsilon`.

    Returns:
        :math:`y` ``(V, N, d)``, 0 where a row is not kept, and without gradient the means and variances ``(V, d)``.
    """
    if z.is_cuda:
        return _fused(z, bias, keep, scale, shift, eps, 0.0)
    return masked_norm(torch.relu(z + bias.unsqueeze(-2)), keep, scale, shift, eps)


def norm_alone(h: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The same without bias and ReLU: the normalisation of ``h`` ``(V, N, d)``."""
    if h.is_cuda:
        return _fused(h, torch.zeros_like(shift, requires_grad=False), keep, scale, shift, eps, -math.inf)
    return masked_norm(h, keep, scale, shift, eps)


def masked_norm(h: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normalisation, operation by operation; what ``h`` has in rows that are not kept does not matter."""
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
    found: tuple[Tensor, Tensor, Tensor] = _ReluNorm.apply(z, bias, keep, scale, shift, eps, floor)  # type: ignore[no-untyped-call]
    return found


class _ReluNorm(torch.autograd.Function):
    """The maximum with ``floor`` is the ReLU, or minus infinity for none."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, bias: Tensor, keep: Tensor, scale: Tensor, shift: Tensor, eps: float, floor: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from joao.kernels import _triton

        z, keep = z.contiguous(), keep.contiguous()
        y, means, variances = _triton.normalise(z, bias, keep, scale, shift, eps, floor)
        ctx.save_for_backward(z, bias, keep, scale, means, variances)
        ctx.eps, ctx.floor = eps, floor
        ctx.mark_non_differentiable(means, variances)
        return y, means, variances

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        from joao.kernels import _triton

        z, bias, keep, scale, means, variances = ctx.saved_tensors
        nothing = z.new_zeros(len(z), 1, z.shape[2])  # no gradient comes by way of sums over graphs
        one_graph = keep.new_zeros(z.shape[1], dtype=torch.long)
        dz, d_scale, d_shift, d_bias = _triton.normalise_backward(
            dy, nothing, one_graph, z, bias, keep, scale, means, variances, ctx.eps, ctx.floor
        )
        return dz, d_bias, None, d_scale, d_shift, None, None
