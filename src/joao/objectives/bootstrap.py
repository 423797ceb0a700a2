import math
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from joao.core.errors import UserError
from joao.objectives.base import MomentumObjective, full_precision, unit_vectors


@final
@dataclass(frozen=True)
class Bootstrap(MomentumObjective):
    r"""Each view predicts the other, without negatives: BYOL (Grill et al., 2020) and BGRL (Thakoor et al., 2022).

    With predictions :math:`q` of the network and projections :math:`t` by its moving copy, primed for the second view,
    over a batch of B graphs

    .. math:: \ell = \frac{1}{B} \sum_n \Big[ 2 - \cos(q_n, t'_n) - \cos(q'_n, t_n) \Big] ,

    half the published sum over both directions. The cosine of a zero vector is 0. The predictor is a linear layer,
    batch normalisation, ReLU and a linear layer, all as wide as the projections.

    Args:
        momentum: :math:`m`, the momentum of the copy in the first step.
        rising: whether the momentum rises to 1 during training as :math:`1 - (1 - m) (1 + \cos \pi p) / 2`, with p the
            share of steps done, or stays constant.

    >>> import torch
    >>> loss, view = Bootstrap(momentum=0.9), torch.tensor([[1.0, 0.0, 1.0, 0.0]])  # both are (1, 0)
    >>> loss(view, view).item(), loss(view, -view).item()
    (0.0, 4.0)
    >>> [round(loss.momentum_at(progress), 3) for progress in (0.0, 0.5)]
    [0.9, 0.95]
    """

    title: ClassVar[str] = "bootstrap"
    momentum: float = 0.99
    rising: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.momentum <= 1:
            raise UserError(f"Bootstrap: momentum must be in [0, 1], got {self.momentum}.")

    def predictor(self, num_dimensions: int) -> nn.Module:
        layers = nn.Linear(num_dimensions, num_dimensions, bias=False), nn.Linear(num_dimensions, num_dimensions)
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layers[1].bias)
        return nn.Sequential(layers[0], nn.BatchNorm1d(num_dimensions), nn.ReLU(), layers[1])

    def momentum_at(self, progress: float) -> float:
        remaining = (1 + math.cos(math.pi * progress)) / 2 if self.rising else 1
        return 1 - (1 - self.momentum) * remaining

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        if first.shape[-1] % 2:
            raise UserError(f"Bootstrap: views must have an even number of columns, got {first.shape[-1]}.")
        predicted, target = (unit_vectors(half) for half in full_precision(first).chunk(2, dim=-1))
        other_predicted, other_target = (unit_vectors(half) for half in full_precision(second).chunk(2, dim=-1))
        agreement = (predicted * other_target).sum(-1) + (other_predicted * target).sum(-1)
        return 2 - agreement.mean(-1)
