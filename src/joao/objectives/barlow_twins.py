from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.objectives.base import PairObjective, full_precision, infinite_to_nan

_EPSILON = 1e-5  # as in batch normalisation; constant columns become 0


@final
@dataclass(frozen=True)
class BarlowTwins(PairObjective):
    r"""Make the columns of both views equal and different columns uncorrelated (Zbontar et al., 2021).

    With :math:`C` ``(d, d)``, the correlations over a batch of the columns of one view with those of the other,

    .. math:: \ell = \frac{1}{d} \Big[ \sum_i (1 - C_{ii})^2 + \lambda \sum_{i \neq j} C_{ij}^2 \Big] .

    The published loss is the bracket. Dividing by d keeps its minima, and makes it comparable across widths for a
    policy.

    Args:
        redundancy: :math:`\lambda`; the default was published for 8192 columns.

    >>> loss, view = BarlowTwins(), torch.tensor([[1.0], [2.0], [3.0]])
    >>> round(loss(view, 5 * view).item(), 2), round(loss(view, -view).item(), 2)  # correlations 1 and -1
    (0.0, 4.0)
    """

    title: ClassVar[str] = "Barlow Twins"
    static: ClassVar[bool] = True

    redundancy: float = 0.0051

    def __post_init__(self) -> None:
        if not self.redundancy >= 0:
            raise UserError(f"BarlowTwins: redundancy must be at least 0, got {self.redundancy}.")

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        size, width = first.shape[-2:]
        if size < 2:
            raise UserError("BarlowTwins: a batch of one graph has no correlations. Use batches of two or more graphs.")
        correlation = _standardise(full_precision(first)).mT @ _standardise(full_precision(second)) / size
        identity = torch.eye(width, dtype=correlation.dtype, device=correlation.device)
        weights = identity + self.redundancy * (1 - identity)
        return (weights * (correlation - identity).square()).sum(dim=(-2, -1)) / width


def _standardise(z: Tensor) -> Tensor:
    """Scale columns to mean 0 and variance 1 over the batch."""
    variance, mean = torch.var_mean(z, dim=-2, correction=0, keepdim=True)
    standardised: Tensor = (z - mean) * torch.rsqrt(infinite_to_nan(variance) + _EPSILON)
    return standardised
