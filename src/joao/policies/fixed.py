from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

import torch
from torch import Tensor

from joao.errors import UserError
from joao.policies.base import Policy


@final
class Fixed(Policy):
    """One pair, always: GraphCL with hand-picked augmentations.

    Args:
        pair: the names of the augmentations of the first and the second view; the pool's first, if not said.

    >>> Fixed(["node_drop", "subgraph", "identity"], pair=["subgraph", "identity"]).sample()
    ('subgraph', 'identity')
    """

    def __init__(self, augmentations: Collection[str], pair: Sequence[str] | None = None) -> None:
        super().__init__(augmentations)
        pair = [self.augmentations[0]] * 2 if pair is None else pair
        if len(pair) != 2:
            raise UserError(f"policy: 'pair' must name two augmentations, got {len(pair)}.")
        first, second = self.numbers(pair)
        self.probabilities = torch.zeros(len(self.augmentations), len(self.augmentations), dtype=torch.float64)
        self.probabilities[first, second] = 1

    def update(self, pair_losses: Tensor) -> None:
        pass
