"""The base classes of augmentations, and helpers to choose nodes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, take_rows
from joao.core.padded import PaddedBatch
from joao.core.randomness import random_choice
from joao.kernels.graph_ops import rank_within_groups


@dataclass(frozen=True)
class Augmentation(ABC):
    """A random change of every graph of a batch.

    An augmentation is *pure* (it does not modify its input), *reproducible* (all randomness comes from the generator)
    and *local* (no graph is added, removed, emptied or connected to another). Strength 0 changes nothing. Undirected
    graphs stay undirected, edges stay sorted as :class:`GraphBatch` requires, and edge attributes stay with their
    edges.

    Args:
        strength: the share :math:`s` of nodes or edges to change, in [0, 1).

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
        """Return the augmented graphs. ``generator`` is on the device of ``batch``."""


class PaddedAugmentation(Augmentation, ABC):
    """An augmentation that also has a form for padded batches, with the same distribution."""

    @abstractmethod
    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        """Return the augmented graphs. ``batch`` has all nodes of its graphs.

        All shapes are fixed, and the code must not synchronise with the host, so that a GPU can replay it.
        """


def choose_nodes(batch: GraphBatch, share: float, generator: torch.Generator) -> Tensor:
    r"""Mark :math:`\lfloor \text{share} \cdot n \rfloor` uniformly chosen nodes of each graph, ``(N,)``."""
    chosen_per_graph = floor_share(batch.nodes_per_graph, share)
    return random_choice(batch.graph_of_node, batch.nodes_per_graph, chosen_per_graph, generator)


def choose_padded_nodes(batch: PaddedBatch, share: float, generator: torch.Generator) -> Tensor:
    """:func:`choose_nodes` for a padded batch, ``(N,)``. Padding is never chosen."""
    uniform = torch.rand(batch.num_nodes, dtype=torch.float64, device=batch.device, generator=generator)
    return mark_smallest_nodes(batch, uniform, padded_floor_share(batch.nodes_per_graph, share, batch.most_nodes))


def mark_smallest_nodes(batch: PaddedBatch, values: Tensor, count: Tensor) -> Tensor:
    """Mark the ``count`` ``(G,)`` nodes with the smallest ``values`` ``(N,)`` in each graph."""
    rank = rank_within_groups(values, batch.graph_of_node, batch.first_node, batch.most_nodes)
    return rank < take_rows(count, batch.graph_of_node)


def padded_floor_share(counts: Tensor, share: float, most: int) -> Tensor:
    """:func:`floor_share` of counts from 0 to ``most``, looked up: one kernel on a GPU instead of eight."""
    return take_rows(_floor_shares(share, most, counts.device), counts)


@cache  # never evicted: a CUDA graph may read the table
def _floor_shares(share: float, most: int, device: torch.device) -> Tensor:
    return floor_share(torch.arange(most + 1), share).to(device)


def floor_share(counts: Tensor, share: float) -> Tensor:
    r"""Compute :math:`\lfloor \text{share} \cdot \text{count} \rfloor` with decimal shares in mind.

    A share below 1 never chooses all items.

    >>> floor_share(torch.tensor([10, 19]), 0.3).tolist()  # 0.3 * 10 is 2.9999999999999996 in binary
    [3, 5]
    """
    whole = torch.floor(counts.double() * share + 1e-9).long()
    return whole if share >= 1 else torch.minimum(whole, (counts - 1).clamp(min=0))
