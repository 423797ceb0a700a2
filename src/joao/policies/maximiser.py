from __future__ import annotations

import math
from collections.abc import Collection
from typing import final

from torch import Tensor

from joao.errors import UserError
from joao.policies._simplex import project_onto_simplex
from joao.policies.base import Policy, Prior, checked_losses, checked_prior


@final
class Maximiser(Policy):
    r"""The exact solution of JOAO's lower level at every update, instead of one step towards it.

    :math:`\psi` of :func:`joao.policies.min_max.ascend` is a concave quadratic; its maximiser over the simplex is

    .. math:: p = \mathrm{Proj}(u + \ell / \gamma)

    which is where :class:`MinMax` lands with a step of :math:`1 / \gamma`. It has no memory of earlier losses.

    Args:
        gamma: how strongly the prior holds; above 0.
        prior: ``(K, K)`` law that the table starts from and is drawn to, or ``(K,)`` law of each view; uniform if None.

    >>> policy = Maximiser(["node_drop", "identity"], gamma=2.0)
    >>> policy.update([[0.8, 0.0], [0.0, 0.0]])  # 1/4 each, and 0.8 / 2 more for one, less 0.1 to sum to 1
    >>> policy.probabilities.round(decimals=6).tolist()
    [[0.55, 0.15], [0.15, 0.15]]
    """

    learns = True

    def __init__(self, augmentations: Collection[str], gamma: float = 0.1, prior: Prior | None = None) -> None:
        super().__init__(augmentations)
        if not 0 < gamma < math.inf:
            raise UserError(f"maximiser: gamma must be above 0, got {gamma}. Use min_max for gamma = 0.")
        self.gamma = gamma
        self.prior = checked_prior(prior, len(self.augmentations))
        self.probabilities = self.prior

    def update(self, pair_losses: Tensor) -> None:
        losses = checked_losses(pair_losses, len(self.augmentations))
        self.probabilities = project_onto_simplex(self.prior + losses / self.gamma)
