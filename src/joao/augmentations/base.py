"""What an augmentation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, take_rows
from joao.core.padded import PaddedBatch
from joao.core.randomness import random_choice
from joao.kernels.graph_ops import rank_within_groups


@dataclass(frozen=True)
class Augmentation(ABC):
    r"""A random change of every graph of a batch.

    Every augmentation is *pure* (its input is not changed), *reproducible* (all randomness comes from the
    generator), *local* (no graph appears, vanishes, loses its last node or is joined to another), *graded*
    (strength 0 changes nothing) and keeps undirected graphs undirected, edges sorted as :class:`GraphBatch`
    wants them, and edge attributes with their edges.

    Args:
        strength: the share :math:`s` of nodes or edges that change, in [0, 1).

    >>> import networkx
    >>> from dataclasses import replace
    >>> from joao.data import batch_of
    >>> @dataclass(frozen=True)
    ... class Fade(Augmentation):
    ...     def __call__(self, batch, generator):
    ...         return replace(batch, x=(1 - self.strength) * batch.x)
    >>> batch = batch_of([networkx.path_graph(3)])  # one-hot degrees, the three ones of three nodes
    >>> Fade(strength=0.5)(batch, torch.Generator()).x.sum().item()
    1.5
    >>> Fade().strength  # the paper's
    0.2
    """

    strength: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.strength < 1:
            raise UserError(f"{type(self).__name__}: strength must be in [0, 1), got {self.strength}.")

    @abstractmethod
    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        """The changed graphs; ``generator`` is on the device of ``batch``."""


class PaddedAugmentation(Augmentation, ABC):
    """An augmentation that has a form for padded batches, too: the same law, in tensors of fixed shapes."""

    @abstractmethod
    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        """The changed graphs; ``batch`` comes from the store, with all its nodes. The host is asked nothing."""


def choose_nodes(batch: GraphBatch, share: float, generator: torch.Generator) -> Tensor:
    r"""Marks :math:`\lfloor \text{share} \cdot n \rfloor` uniformly chosen nodes of each graph, ``(N,)``."""
    chosen_per_graph = floor_share(batch.nodes_per_graph, share)
    return random_choice(batch.graph_of_node, batch.nodes_per_graph, chosen_per_graph, generator)


def choose_padded_nodes(batch: PaddedBatch, share: float, generator: torch.Generator) -> Tensor:
    """The same in a padded batch, ``(N,)``; room left over is not chosen."""
    uniform = torch.rand(batch.num_nodes, dtype=torch.float64, device=batch.device, generator=generator)
    return mark_smallest_nodes(batch, uniform, floor_share(batch.nodes_per_graph, share))


def mark_smallest_nodes(batch: PaddedBatch, values: Tensor, count: Tensor) -> Tensor:
    """Marks the ``count`` ``(G,)`` nodes of each graph that have the smallest ``values`` ``(N,)``."""
    rank = rank_within_groups(values, batch.graph_of_node, batch.first_node, batch.most_nodes)
    return rank < take_rows(count, batch.graph_of_node)


def floor_share(counts: Tensor, share: float) -> Tensor:
    r""":math:`\lfloor \text{share} \cdot \text{count} \rfloor`, for shares as people write them.

    >>> floor_share(torch.tensor([10, 19]), 0.3).tolist()  # 0.3 * 10 is 2.9999999999999996 in binary
    [3, 5]

    A share below 1, however little, is never all of them.
    """
    whole = torch.floor(counts.double() * share + 1e-9).long()
    return whole if share >= 1 else torch.minimum(whole, (counts - 1).clamp(min=0))
