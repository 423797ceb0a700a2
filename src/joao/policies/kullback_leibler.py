import math
from collections.abc import Collection
from typing import final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.policies.base import Policy, Prior, check_losses, check_prior


def tilt(prior: Tensor, pair_losses: Tensor, *, gamma: float) -> Tensor:
    r"""Reweight the prior by the losses: Eq. 3 with another distance.

    The result maximises, over all distributions :math:`p`,

    .. math:: \sum_{ij} p_{ij} \ell_{ij} - \gamma \sum_{ij} p_{ij} \log \frac{p_{ij}}{u_{ij}}

    that is, :math:`\gamma` times the Kullback-Leibler divergence from the prior :math:`u` replaces the squared distance
    of the paper. The maximiser is :math:`p_{ij} \propto u_{ij} \exp(\ell_{ij} / \gamma)`. All tables are ``(K, K)``.
    """
    return torch.softmax((prior.log() + pair_losses / gamma).flatten(), dim=0).view_as(prior)


@final
class KullbackLeibler(Policy):
    r"""JOAO with the Kullback-Leibler divergence: a prior, reweighted towards the pairs that are hardest now.

    If the loss of a pair exceeds another one's by :math:`\gamma \log 2`, its probability relative to the prior doubles.
    Only pairs that the prior excludes have probability 0. Earlier losses have no influence.

    Args:
        gamma: strength of the prior, in units of the loss; above 0.
        prior: ``(K, K)`` distribution of pairs, or ``(K,)`` of each view; uniform if None.

    >>> policy = KullbackLeibler(["node_drop", "identity"], gamma=1.0)
    >>> policy.update([[math.log(2), 0.0], [0.0, 0.0]])
    >>> policy.probabilities.round(decimals=6).tolist()
    [[0.4, 0.2], [0.2, 0.2]]
    """

    learns = True

    def __init__(self, augmentations: Collection[str], gamma: float = 1.0, prior: Prior | None = None) -> None:
        super().__init__(augmentations)
        if not 0 < gamma < math.inf:
            raise UserError(f"kullback_leibler: gamma must be above 0, got {gamma}. Use min_max for gamma = 0.")
        self.gamma = gamma
        self.prior = check_prior(prior, len(self.augmentations))
        self.probabilities = self.prior

    def update(self, pair_losses: Tensor) -> None:
        losses = check_losses(pair_losses, len(self.augmentations))
        self.probabilities = tilt(self.prior, losses, gamma=self.gamma)
