"""The running statistics of batch normalisation, where it was computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from joao.kernels.relu_norm import norm_alone

Moments = tuple[Tensor, Tensor]


def normalised(h: Tensor, keep: Tensor, norm: nn.BatchNorm1d, moments: list[Moments]) -> Tensor:
    """``h`` ``(V, N, d)`` as ``norm`` does it, each view by itself, over the rows that are kept; 0 in the others.

    By the statistics of each view, which are added to ``moments``; in evaluation mode by those remembered.
    """
    if norm.training:
        y, means, variances = norm_alone(h, keep, norm.weight, norm.bias, norm.eps)
        moments.append((means, variances))
        return y
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    slope = norm.weight * torch.rsqrt(variance + norm.eps)
    y = (h - mean.unsqueeze(-2)) * slope.unsqueeze(-2) + norm.bias.unsqueeze(-2)
    return y * keep.unsqueeze(-1)


def remember(norms: Sequence[nn.BatchNorm1d], keep: Tensor, moments: Sequence[Moments]) -> None:
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
