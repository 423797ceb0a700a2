from __future__ import annotations

from collections.abc import Collection
from typing import final

from torch import Tensor

from joao.errors import UserError
from joao.policies._simplex import project_onto_simplex
from joao.policies.base import Policy, Prior, checked_losses, checked_prior

MOST = 1e100  # beyond it, products of gamma, step and losses may overflow


def ascend(p: Tensor, pair_losses: Tensor, *, prior: Tensor, gamma: float, step: float) -> Tensor:
    r"""Moves probability towards the pairs that are hardest now (Eqs. 8 and 9).

    One step of projected gradient ascent on

    .. math:: \psi(p) = \sum_{ij} p_{ij} \ell_{ij} - \frac{\gamma}{2} \sum_{ij} (p_{ij} - u_{ij})^2

    with the prior :math:`u` (uniform in the paper), whose gradient is :math:`\ell - \gamma (p - u)`. All tables are
    ``(K, K)``. The paper's equation for the projection lacks a positive part (deviation 2).
    """
    gradient = pair_losses - gamma * (p - prior)
    return project_onto_simplex(p + step * gradient)


@final
class MinMax(Policy):
    """JOAO: one projected step towards the worst pairs at every update, held back by a prior.

    Args:
        gamma: how strongly the prior holds; 0 is the paper's ablation without prior, and ends on few pairs.
        step: length of the step.
        prior: ``(K, K)`` law that the table starts from and is drawn to, or ``(K,)`` law of each view; uniform if None.

    >>> policy = MinMax(["node_drop", "identity"])
    >>> policy.update([[0.4, 0.0], [0.0, 0.0]])  # each had 1/4: a step to 0.65 and three 0.25, less 0.1 to sum to 1
    >>> policy.probabilities.round(decimals=6).tolist()
    [[0.55, 0.15], [0.15, 0.15]]
    """

    learns = True

    def __init__(
        self,
        augmentations: Collection[str],
        gamma: float = 0.1,
        step: float = 1.0,
        prior: Prior | None = None,
    ) -> None:
        super().__init__(augmentations)
        if not (0 <= gamma < MOST and 0 < step < MOST):
            raise UserError(
                f"min_max: gamma must be 0 or more and step above 0, both below {MOST:g}, got {gamma} and {step}."
            )
        self.gamma, self.step = gamma, step
        self.prior = checked_prior(prior, len(self.augmentations))
        self.probabilities = self.prior

    def update(self, pair_losses: Tensor) -> None:
        losses = checked_losses(pair_losses, len(self.augmentations))
        self.probabilities = ascend(self.probabilities, losses, prior=self.prior, gamma=self.gamma, step=self.step)
