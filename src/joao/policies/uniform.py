from __future__ import annotations

from collections.abc import Collection
from typing import final

from torch import Tensor

from joao.policies.base import Policy, uniform_table


@final
class Uniform(Policy):
    """Every pair of the pool, equally likely, always.

    >>> policy = Uniform(["node_drop", "identity"])
    >>> policy.update([[9.0, 0.0], [0.0, 0.0]])
    >>> policy.probabilities.tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """

    def __init__(self, augmentations: Collection[str]) -> None:
        super().__init__(augmentations)
        self.probabilities = uniform_table(len(self.augmentations))

    def update(self, pair_losses: Tensor) -> None:
        pass
