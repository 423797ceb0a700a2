from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from joao.core.errors import UserError
from joao.objectives.base import PairObjective, full_precision, unit_vectors


@final
@dataclass(frozen=True)
class JensenShannon(PairObjective):
    r"""Classify pairs of views as views of the same or of different graphs, as InfoGraph does.

    With :math:`S_{nm} = \cos(z_n, z'_m) / T` for a batch of B graphs and :math:`\mathrm{sp}(s) = \log (1 + e^s)`,

    .. math::
        \ell = \frac{1}{B} \sum_n \mathrm{sp}(-S_{nn}) + \frac{1}{B (B - 1)} \sum_{m \neq n} \mathrm{sp}(S_{nm}) ,

    which is :math:`2 \log 2` minus the Jensen-Shannon estimate of the mutual information of the views. InfoGraph uses
    inner products instead of :math:`S` (deviation 38). The cosine of a zero vector is 0.

    Args:
        temperature: :math:`T`.

    >>> loss, views = JensenShannon(temperature=0.1), torch.eye(2)
    >>> round(loss(views, views).item(), 2), round(loss(views, views.flip(0)).item(), 2)  # log 2, and 10 more
    (0.69, 10.69)
    """

    title: ClassVar[str] = "Jensen-Shannon"
    static: ClassVar[bool] = True

    temperature: float = 0.2

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(f"JensenShannon: temperature must be positive, got {self.temperature}.")

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        size = first.shape[-2]
        if size < 2:
            raise UserError("JensenShannon: a batch of one graph has no negatives. Use batches of at least two graphs.")
        similarity = unit_vectors(full_precision(first)) @ unit_vectors(full_precision(second)).mT / self.temperature
        positive = softplus(-similarity.diagonal(dim1=-2, dim2=-1)).mean(dim=-1)
        itself = torch.eye(size, dtype=torch.bool, device=similarity.device)
        negative = softplus(similarity).masked_fill(itself, 0).sum(dim=(-2, -1)) / (size * (size - 1))
        return positive + negative
