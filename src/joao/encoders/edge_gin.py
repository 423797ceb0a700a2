from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.graphs import GraphBatch
from joao.encoders.base import MeanEncoder, check_layers
from joao.encoders.layers import add_neighbours, adjacency


@final
class EdgeGin(MeanEncoder):
    r"""A graph isomorphism network whose messages concatenate the vectors of the neighbour and of the edge.

    The encoder of the paper's transfer setting on protein networks, for numeric edge attributes :math:`e_{uv}`:

    .. math::
        x_v = W_0 x_v, \qquad
        x_v \leftarrow \mathrm{ReLU}\Big(\mathrm{MLP}\big(\textstyle\sum_{u = v, \, u \sim v} x_u \,\|\, (W e_{uv} + b)
        \big)\Big)

    The edge half of a self-loop :math:`vv` is zero: the published vector for loops is the same for all nodes and is
    thus part of the bias of the MLP. The MLP has one hidden layer of double width with batch normalisation before its
    ReLU. The last layer has no ReLU. The embedding of a graph is the mean over its nodes. If all nodes have the input
    1, as published, :math:`W_0` is their common initial vector.

    Edge vectors are summed before the linear map: :math:`\sum_u (W e_{uv} + b) = W \sum_u e_{uv} + b \deg v`.
    """

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 300, layers: int = 5, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_layers("EdgeGin", width, layers, dropout)
        self.dropout = dropout
        self.first = nn.Linear(num_features, width, bias=False)
        nn.init.xavier_uniform_(self.first.weight)
        # One more column: the number of edges, for the bias b.
        self.edges = nn.ModuleList(nn.Linear(num_edge_features + 1, width, bias=False) for _ in range(layers))
        self.mlps = nn.ModuleList(_mlp(width) for _ in range(layers))
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        x: Tensor = self.first(batch.x)
        sums = _edge_sums(batch)
        matrix = adjacency(batch, torch.promote_types(x.dtype, torch.float32))
        for number, (edges, mlp) in enumerate(zip(self.edges, self.mlps, strict=True), start=1):
            x = mlp(torch.cat([add_neighbours(x, matrix), edges(sums)], dim=1))
            x = F.dropout(torch.relu(x) if number < len(self.mlps) else x, self.dropout, self.training)
        return x


def _edge_sums(batch: GraphBatch) -> Tensor:
    """Sum the attributes of the edges to each node, and count them: ``(N, k + 1)``."""
    degrees = batch.first_edge.diff().to(batch.x.dtype).unsqueeze(1)
    if batch.edge_attr is None:
        return degrees
    numbers = batch.edge_attr.to(batch.x.dtype)
    sums = numbers.new_zeros(batch.num_nodes, numbers.shape[1]).index_add(0, batch.target, numbers)
    return torch.cat([sums, degrees], dim=1)


def _mlp(width: int) -> nn.Sequential:
    double = 2 * width
    return nn.Sequential(nn.Linear(double, double), nn.BatchNorm1d(double), nn.ReLU(True), nn.Linear(double, width))
