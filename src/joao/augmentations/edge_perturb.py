from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from joao.augmentations.base import PaddedAugmentation, floor_share
from joao.core.graphs import GraphBatch, nonzero_indices, take_rows
from joao.core.padded import PaddedBatch
from joao.core.randomness import random_choice, random_integers, random_pairs
from joao.kernels.graph_ops import rank_within_groups


@final
@dataclass(frozen=True)
class EdgePerturb(PaddedAugmentation):
    r"""Remove some edges of each graph and add as many random ones.

    Of the :math:`m` undirected edges of a graph, :math:`\lfloor s m \rfloor` uniformly chosen ones are removed. The
    same number of node pairs is drawn uniformly and connected; pairs that are already connected stay unchanged. A new
    edge gets the attributes of a uniformly drawn edge of its graph. Self-loops stay.

    Args:
        drop_only: whether to add no edges (as the published unsupervised and OGB code does).

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.cycle_graph(10)])
    >>> view = EdgePerturb(0.2, drop_only=True)(batch, torch.Generator())
    >>> view.num_nodes, view.num_edges // 2
    (10, 8)
    """

    drop_only: bool = False

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        forward = nonzero_indices(batch.source < batch.target)
        graph_of_edge = take_rows(batch.graph_of_node, take_rows(batch.target, forward))
        edges_per_graph = torch.bincount(graph_of_edge, minlength=batch.num_graphs)
        num_dropped = floor_share(edges_per_graph, self.strength)
        kept = take_rows(
            forward, nonzero_indices(~random_choice(graph_of_edge, edges_per_graph, num_dropped, generator))
        )
        kept = torch.cat([kept, nonzero_indices(batch.source == batch.target)])
        graph_of_new = torch.repeat_interleave(num_dropped * (not self.drop_only))
        first, second = _random_pairs(batch, graph_of_new, generator)
        low = torch.cat([take_rows(batch.source, kept), torch.minimum(first, second)])
        high = torch.cat([take_rows(batch.target, kept), torch.maximum(first, second)])
        if batch.edge_attr is None:
            return _replace_edges(batch, low, high)
        donors = random_integers(take_rows(edges_per_graph, graph_of_new), generator)
        donors += take_rows(torch.cumsum(edges_per_graph, 0) - edges_per_graph, graph_of_new)
        donors = take_rows(forward, donors)
        donors = torch.cat([kept, donors, take_rows(batch.reverse_edge, kept), donors])
        return _replace_edges(batch, low, high, take_rows(batch.edge_attr, donors))

    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        # Every undirected edge is represented by its direction from the lower to the higher node.
        is_low = batch.source < batch.target
        low = torch.where(is_low, torch.arange(batch.num_edges, device=batch.device), batch.reverse_edge)
        is_dropped = take_rows(_choose_padded_edges(batch, is_low, self.strength, generator), low)
        if self.drop_only:
            source, target = torch.full_like(low, batch.num_nodes - 1), batch.target
        else:  # a new edge replaces each dropped one, in both directions
            first, second = (take_rows(end, low) for end in _random_pairs(batch, batch.graph_of_edge, generator))
            lower, upper = torch.minimum(first, second), torch.maximum(first, second)
            source, target = torch.where(is_low, lower, upper), torch.where(is_low, upper, lower)
        key = torch.where(is_dropped, target, batch.target) * batch.num_nodes
        key += torch.where(is_dropped, source, batch.source)
        if batch.edge_attr is None:
            return _sort_edges(batch, key)
        graph, begin = batch.graph_of_edge, take_rows(batch.first_edge, batch.first_node)
        donor = take_rows(begin, graph) + random_integers(take_rows(begin.diff(), graph), generator)
        # Both directions of a new edge take the attributes of the same donor.
        donor = take_rows(take_rows(low, donor.clamp(max=batch.num_edges - 1)), low)
        attr = torch.where(is_dropped.unsqueeze(1), take_rows(batch.edge_attr, donor), batch.edge_attr)
        # Of equal edges, one that was there before wins, then the lowest position, which is the same both ways.
        return _sort_edges(batch, key, torch.where(is_dropped, low + 1, 0), attr)


def _random_pairs(batch: GraphBatch | PaddedBatch, graphs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a uniform pair of different nodes for each entry of ``graphs``, which must have at least two nodes."""
    return random_pairs(take_rows(batch.first_node, graphs), take_rows(batch.nodes_per_graph, graphs), generator)


def _replace_edges(batch: GraphBatch, low: Tensor, high: Tensor, attr: Tensor | None = None) -> GraphBatch:
    """Replace the edges of ``batch`` by the undirected edges ``low - high`` ``(M,)``; the first of equal edges is kept.

    ``attr`` ``(2M, k)`` has the attributes of all directions ``low`` to ``high``, then of the reverse directions.
    """
    key = torch.cat([high, low]) << 32 | torch.cat([low, high])  # by target, then by source
    order = None
    if attr is not None:
        key, order = torch.sort(key, stable=True)
    elif key.device.type == "cpu":
        key = torch.from_numpy(np.sort(key.numpy()))  # many times faster than a stable sort that returns the order
    else:
        key = torch.sort(key).values
    is_first = torch.ones_like(key, dtype=torch.bool)
    torch.ne(key[1:], key[:-1], out=is_first[1:])
    first = nonzero_indices(is_first)
    key = take_rows(key, first)
    return replace(
        batch,
        source=key & (2**32 - 1),
        target=key >> 32,
        edge_attr=None if attr is None or order is None else take_rows(attr, take_rows(order, first)),
    )


def _choose_padded_edges(batch: PaddedBatch, is_low: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Mark a share of each graph's undirected edges, at their directions ``is_low`` ``(E,)``."""
    uniform = torch.rand(batch.num_edges, dtype=torch.float64, device=batch.device, generator=generator)
    first = take_rows(batch.first_edge, batch.first_node)
    graph = batch.graph_of_edge
    rank = rank_within_groups(torch.where(is_low, uniform, 2.0), graph, first, batch.most_edges)
    num_low = take_rows(F.pad(is_low.cumsum(0), (1, 0)), first).diff()  # half of the edges, unless there are self-loops
    return rank < take_rows(floor_share(num_low, share), graph)


def _sort_edges(
    batch: PaddedBatch, key: Tensor, order: Tensor | None = None, attr: Tensor | None = None
) -> PaddedBatch:
    """Replace the edges of ``batch`` by ``key = target * N + source`` ``(E,)``, sorted in each graph, without repeats.

    With attributes ``attr`` ``(E, k)``, of equal edges the one with the lowest ``order`` ``(E,)``, from 0 to E, is
    kept.
    """
    first, graph = take_rows(batch.first_edge, batch.first_node), batch.graph_of_edge
    by = key if order is None else key * (batch.num_edges + 1) + order
    position = take_rows(first, graph) + rank_within_groups(by, graph, first, batch.most_edges)
    key = torch.empty_like(key).index_copy_(0, position, key)
    target = key // batch.num_nodes
    source = key % batch.num_nodes
    # A repeated edge is disabled, not removed, because shapes are fixed: it starts at the padding node.
    source[1:] = torch.where(key[1:] == key[:-1], batch.num_nodes - 1, source[1:])
    each = torch.arange(batch.num_nodes + 1, device=batch.device)
    first_edge = torch.searchsorted(target, each).clamp(max=first[-1])
    attr = None if attr is None else torch.empty_like(attr).index_copy_(0, position, attr)
    return replace(batch, source=source, target=target, first_edge=first_edge, edge_attr=attr)
