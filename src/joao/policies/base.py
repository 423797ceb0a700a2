"""The base class of policies, and checks of priors and losses."""

from collections.abc import Collection, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from joao.core.errors import UserError, suggest


class Policy:
    """A probability distribution over ordered pairs of augmentations, from which the two views of a batch are drawn.

    A policy works in any training loop (docs/custom-training-loop.md): draw pairs with :meth:`sample` and pass the
    losses of all pairs to :meth:`update` from time to time.

    Args:
        augmentations: names of the pool, in the order of the rows and columns of ``probabilities``.

    Attributes:
        probabilities: ``(K, K)`` float64 that sums to 1. Rows are the first view, columns the second view.
        learns: whether :meth:`update` has an effect; if not, pair losses need not be measured.

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

    def update(self, pair_losses: Tensor) -> None:
        """Adapt the probabilities to the loss of every pair, ``(K, K)``; nested lists are accepted.

        By default a policy does not learn.
        """

    @overload
    def sample(self, count: None = None, generator: torch.Generator | None = None) -> tuple[str, str]: ...

    @overload
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor: ...

    def sample(self, count: int | None = None, generator: torch.Generator | None = None) -> tuple[str, str] | Tensor:
        """Draw pairs independently.

        Args:
            count: number of pairs; None draws one.
            generator: on the CPU; None uses torch's global generator.

        Returns:
            ``(count, 2)`` numbers of augmentations in the pool, or the two names if ``count`` is None.
        """
        size, law = len(self.augmentations), self.probabilities.flatten()
        drawn = torch.multinomial(law, 1 if count is None else count, replacement=True, generator=generator)
        if count is None:
            return self.augmentations[int(drawn) // size], self.augmentations[int(drawn) % size]
        return torch.stack([drawn // size, drawn % size], dim=1)

    def indices(self, names: Sequence[str]) -> list[int]:
        """The positions of ``names`` in the pool."""
        for name in names:
            if name not in self.augmentations:
                raise UserError(f"policy: '{name}' is not in the pool. {suggest(name, self.augmentations)}")
        return [self.augmentations.index(name) for name in names]


def uniform_table(size: int) -> Tensor:
    """Equal probabilities for all pairs, ``(size, size)``."""
    return torch.full((size, size), 1 / size**2, dtype=torch.float64)


Prior = Sequence[float | Sequence[float]] | Tensor


def check_prior(prior: Prior | None, size: int) -> Tensor:
    """Validate a prior over the pairs of a pool of ``size`` and return it as ``(size, size)`` probabilities.

    None is the uniform prior. A prior of shape ``(size,)`` is the distribution of each of two independent views.
    """
    if prior is None:
        return uniform_table(size)
    table = _table(prior, "prior", size)
    if table.shape not in ((size, size), (size,)):
        shape = tuple(table.shape)
        raise UserError(f"policy: prior must be a {size} x {size} table or {size} numbers, got shape {shape}.")
    if bool((table < 0).any()) or not abs(float(table.sum()) - 1) <= 1e-6:
        raise UserError(f"policy: prior must be non-negative and sum to 1, got a sum of {float(table.sum()):g}.")
    return torch.outer(table, table) if table.dim() == 1 else table


def check_losses(pair_losses: Tensor, size: int) -> Tensor:
    """Validate ``(size, size)`` pair losses and return them as finite float64 on the CPU, without gradient."""
    losses = _table(pair_losses, "pair losses", size)
    if losses.shape != (size, size):
        raise UserError(f"policy: pair losses must be a {size} x {size} table, got shape {tuple(losses.shape)}.")
    if not bool(losses.isfinite().all()):
        raise UserError("policy: pair losses must be finite. The learning rate may be too high.")
    return losses


def _table(values: Any, what: str, size: int) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError) as error:
        raise UserError(f"policy: {what} must be a {size} x {size} table of numbers ({error}).") from error
