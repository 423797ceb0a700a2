from __future__ import annotations

from collections.abc import Collection
from typing import final

import torch
from torch import Tensor

from joao.errors import UserError, nearest
from joao.policies.base import Policy

POOLS = {
    "molecules": ("node_drop", "subgraph"),
    "sparse": ("node_drop", "subgraph", "edge_perturb"),
    "dense": ("node_drop", "subgraph", "edge_perturb", "attribute_mask"),
}


@final
class RulePool(Policy):
    """GraphCL's rule of thumb: each view by an augmentation drawn uniformly from the pool for its kind of graphs.

    Args:
        pool: ``molecules`` (NodeDrop, Subgraph), ``sparse`` social networks (EdgePert too) or ``dense`` ones, which
            is all four; Identical is in none.

    >>> RulePool(["node_drop", "identity", "subgraph"], pool="molecules").probabilities.tolist()
    [[0.25, 0.0, 0.25], [0.0, 0.0, 0.0], [0.25, 0.0, 0.25]]
    """

    def __init__(self, augmentations: Collection[str], pool: str = "dense") -> None:
        super().__init__(augmentations)
        if pool not in POOLS:
            raise UserError(f"policy: unknown pool '{pool}'. {nearest(pool, POOLS)}")
        members = self.numbers(POOLS[pool])
        chosen = torch.zeros(len(self.augmentations), dtype=torch.float64)
        chosen[members] = 1 / len(members)
        self.probabilities = torch.outer(chosen, chosen)

    def update(self, pair_losses: Tensor) -> None:
        pass
