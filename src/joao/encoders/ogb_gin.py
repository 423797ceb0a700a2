from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from joao.encoders._ogb_layers import OgbLayers
from joao.encoders.base import MeanEncoder
from joao.graphs import GraphBatch


@final
class OgbGin(MeanEncoder):
    r"""The graph isomorphism network of the paper's setting on ogbg-ppa, for edges that carry any numbers.

    It begins with :math:`W_0 x_v`, which is the same vector for all nodes where all have the input 1, as published, and
    goes on as :class:`~joao.encoders._ogb_layers.OgbLayers`, the columns of an edge being its numbers and 1. The
    embedding of a graph is the mean over its nodes.

    Args:
        dropout: the share of entries of every layer's output that are 0 in training.
    """

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 300, layers: int = 5, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("OgbGin", num_edge_features + 1, width, layers, dropout)
        self.first = nn.Linear(num_features, width, bias=False)
        nn.init.normal_(self.first.weight, std=num_features**-0.5)
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        ones = batch.x.new_ones(batch.num_edges, 1)
        columns = ones if batch.edge_attr is None else torch.cat([batch.edge_attr.to(ones.dtype), ones], dim=1)
        nodes: Tensor = self.layers(self.first(batch.x), batch.source, batch.target, columns)
        return nodes
