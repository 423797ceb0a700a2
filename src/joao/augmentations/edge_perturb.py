from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from joao.augmentations.base import Augmentation, share_of
from joao.graphs import GraphBatch, rows
from joao.randomness import random_rank


@final
@dataclass(frozen=True)
class EdgePerturb(Augmentation):
    r"""Removes some edges of each graph and adds as many random ones.

    Of the :math:`m` undirected edges of a graph, :math:`\lfloor s m \rfloor` are removed, chosen uniformly. As many
    pairs of different nodes are drawn uniformly and joined; a pair that is joined already stays as it is.
    A new edge gets the attributes of an edge of its graph, drawn uniformly.

    Args:
        drop_only: whether nothing is added (the published unsupervised and OGB code).
    """

    drop_only: bool = False

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        forward = (batch.source < batch.target).nonzero().squeeze(1)
        graph_of_edge = rows(batch.graph_of_node, rows(batch.target, forward))
        edges_per_graph = torch.bincount(graph_of_edge, minlength=batch.num_graphs)
        num_dropped = share_of(edges_per_graph, self.strength)
        rank = random_rank(graph_of_edge, edges_per_graph, generator)
        dropped = rows(forward, (rank < rows(num_dropped, graph_of_edge)).nonzero().squeeze(1))
        keep = torch.ones(batch.num_edges, dtype=torch.bool, device=batch.device)
        keep[dropped] = False
        keep[rows(batch.reverse_edge, dropped)] = False
        thinned = batch.keep_edges(keep)
        if self.drop_only:
            return thinned
        graph_of_new = torch.repeat_interleave(num_dropped)
        first, second = _random_pairs(batch, graph_of_new, generator)
        attr = None
        if batch.edge_attr is not None:
            donors = _random_numbers(rows(edges_per_graph, graph_of_new), generator)
            donors += rows(torch.cumsum(edges_per_graph, 0) - edges_per_graph, graph_of_new)
            attr = rows(batch.edge_attr, rows(forward, donors))
        return _join(thinned, first, second, attr)


def _random_numbers(below: Tensor, generator: torch.Generator) -> Tensor:
    """A uniform whole number from 0 to ``below - 1``, for each entry."""
    uniform = torch.rand(below.numel(), dtype=torch.float64, device=below.device, generator=generator)
    return (uniform * below).long()


def _random_pairs(batch: GraphBatch, graphs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A uniform pair of different nodes for each entry of ``graphs``, which have two nodes at least."""
    size = rows(batch.nodes_per_graph, graphs)
    first = _random_numbers(size, generator)
    second = _random_numbers(size - 1, generator)
    second += second >= first
    offset = rows(batch.first_node, graphs)
    return offset + first, offset + second


def _join(batch: GraphBatch, first: Tensor, second: Tensor, attr: Tensor | None) -> GraphBatch:
    """Adds both directions of the edges ``first - second`` that are not there yet, in sorted order."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    source, target = torch.cat([low, high]), torch.cat([high, low])
    # Stable, and low ends first: of a pair drawn twice, both directions of the first draw are kept.
    key, order = torch.sort(target * batch.num_nodes + source, stable=True)
    present = batch.target * batch.num_nodes + batch.source
    place = torch.searchsorted(present, key)
    is_new = torch.ones_like(key, dtype=torch.bool)
    is_new[1:] = key[1:] != key[:-1]
    if present.numel():
        is_new &= rows(present, place.clamp(max=present.numel() - 1)) != key
    added = is_new.nonzero().squeeze(1)
    order, place = rows(order, added), rows(place, added)
    # Where each added edge, and then each present one, goes in the merged list.
    place += torch.arange(added.numel(), device=batch.device)
    is_present = torch.ones(batch.num_edges + added.numel(), dtype=torch.bool, device=batch.device)
    is_present[place] = False
    places = torch.cat([is_present.nonzero().squeeze(1), place])

    def merged(old: Tensor, new: Tensor) -> Tensor:
        values = torch.cat([old, rows(new, order)])
        return torch.empty_like(values).index_copy_(0, places, values)

    return replace(
        batch,
        source=merged(batch.source, source),
        target=merged(batch.target, target),
        edge_attr=None if batch.edge_attr is None or attr is None else merged(batch.edge_attr, torch.cat([attr, attr])),
    )
