from __future__ import annotations

import torch
from torch import Tensor


def project_onto_simplex(b: Tensor) -> Tensor:
    r"""The nearest probability table to ``b``, of any shape.

    .. math:: \arg\min_p \sum_k (p_k - b_k)^2 \quad\text{with}\quad p_k \ge 0, \; \sum_k p_k = 1 .

    The solution is :math:`p_k = \max(b_k - \mu, 0)`; sorting ``b`` finds :math:`\mu` exactly: among the
    candidates :math:`\mu_r`, for which the r largest entries stay positive, it is the last one below its own
    r-th largest entry. Subtracting the largest entry first moves :math:`\mu` alone, and keeps large tables exact.
    """
    b = b - b.max()
    values = b.flatten().sort(descending=True).values
    count = torch.arange(1, values.numel() + 1, dtype=b.dtype, device=b.device)
    candidates = (values.cumsum(0) - 1) / count
    last = int((values > candidates).sum()) - 1
    return (b - candidates[last]).clamp(min=0)
