from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Generator, Tensor, nn

from joao.core.graphs import GraphBatch, nonzero_indices, take_rows
from joao.core.randomness import random_pairs
from joao.objectives.base import EncodeNodes, NodeObjective, binary_loss, full_precision, inner_products


@final
@dataclass(frozen=True)
class EdgeReconstruction(NodeObjective):
    r"""Connected nodes have similar vectors: the graph auto-encoder (GAE), also called EdgePred.

    With the undirected edges :math:`E` of all graphs of a batch and negative edges :math:`E'`,

    .. math::
        \ell = - \frac{1}{|E|} \sum_{uv \in E} \log \sigma(x_u^\top x_v)
               - \frac{1}{|E'|} \sum_{uv \in E'} \log \big( 1 - \sigma(x_u^\top x_v) \big) .

    For :math:`E'`, each graph draws as many uniform pairs of different nodes as it has edges; pairs that are edges are
    left out. The mean over no edges is 0.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.complete_graph(3)])  # all pairs are edges: none is made up
    >>> for vectors in (torch.zeros(3, 1), torch.full((3, 1), 3.0)):
    ...     loss = EdgeReconstruction()(lambda batch: vectors, nn.Module(), batch, torch.Generator())
    ...     print(f"{loss:.2f}")  # -log of sigma(0), and of sigma(9)
    0.69
    0.00
    """

    methods: ClassVar[Mapping[str, str]] = {"gae": "GAE", "edge_pred": "EdgePred"}

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return nn.Module()

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        nodes = full_precision(encode_nodes(batch))
        one_way = nonzero_indices(batch.source < batch.target)
        source, target = take_rows(batch.source, one_way), take_rows(batch.target, one_way)
        first, second = _negative_edges(batch, take_rows(batch.graph_of_node, target), generator)
        return binary_loss(
            inner_products(take_rows(nodes, source), take_rows(nodes, target)),
            inner_products(take_rows(nodes, first), take_rows(nodes, second)),
        )


def _negative_edges(batch: GraphBatch, graphs: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw a uniform pair of different nodes for each entry of ``graphs``, which must have edges; drop pairs that are
    edges.
    """
    sizes = take_rows(batch.nodes_per_graph, graphs)
    first, second = random_pairs(take_rows(batch.first_node, graphs), sizes, generator)
    edges = batch.target * batch.num_nodes + batch.source  # ascending
    pairs = first * batch.num_nodes + second
    nearest_edge = torch.searchsorted(edges, pairs).clamp(max=batch.num_edges - 1)
    non_edges = nonzero_indices(take_rows(edges, nearest_edge) != pairs)
    return take_rows(first, non_edges), take_rows(second, non_edges)
