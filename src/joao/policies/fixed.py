"""Policies that do not learn."""

from collections.abc import Collection, Sequence
from typing import final

import torch

from joao.core.errors import UserError, suggest
from joao.policies.base import Policy, uniform_table


@final
class Fixed(Policy):
    """Always the same pair: GraphCL with hand-picked augmentations.

    Args:
        pair: names of the augmentations of the first and the second view. Default: twice the first one of the pool.

    >>> Fixed(["node_drop", "subgraph", "identity"], pair=["subgraph", "identity"]).sample()
    ('subgraph', 'identity')
    """

    def __init__(self, augmentations: Collection[str], pair: Sequence[str] | None = None) -> None:
        super().__init__(augmentations)
        pair = [self.augmentations[0]] * 2 if pair is None else pair
        if len(pair) != 2:
            raise UserError(f"policy: 'pair' must name two augmentations, got {len(pair)}.")
        first, second = self.indices(pair)
        self.probabilities = torch.zeros(len(self.augmentations), len(self.augmentations), dtype=torch.float64)
        self.probabilities[first, second] = 1


@final
class Given(Policy):
    """A fixed table of probabilities, for example one that was learned earlier.

    Args:
        table: weights; rows are augmentations of the first view, columns of the second. They are divided by their sum.
            Default: all equal.

    >>> Given(["node_drop", "identity"], table=[[2, 1], [1, 0]]).probabilities.tolist()
    [[0.5, 0.25], [0.25, 0.0]]
    """

    def __init__(self, augmentations: Collection[str], table: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(augmentations)
        size = len(self.augmentations)
        self.probabilities = uniform_table(size)
        if table is not None:
            if len(table) != size or any(len(row) != size for row in table):
                raise UserError(f"policy: 'table' must have {size} rows of {size} numbers, one per augmentation.")
            shares = torch.tensor(table, dtype=torch.float64)
            if not bool((shares >= 0).all()) or not 0 < float(shares.sum()) < float("inf"):
                raise UserError("policy: 'table' must have finite numbers of at least 0, and a sum above 0.")
            self.probabilities = shares / shares.sum()


@final
class Uniform(Policy):
    """All pairs of the pool are equally likely.

    >>> policy = Uniform(["node_drop", "identity"])
    >>> policy.update([[9.0, 0.0], [0.0, 0.0]])
    >>> policy.probabilities.tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """

    def __init__(self, augmentations: Collection[str]) -> None:
        super().__init__(augmentations)
        self.probabilities = uniform_table(len(self.augmentations))


POOLS = {
    "molecules": ("node_drop", "subgraph"),
    "sparse": ("node_drop", "subgraph", "edge_perturb"),
    "dense": ("node_drop", "subgraph", "edge_perturb", "attribute_mask"),
}


@final
class RulePool(Policy):
    """GraphCL's rule of thumb: both views are drawn uniformly from the pool for a kind of graphs.

    Args:
        pool: ``molecules`` (NodeDrop, Subgraph), ``sparse`` (social networks: also EdgePerturb) or ``dense`` (also
            AttributeMask). Identity is in none of them.

    >>> RulePool(["node_drop", "identity", "subgraph"], pool="molecules").probabilities.tolist()
    [[0.25, 0.0, 0.25], [0.0, 0.0, 0.0], [0.25, 0.0, 0.25]]
    """

    def __init__(self, augmentations: Collection[str], pool: str = "dense") -> None:
        super().__init__(augmentations)
        if pool not in POOLS:
            raise UserError(f"policy: unknown pool '{pool}'. {suggest(pool, POOLS)}")
        members = self.indices(POOLS[pool])
        chosen = torch.zeros(len(self.augmentations), dtype=torch.float64)
        chosen[members] = 1 / len(members)
        self.probabilities = torch.outer(chosen, chosen)
