from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from joao.core.graphs import GraphBatch, take_rows
from joao.objectives.base import EncodeNodes, NodeObjective, binary_loss, full_precision, inner_products, means


@final
@dataclass(frozen=True)
class Infomax(NodeObjective):
    r"""Nodes know their graph: Deep Graph Infomax, as molecules are pre-trained with it (Hu et al., 2020).

    With the nodes' vectors :math:`x_v`, :math:`V_g` the nodes of graph g and :math:`g(v)` the graph of node v, graphs
    have the summaries :math:`s_g = \sigma\big( \frac{1}{|V_g|} \sum_{v \in V_g} x_v \big)`, and over the N nodes of a
    batch of B graphs

    .. math::
        \ell = - \frac{1}{N} \sum_v \Big[ \log \sigma(x_v^\top W s_{g(v)})
               + \log \big( 1 - \sigma(x_v^\top W s_{g(v) + 1}) \big) \Big] ,

    where graph B is graph 0 again and :math:`W` is learned.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(2), networkx.path_graph(2)])
    >>> matrix = nn.Linear(2, 2, bias=False)
    >>> matrix.weight.data = torch.eye(2)
    >>> for vectors in (torch.zeros(4, 2), torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 9.0], [-9.0, 9.0]])):
    ...     loss = Infomax()(lambda batch: vectors, matrix, batch, torch.Generator())
    ...     print(f"{loss:.2f}")  # nodes that tell nothing: 2 log 2; nodes that tell their graph: 0
    1.39
    0.00
    """

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        matrix = nn.Linear(num_node_dimensions, num_node_dimensions, bias=False)
        nn.init.xavier_uniform_(matrix.weight)
        return matrix

    def __call__(
        self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: torch.Generator
    ) -> Tensor:
        assert isinstance(parts, nn.Linear)
        nodes = full_precision(encode_nodes(batch))
        summaries = torch.sigmoid(means(nodes, batch.graph_of_node, batch.num_graphs))
        with torch.autocast(nodes.device.type, enabled=False):  # under mixed precision scores are in float32, too
            directions = linear(summaries, parts.weight.to(nodes.dtype))
        return binary_loss(
            inner_products(nodes, take_rows(directions, batch.graph_of_node)),
            inner_products(nodes, take_rows(directions.roll(-1, dims=0), batch.graph_of_node)),
        )
