from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.errors import UserError
from joao.training.distributed.group import all_gather_tensors, all_reduce_


@final
class SyncedBatchNorm1d(nn.BatchNorm1d):
    r"""Batch normalisation by the mean and variance of the rows of all processes.

    Process r has :math:`n_r` rows, none perhaps, with mean :math:`m_r` and variance :math:`v_r`. With
    :math:`n = \sum_r n_r`,

    .. math::
        m = \frac{1}{n} \sum_r n_r m_r, \qquad v = \frac{1}{n} \sum_r n_r \big( v_r + (m_r - m)^2 \big), \qquad
        y = w \, \hat x + b \quad \text{with} \quad \hat x = (x - m) / \sqrt{v + \epsilon} ,

    and with the mean :math:`\langle \cdot \rangle` over all n rows the gradient is
    :math:`dx = w (v + \epsilon)^{-1/2} \big( dy - \langle dy \rangle - \hat x \langle dy \, \hat x \rangle \big)`.

    torch's own, ``SyncBatchNorm``, is for GPUs alone. Weights and statistics have the names they have in
    ``BatchNorm1d``. In evaluation mode it is ``BatchNorm1d``.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        y, mean, variance, count = _Normalised.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        self._remember(mean, variance * (count / (count - 1).clamp(min=1)))
        made: Tensor = y
        return made

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
        mean, variance, count = _shared_moments(x)
        # Statistics are as precise as the weights, which under autocast is more than x.
        precise = torch.promote_types(x.dtype, torch.float32)
        m, v = mean.to(precise), variance.to(precise)
        y = F.batch_norm(x, m, v, weight, bias, training=False, eps=eps)
        ctx.save_for_backward(x, weight, m, torch.rsqrt(v + eps), count)
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        standard = (x - mean) * scale
        own = torch.stack([gradient.sum(0, dtype=scale.dtype), (gradient * standard).sum(0)])
        means = own.clone()
        all_reduce_(means)
        means /= count.to(means)
        slope = scale if weight is None else scale * weight
        of_x = (gradient - means[0] - standard * means[1]) * slope
        return of_x.to(x.dtype), None if weight is None else own[1], None if weight is None else own[0], None


def _shared_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance ``(d,)`` of the rows ``(n_r, d)`` of all processes, and the number of rows ``()``; float64."""
    own = torch.zeros(3, x.shape[1], dtype=torch.float64, device=x.device)
    own[0] = len(x)
    if len(x):
        own[2], own[1] = torch.var_mean(x.float() if x.dtype.itemsize < 4 else x, dim=0, correction=0)
    found = torch.stack(all_gather_tensors(own, distributed.get_world_size()))
    counts, means, variances = found.unbind(1)
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    variance = (counts * (variances + (means - mean).square())).sum(0) / count
    return mean, variance, count[0]


@contextmanager
def synced_batch_norms(model: nn.Module) -> Iterator[None]:
    """Inside, every ``BatchNorm1d`` of ``model`` is a :class:`SyncedBatchNorm1d`; its tensors stay where they are."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        if type(norm) is not nn.BatchNorm1d:
            raise UserError(
                f"training: {type(norm).__name__} cannot be shared by processes. Use BatchNorm1d, or one process."
            )
    for norm in norms:
        norm.__class__ = SyncedBatchNorm1d
    try:
        yield
    finally:
        for norm in norms:
            norm.__class__ = nn.BatchNorm1d
