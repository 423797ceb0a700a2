from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.objectives.base import PairObjective, full_precision, infinite_to_nan

_EPSILON = 1e-5  # of batch normalisation; a constant column becomes 0


@final
@dataclass(frozen=True)
class BarlowTwins(PairObjective):
    r"""Both views have the same columns, and no column says what another one says (Zbontar et al., 2021).

    With :math:`C`, ``(d, d)``, the correlations over a batch of the columns of one view with those of the other,

    .. math:: \ell = \frac{1}{d} \Big[ \sum_i (1 - C_{ii})^2 + \lambda \sum_{i \neq j} C_{ij}^2 \Big] .

    The published loss is the bracket. Its mean over columns has the same minima and means the same to a policy
    whatever the number of columns.

    Args:
        redundancy: :math:`\lambda`, as published for 8192 columns.

    >>> loss, view = BarlowTwins(), torch.tensor([[1.0], [2.0], [3.0]])
    >>> round(loss(view, 5 * view).item(), 2), round(loss(view, -view).item(), 2)  # correlations 1 and -1
    (0.0, 4.0)
    """

    title: ClassVar[str] = "Barlow Twins"
    static: ClassVar[bool] = True

    redundancy: float = 0.0051

    def __post_init__(self) -> None:
        if not self.redundancy >= 0:
            raise UserError(f"BarlowTwins: redundancy must be 0 or more, got {self.redundancy}.")

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        size, width = first.shape[-2:]
        if size < 2:
            raise UserError("BarlowTwins: one graph has no correlations. Use batches of two graphs or more.")
        correlation = _standardise(full_precision(first)).mT @ _standardise(full_precision(second)) / size
        identity = torch.eye(width, dtype=correlation.dtype, device=correlation.device)
        weights = identity + self.redundancy * (1 - identity)
        return (weights * (correlation - identity).square()).sum(dim=(-2, -1)) / width


def _standardise(z: Tensor) -> Tensor:
    """The columns over the batch, with mean 0 and variance 1."""
    variance, mean = torch.var_mean(z, dim=-2, correction=0, keepdim=True)
    standardised: Tensor = (z - mean) * torch.rsqrt(infinite_to_nan(variance) + _EPSILON)
    return standardised
