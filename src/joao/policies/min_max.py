import math
from collections.abc import Collection
from typing import final

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.policies.base import Policy, Prior, check_losses, check_prior


def project_onto_simplex(b: Tensor) -> Tensor:
    r"""Project ``b``, of any shape, onto the probability simplex.

    .. math:: \arg\min_p \sum_k (p_k - b_k)^2 \quad\text{with}\quad p_k \ge 0, \; \sum_k p_k = 1 .

    The solution is :math:`p_k = \max(b_k - \mu, 0)`. Sorting ``b`` finds :math:`\mu` exactly: of the candidates
    :math:`\mu_r`, for which the r largest entries stay positive, it is the last one below its own r-th largest entry.
    Subtracting the largest entry first changes only :math:`\mu` and keeps large entries exact.
    """
    b = b - b.max()
    values = b.flatten().sort(descending=True).values
    count = torch.arange(1, values.numel() + 1, dtype=b.dtype, device=b.device)
    candidates = (values.cumsum(0) - 1) / count
    last = int((values > candidates).sum()) - 1
    return (b - candidates[last]).clamp(min=0)


MAX_SETTING = 1e100  # larger products of gamma, step and losses may overflow


def ascend(p: Tensor, pair_losses: Tensor, *, prior: Tensor, gamma: float, step: float) -> Tensor:
    r"""Move probability towards the pairs that are hardest now (Eqs. 8 and 9).

    One step of projected gradient ascent on

    .. math:: \psi(p) = \sum_{ij} p_{ij} \ell_{ij} - \frac{\gamma}{2} \sum_{ij} (p_{ij} - u_{ij})^2

    with the prior :math:`u` (uniform in the paper). The gradient is :math:`\ell - \gamma (p - u)`. All tables are
    ``(K, K)``. The paper's equation for the projection lacks a positive part (deviation 2).

    Steps of :math:`2 / \gamma` or longer overshoot at least as far on the other side every time and never settle. They
    are replaced by the exact maximiser of :math:`\psi`, the solution of the lower level of Eq. 3.
    """
    if gamma * step >= 2:
        return maximise(pair_losses, prior=prior, gamma=gamma)
    gradient = pair_losses - gamma * (p - prior)
    return project_onto_simplex(p + step * gradient)


def maximise(pair_losses: Tensor, *, prior: Tensor, gamma: float) -> Tensor:
    r"""Maximise :math:`\psi` of :func:`ascend` exactly.

    It is a concave quadratic. Its maximiser over the simplex is :math:`p = \mathrm{Proj}(u + \ell / \gamma)`.
    """
    return project_onto_simplex(prior + pair_losses / gamma)


@final
class MinMax(Policy):
    """JOAO: every update is one projected step towards the hardest pairs, held back by a prior.

    Args:
        gamma: strength of the prior; 0 is the paper's ablation without prior, which collapses onto few pairs.
        step: step size; from ``2 / gamma`` on, updates are those of :class:`Maximiser`.
        prior: ``(K, K)`` distribution of pairs to start from and to stay close to, or ``(K,)`` of each view; uniform if
            None.

    >>> policy = MinMax(["node_drop", "identity"])
    >>> policy.update([[0.4, 0.0], [0.0, 0.0]])  # each had 1/4: a step to 0.65 and three 0.25, less 0.1 to sum to 1
    >>> policy.probabilities.round(decimals=6).tolist()
    [[0.55, 0.15], [0.15, 0.15]]
    """

    learns = True

    def __init__(
        self, augmentations: Collection[str], gamma: float = 0.1, step: float = 1.0, prior: Prior | None = None
    ) -> None:
        super().__init__(augmentations)
        if not (0 <= gamma < MAX_SETTING and 0 < step < MAX_SETTING):
            raise UserError(
                f"min_max: gamma must be 0 or more and step above 0, both below {MAX_SETTING:g}, "
                f"got {gamma} and {step}."
            )
        self.gamma, self.step = gamma, step
        self.prior = check_prior(prior, len(self.augmentations))
        self.probabilities = self.prior

    def update(self, pair_losses: Tensor) -> None:
        losses = check_losses(pair_losses, len(self.augmentations))
        self.probabilities = ascend(self.probabilities, losses, prior=self.prior, gamma=self.gamma, step=self.step)


@final
class Maximiser(Policy):
    r"""The exact solution of JOAO's lower level at every update, instead of one step towards it.

    :class:`MinMax` reaches it with a step of :math:`1 / \gamma`. Earlier losses have no influence.

    Args:
        gamma: strength of the prior; above 0.
        prior: as in :class:`MinMax`.

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
        self.prior = check_prior(prior, len(self.augmentations))
        self.probabilities = self.prior

    def update(self, pair_losses: Tensor) -> None:
        losses = check_losses(pair_losses, len(self.augmentations))
        self.probabilities = maximise(losses, prior=self.prior, gamma=self.gamma)
