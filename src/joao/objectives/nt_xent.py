from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.kernels.nt_xent import fused_nt_xent, is_fused
from joao.objectives.base import PairObjective, full_precision, unit_vectors


@final
@dataclass(frozen=True)
class NtXent(PairObjective):
    r"""The contrastive loss (Eq. 1): attract views of the same graph, repel views of different graphs.

    With :math:`S_{nm} = \cos(z_n, z'_m) / T` for a batch of B graphs,

    .. math:: \ell = \frac{1}{B} \sum_n \Big[ -S_{nn} + \log \sum_{m \neq n} \exp S_{nm} \Big] .

    The paper writes no temperature and keeps :math:`m = n` in the sum; its results were obtained with the form above
    (deviation 1). The cosine of a zero vector is 0.

    Args:
        temperature: :math:`T`.
        positive_in_denominator: whether :math:`m = n` stays in the sum, as in the textbook form.
        symmetric: whether to average the loss with the one for exchanged views.

    >>> loss, views = NtXent(temperature=1.0), torch.eye(2)
    >>> loss(views, views).item(), loss(views, views.flip(0)).item()  # own view: cosine 1, the other's: 0; and reversed
    (-1.0, 1.0)
    """

    title: ClassVar[str] = "NT-Xent"
    static: ClassVar[bool] = True

    temperature: float = 0.2
    positive_in_denominator: bool = False
    symmetric: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(f"NtXent: temperature must be positive, got {self.temperature}.")

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        if first.shape[-2] < 2:
            raise UserError("NtXent: a batch of one graph has no negatives. Use batches of at least two graphs.")
        first, second = full_precision(first), full_precision(second)
        if not self.symmetric and is_fused(first, second):
            return fused_nt_xent(first, second, self.temperature, self.positive_in_denominator)
        similarity = unit_vectors(first) @ unit_vectors(second).mT / self.temperature
        loss = self._one_way(similarity)
        return (loss + self._one_way(similarity.mT)) / 2 if self.symmetric else loss

    def _one_way(self, similarity: Tensor) -> Tensor:
        positive = similarity.diagonal(dim1=-2, dim2=-1)
        if not self.positive_in_denominator:
            itself = torch.eye(similarity.shape[-1], dtype=torch.bool, device=similarity.device)
            similarity = similarity.masked_fill(itself, -torch.inf)
        return (torch.logsumexp(similarity, dim=-1) - positive).mean(dim=-1)
