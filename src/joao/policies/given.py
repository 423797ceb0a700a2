from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

import torch
from torch import Tensor

from joao.errors import UserError
from joao.policies.base import Policy, uniform_table


@final
class Given(Policy):
    """A table that is given, always: one that was learned before, say, or a belief of one's own.

    Args:
        table: a row for each augmentation of the first view, a number for each of the second; they are shares of their
            sum. All equal, if not said.

    >>> Given(["node_drop", "identity"], table=[[2, 1], [1, 0]]).probabilities.tolist()
    [[0.5, 0.25], [0.25, 0.0]]
    """

    def __init__(self, augmentations: Collection[str], table: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(augmentations)
        size = len(self.augmentations)
        self.probabilities = uniform_table(size)
        if table is not None:
            if len(table) != size or any(len(row) != size for row in table):
                raise UserError(f"policy: 'table' must be {size} rows of {size} numbers, as the pool is large.")
            shares = torch.tensor(table, dtype=torch.float64)
            if not bool((shares >= 0).all()) or not 0 < float(shares.sum()) < float("inf"):
                raise UserError("policy: 'table' must have numbers of 0 or more, and some more than 0.")
            self.probabilities = shares / shares.sum()

    def update(self, pair_losses: Tensor) -> None:
        pass
