import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import torch
from torch import Generator, Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, nonzero_indices, take_rows
from joao.core.randomness import random_integers
from joao.objectives.base import EncodeNodes, NodeObjective, binary_loss, full_precision, group_means, inner_products

MAX_HOPS = 10**9  # _distances counts farther nodes as unreachable


@final
@dataclass(frozen=True)
class ContextPrediction(NodeObjective):
    r"""Match neighbourhoods with their surroundings (Hu et al., 2020).

    In every graph a centre c is drawn uniformly. With :math:`d` the distance from it in steps, the neighbourhood is the
    subgraph of the nodes with :math:`d \le \text{hops}`, the context that of the nodes with
    :math:`\text{inner} \le d \le \text{outer}`, and the anchors :math:`A` are the nodes in both. One encoder sees
    neighbourhoods, another one contexts: :math:`n_g` is the first one's vector of the centre, :math:`k_g` the mean of
    the second one's vectors of the anchors. Over the C graphs that have a context

    .. math::
        \ell = - \frac{1}{C} \sum_g \Big[ \log \sigma(n_g^\top k_g)
               + \log \big( 1 - \sigma(n_g^\top k_{g + 1}) \big) \Big] ,

    where g + 1 is the next of them, cyclically. With fewer than two, the loss is 0.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> from joao.encoders import Gin
    >>> triangles, rings = (batch_of([networkx.cycle_graph(size)] * 2) for size in (3, 6))
    >>> encoder, objective = Gin(num_features=65).eval(), ContextPrediction()
    >>> parts = objective.parts(encoder, encoder.num_node_dimensions)
    >>> [bool(objective(encoder.encode_nodes, parts, each, torch.Generator()) > 0) for each in (triangles, rings)]
    [False, True]
    """

    methods: ClassVar[Mapping[str, str]] = {"context_pred": "ContextPred"}
    hops: int = 3
    inner: int = 2
    outer: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.inner <= self.hops:
            raise UserError(f"ContextPrediction: inner must be from 1 to hops ({self.hops}), got {self.inner}.")
        if self.outer < self.inner:
            raise UserError(f"ContextPrediction: outer must be at least inner ({self.inner}), got {self.outer}.")
        if max(self.hops, self.outer) > MAX_HOPS:
            raise UserError(
                f"ContextPrediction: hops and outer must be at most {MAX_HOPS}, got {self.hops} and {self.outer}."
            )

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return copy.deepcopy(encoder)

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        centre = batch.first_node[:-1] + random_integers(batch.nodes_per_graph, generator)
        distance = _distances(batch, centre, max(self.hops, self.outer))
        is_near, is_context = distance <= self.hops, (distance >= self.inner) & (distance <= self.outer)
        neighbourhoods = _encode_subgraphs(encode_nodes, batch, is_near, centre)
        anchors = nonzero_indices(is_near & is_context)
        graph_of_anchor = take_rows(batch.graph_of_node, anchors)
        has_context = torch.bincount(graph_of_anchor, minlength=batch.num_graphs) > 0  # a context always has an anchor
        # No graph may become empty: without a context, the centre replaces it.
        kept = is_context.index_fill(0, take_rows(centre, nonzero_indices(~has_context)), True)
        vectors = _encode_subgraphs(cast(Any, parts).encode_nodes, batch, kept, anchors)
        contexts = group_means(vectors, graph_of_anchor, batch.num_graphs)
        graphs = nonzero_indices(has_context)
        if graphs.numel() < 2:
            graphs = graphs[:0]
        neighbourhoods, contexts = take_rows(neighbourhoods, graphs), take_rows(contexts, graphs)
        return binary_loss(
            inner_products(neighbourhoods, contexts), inner_products(neighbourhoods, contexts.roll(-1, dims=0))
        )


def _distances(batch: GraphBatch, centre: Tensor, most: int) -> Tensor:
    """Distance of each node from the centre of its graph, ``(N,)``; ``most + 1`` for all nodes farther away."""
    distance = torch.full_like(batch.graph_of_node, most + 1).index_fill_(0, centre, 0)
    for _ in range(min(most, batch.num_nodes)):  # no shortest path is longer
        distance = distance.scatter_reduce(0, batch.target, take_rows(distance, batch.source) + 1, "amin")
    return distance


def _encode_subgraphs(encode_nodes: EncodeNodes, batch: GraphBatch, keep: Tensor, nodes: Tensor) -> Tensor:
    """Encode the subgraphs of the nodes where ``keep`` ``(N,)`` is true; return the vectors ``(n, d)`` of ``nodes``."""
    new_number = torch.cumsum(keep, 0) - 1
    return take_rows(full_precision(encode_nodes(batch.keep_nodes(keep))), take_rows(new_number, nodes))
