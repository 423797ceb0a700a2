from __future__ import annotations

import math
from collections.abc import Collection
from typing import final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.policies.base import Policy, Prior, check_losses, check_prior


def tilt(prior: Tensor, pair_losses: Tensor, *, gamma: float) -> Tensor:
    r"""The law that the losses make of the prior (Eq. 2 with another distance).

    It maximises, over all laws :math:`p`,

    .. math:: \sum_{ij} p_{ij} \ell_{ij} - \gamma \sum_{ij} p_{ij} \log \frac{p_{ij}}{u_{ij}}

    that is, :math:`\gamma` times the Kullback-Leibler distance from the prior :math:`u` stands where the paper has a
    squared one. The maximiser is :math:`p_{ij} \propto u_{ij} \exp(\ell_{ij} / \gamma)`. All tables are ``(K, K)``.
    """
    return torch.softmax((prior.log() + pair_losses / gamma).flatten(), dim=0).view_as(prior)


@final
class KullbackLeibler(Policy):
    r"""JOAO with the Kullback-Leibler distance: a prior, tilted towards the pairs that are hardest now.

    A pair whose loss is larger than another's by :math:`\gamma \log 2` gets twice the probability that the prior gives
    it beside the other. No pair is ever left out, unless by the prior. It has no memory of earlier losses.

    Args:
        gamma: how strongly the prior holds, in units of the loss; above 0.
        prior: ``(K, K)`` law that is tilted, or ``(K,)`` law of each view; uniform if None.

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
