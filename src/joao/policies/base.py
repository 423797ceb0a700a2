"""What a policy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from joao.errors import UserError, nearest


class Policy(ABC):
    """A law over ordered pairs of augmentations: which pair makes the two views of the next batch.

    Args:
        augmentations: the names of the pool, in the order of the table's rows and columns.

    Attributes:
        probabilities: ``(K, K)``, float64, sums to 1; row: first view, column: second view.
        learns: whether :meth:`update` does anything; if not, nobody need measure pair losses.
    """

    learns: bool = False
    probabilities: Tensor

    def __init__(self, augmentations: Sequence[str]) -> None:
        if not augmentations:
            raise UserError("augmentations: the pool is empty. Name at least one.")
        self.augmentations = tuple(augmentations)

    @abstractmethod
    def update(self, pair_losses: Tensor) -> None:
        """Moves the law, given the loss under every pair, ``(K, K)``."""

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """``count`` pairs, drawn independently: ``(count, 2)`` numbers in the pool. ``generator`` is on the CPU."""
        drawn = torch.multinomial(self.probabilities.flatten(), count, replacement=True, generator=generator)
        return torch.stack([drawn // len(self.augmentations), drawn % len(self.augmentations)], dim=1)

    def numbers(self, names: Sequence[str]) -> list[int]:
        """The places of ``names`` in the pool."""
        for name in names:
            if name not in self.augmentations:
                raise UserError(f"policy: '{name}' is not in the pool. {nearest(name, self.augmentations)}")
        return [self.augmentations.index(name) for name in names]


def uniform_table(size: int) -> Tensor:
    """``(size, size)`` equal probabilities."""
    return torch.full((size, size), 1 / size**2, dtype=torch.float64)


def checked_prior(prior: Sequence[Sequence[float]] | Tensor | None, size: int) -> Tensor:
    """The prior as a table: uniform if None, else checked to be a law over the pairs of a pool of ``size``."""
    if prior is None:
        return uniform_table(size)
    try:
        table = torch.as_tensor(prior, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"policy: the prior must be a {size} x {size} table of numbers ({error}).") from error
    if table.shape != (size, size):
        raise UserError(f"policy: the prior must be a {size} x {size} table, got {tuple(table.shape)}.")
    if bool((table < 0).any()) or not abs(float(table.sum()) - 1) <= 1e-6:
        raise UserError(f"policy: the prior must be non-negative and sum to 1; it sums to {float(table.sum()):g}.")
    return table
