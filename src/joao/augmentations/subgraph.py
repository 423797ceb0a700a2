from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from joao.augmentations.base import PaddedAugmentation, floor_share, mark_smallest_nodes
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, nonzero_indices, take_rows
from joao.core.padded import PaddedBatch, keep_nodes
from joao.core.randomness import order_within_groups, random_rank
from joao.kernels.graph_ops import first_passage, plain_first_passage, rank_within_groups


@final
@dataclass(frozen=True)
class Subgraph(PaddedAugmentation):
    r"""Keep a connected part of each graph, grown from a random node.

    Starting from a uniformly drawn node, growth repeatedly adds a uniformly drawn neighbour of the nodes taken so far,
    until :math:`n - \lfloor s n \rfloor` nodes are taken. When a component is exhausted, growth continues from a
    uniformly drawn node that is not taken yet.

    Args:
        keep: the share of nodes to keep, :math:`\max(1, \lfloor \text{keep} \cdot n \rfloor)`, if not :math:`1 - s`
            (GraphCL keeps 0.2). Strength 0 still changes nothing.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(10)])
    >>> view = Subgraph(0.2)(batch, torch.Generator())
    >>> view.num_nodes, view.num_edges // 2  # what is left of a path is a path
    (8, 7)
    """

    keep: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is not None and not 0 < self.keep <= 1:
            raise UserError(f"Subgraph: keep must be in (0, 1], got {self.keep}.")

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        if self.strength == 0:
            return batch
        num_kept = self._num_kept(batch.nodes_per_graph)
        order = order_within_groups(growth_time(batch, generator), batch.graph_of_node)
        position = torch.arange(batch.num_nodes, device=batch.device) - take_rows(batch.first_node, batch.graph_of_node)
        kept = take_rows(order, nonzero_indices(position < take_rows(num_kept, batch.graph_of_node)))
        mask = torch.zeros(batch.num_nodes, dtype=torch.bool, device=batch.device)
        return batch.keep_nodes(mask.index_fill_(0, kept, True))

    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        if self.strength == 0:
            return batch
        time = padded_growth_time(batch, generator)
        return keep_nodes(batch, mark_smallest_nodes(batch, time, self._num_kept(batch.nodes_per_graph)))

    def _num_kept(self, num_nodes: Tensor) -> Tensor:
        if self.keep is None:
            return num_nodes - floor_share(num_nodes, self.strength)
        return floor_share(num_nodes, self.keep).clamp(min=1)


def growth_time(batch: GraphBatch, generator: torch.Generator) -> Tensor:
    r"""Compute when random growth reaches each node, ``(N,)``. Sorted by it, nodes are in the order of growth.

    Growth by uniformly drawn neighbours is first-passage percolation with independent waiting times
    :math:`w_v \sim \mathrm{Exp}(1)` on the *nodes*:

    .. math:: t_{root} = 0, \qquad t_v = w_v + \min_{u \sim v} t_u .

    Exponential waiting times have no memory: at any moment, the remaining waiting times of all neighbours are again
    independent and exponential, so the next node is uniform among them. Each component is rooted at its first node in a
    random order of the graph's nodes, and components start in the order of their roots. This is the same as drawing
    uniformly from the nodes not yet taken.
    """
    rank = random_rank(batch.graph_of_node, batch.nodes_per_graph, generator)
    uniform = torch.rand(batch.num_nodes, dtype=torch.float64, device=batch.device, generator=generator)
    waiting = -torch.log1p(-uniform)  # exponential; three times as fast as exponential_
    # Components must not interleave: each starts after all growth before it has certainly ended.
    start = rank * (waiting.sum() + 1)
    if batch.device.type == "cpu":
        return dijkstra_growth_time(batch, start, waiting)
    return plain_first_passage(batch.source, batch.target, start, waiting)


def dijkstra_growth_time(batch: GraphBatch, start: Tensor, waiting: Tensor) -> Tensor:
    """Solve the equation of :func:`growth_time` with Dijkstra's algorithm, on a CPU.

    Args:
        start: ``(N,)`` when growth would begin at each node; the root of a component is its earliest node.
        waiting: ``(N,)`` waiting times.
    """
    steps = csr_array(
        (take_rows(waiting, batch.source).numpy(), batch.source.numpy(), batch.first_edge.numpy()),
        shape=(batch.num_nodes, batch.num_nodes),
    )
    component = batch.component.numpy()
    earliest = np.full(component.max() + 1, np.inf)
    np.minimum.at(earliest, component, start.numpy())
    earliest = earliest[component]
    roots = np.flatnonzero(start.numpy() == earliest)
    return torch.from_numpy(earliest + dijkstra(steps, indices=roots, min_only=True))


def padded_growth_time(batch: PaddedBatch, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(batch.num_nodes, dtype=torch.float64, device=batch.device, generator=generator)
    waiting = torch.empty_like(uniform).exponential_(generator=generator)
    rank = rank_within_groups(uniform, batch.graph_of_node, batch.first_node, batch.most_nodes)
    return first_passage(batch, rank * (waiting.sum() + 1), waiting)
