"""What a policy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from joao.core.errors import UserError, suggest


class Policy(ABC):
    """A law over ordered pairs of augmentations: which pair makes the two views of the next batch.

    A policy works in any training loop (docs/custom-training-loop.md): draw pairs with :meth:`sample` and pass the
    losses of all pairs to :meth:`update` from time to time.

    Args:
        augmentations: the names of the pool, in the order of the table's rows and columns; a dictionary's keys will do.

    Attributes:
        probabilities: ``(K, K)``, float64, sums to 1; row: first view, column: second view.
        learns: whether :meth:`update` does anything; if not, nobody need measure pair losses.

    >>> class Hardest(Policy):
    ...     learns = True
    ...     def __init__(self, augmentations):
    ...         super().__init__(augmentations)
    ...         self.probabilities = uniform_table(len(self.augmentations))
    ...     def update(self, pair_losses):
    ...         self.probabilities = torch.zeros_like(self.probabilities)
    ...         self.probabilities.view(-1)[torch.as_tensor(pair_losses).argmax()] = 1
    >>> policy = Hardest(["node_drop", "identity"])
    >>> policy.update([[1.0, 2.0], [4.0, 3.0]])
    >>> policy.sample()
    ('identity', 'node_drop')
    """

    learns: bool = False
    probabilities: Tensor

    def __init__(self, augmentations: Collection[str]) -> None:
        if not augmentations:
            raise UserError("augmentations: the pool is empty. Name at least one.")
        self.augmentations = tuple(augmentations)

    @abstractmethod
    def update(self, pair_losses: Tensor) -> None:
        """Moves the law, given the loss under every pair, ``(K, K)``, on any device; nested lists will do."""

    @overload
    def sample(self, count: None = None, generator: torch.Generator | None = None) -> tuple[str, str]: ...

    @overload
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor: ...

    def sample(self, count: int | None = None, generator: torch.Generator | None = None) -> tuple[str, str] | Tensor:
        """Draws pairs, independently.

        Args:
            count: how many; None is one.
            generator: on the CPU; None is torch's own, as in the rest of torch.

        Returns:
            ``(count, 2)`` numbers in the pool; of one pair, without ``count``, the two names.
        """
        size, law = len(self.augmentations), self.probabilities.flatten()
        drawn = torch.multinomial(law, 1 if count is None else count, replacement=True, generator=generator)
        if count is None:
            return self.augmentations[int(drawn) // size], self.augmentations[int(drawn) % size]
        return torch.stack([drawn // size, drawn % size], dim=1)

    def indices(self, names: Sequence[str]) -> list[int]:
        """The places of ``names`` in the pool."""
        for name in names:
            if name not in self.augmentations:
                raise UserError(f"policy: '{name}' is not in the pool. {suggest(name, self.augmentations)}")
        return [self.augmentations.index(name) for name in names]


def uniform_table(size: int) -> Tensor:
    """``(size, size)`` equal probabilities."""
    return torch.full((size, size), 1 / size**2, dtype=torch.float64)


Prior = Sequence[float | Sequence[float]] | Tensor


def check_prior(prior: Prior | None, size: int) -> Tensor:
    """The prior as a table over the pairs of a pool of ``size``: uniform if None, else checked to be a law.

    A law over the pool, ``(size,)``, stands for the pairs whose two views are drawn from it independently.
    """
    if prior is None:
        return uniform_table(size)
    table = _table(prior, "prior", size)
    if table.shape not in ((size, size), (size,)):
        shape = tuple(table.shape)
        raise UserError(f"policy: the prior must be a {size} x {size} table, or {size} numbers, got {shape}.")
    if bool((table < 0).any()) or not abs(float(table.sum()) - 1) <= 1e-6:
        raise UserError(f"policy: the prior must be non-negative and sum to 1; it sums to {float(table.sum()):g}.")
    return torch.outer(table, table) if table.dim() == 1 else table


def check_losses(pair_losses: Tensor, size: int) -> Tensor:
    """``(size, size)`` pair losses as a policy computes with them: finite, float64, on the CPU, without gradient."""
    losses = _table(pair_losses, "table of pair losses", size)
    if losses.shape != (size, size):
        raise UserError(f"policy: the pair losses must be a {size} x {size} table, got {tuple(losses.shape)}.")
    if not bool(losses.isfinite().all()):
        raise UserError("policy: the pair losses must be finite numbers. Is the learning rate too high?")
    return losses


def _table(values: Any, what: str, size: int) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError) as error:
        raise UserError(f"policy: the {what} must be a {size} x {size} table of numbers ({error}).") from error
