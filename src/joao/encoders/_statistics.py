"""The running statistics of batch normalisation, where it was computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn


def remember(
    norms: Sequence[nn.BatchNorm1d], count: Tensor, means: Sequence[Tensor], variances: Sequence[Tensor]
) -> None:
    """Updates the running statistics of ``norms`` as they do it themselves, view by view.

    Args:
        norms: all with the same momentum; their statistics are ``(d,)``, or ``(V, d)``: a view's own.
        count: ``(V, 1)`` rows that were normalised.
        means, variances: ``(V, d)`` of each norm's rows, by which they were normalised.
    """
    of_means, of_variances, batches = (list(each) for each in zip(*(norm.buffers() for norm in norms), strict=True))
    correction = (count / (count - 1)).to(of_variances[0].dtype)
    unbiased = [each * correction for each in variances]
    momentum = cast(float, norms[0].momentum)
    if of_means[0].dim() == 2:
        torch._foreach_lerp_(of_means, list(means), momentum)
        torch._foreach_lerp_(of_variances, unbiased, momentum)
        torch._foreach_add_(batches, 1)
        return
    for view in range(len(count)):
        torch._foreach_lerp_(of_means, [each[view] for each in means], momentum)
        torch._foreach_lerp_(of_variances, [each[view] for each in unbiased], momentum)
    torch._foreach_add_(batches, len(count))
