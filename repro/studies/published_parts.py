"""Parts of JOAO as in the authors' code, where it differs from the paper (docs/deviations.md 3, 7, 9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import final

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.augmentations.base import floor_share
from joao.core.graphs import GraphBatch
from joao.core.randomness import order_within_groups, random_integers
from joao.heads import Heads
from joao.policies import Policy
from joao.policies.base import check_losses
from joao.policies.min_max import ascend


@final
@dataclass(frozen=True)
class OwnNeighbourhood(Augmentation):
    r"""Subgraph as published for the unsupervised setting: the start and some of its own neighbours (deviation 9).

    From a uniformly drawn start, a neighbour *of the start* is drawn :math:`n` times, with replacement; drawing ends
    when :math:`\lfloor (1 - s) n \rfloor + 1` nodes are taken.
    """

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        if self.strength == 0:
            return batch

        of = batch.graph_of_node
        start = batch.first_node[:-1] + random_integers(batch.nodes_per_graph, generator)
        first_edge = batch.first_edge[start]
        degree = (batch.first_edge[start + 1] - first_edge)[of]
        edge = first_edge[of] + random_integers(
            degree, generator
        )  # one draw for each node of the graph, in the nodes' order
        draw = torch.arange(batch.num_nodes, device=batch.device)
        when = torch.full((batch.num_nodes,), torch.inf, dtype=torch.float64, device=batch.device)
        when.scatter_reduce_(0, batch.source[edge[degree > 0]], draw[degree > 0].double(), "amin")
        when[start] = -1
        place = draw - batch.first_node[of]
        most = floor_share(batch.nodes_per_graph, 1 - self.strength) + 1
        taken = torch.zeros(batch.num_nodes, dtype=torch.bool, device=batch.device)
        taken[order_within_groups(when, of)[place < most[of]]] = True
        return batch.keep_nodes(taken & when.isfinite())


@final
class HeadPerEpoch(Heads):
    """JOAOv2's heads as published: a pair of them, drawn by the policy, for all views of an epoch (deviation 7).

    Which augmentation made a view does not matter, except where the losses of pairs are measured. That is done without
    gradients and once, at the end of an epoch, and is how its end is known here. Views are projected in turn.
    """

    def __init__(self, heads: Heads, policy: Policy, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.policy, self.generator = heads, policy, generator
        self.drawn: cycle[int] | None = None

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            self.drawn = None
        else:
            self.drawn = self.drawn or cycle(self.policy.sample(1, self.generator)[0].tolist())
            augmentation = next(self.drawn)
        projected: Tensor = self.heads(embeddings, augmentation)
        return projected


@final
class OneSided(Policy):
    """The first view is the graph itself; min-max over the augmentations of the second alone (deviation 3)."""

    learns = True

    def __init__(self, augmentations: Sequence[str], gamma: float, step: float) -> None:
        super().__init__(augmentations)
        self.gamma, self.step = gamma, step
        (self.first,) = self.indices(["identity"])
        size = len(self.augmentations)
        self.prior = torch.full((size,), 1 / size, dtype=torch.float64)
        self.probabilities = self._table(self.prior)

    def update(self, pair_losses: Tensor) -> None:
        losses = check_losses(pair_losses, len(self.augmentations))[self.first]
        law = self.probabilities[self.first]
        self.probabilities = self._table(ascend(law, losses, prior=self.prior, gamma=self.gamma, step=self.step))

    def _table(self, law: Tensor) -> Tensor:
        table = torch.zeros(law.numel(), law.numel(), dtype=torch.float64)
        table[self.first] = law
        return table
