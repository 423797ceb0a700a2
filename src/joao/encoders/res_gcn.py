from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.base import StackableEncoder, check_layers, sum_nodes
from joao.encoders.layers import (
    Moments,
    add_neighbours,
    adjacency,
    diffusion,
    normalise_views,
    update_running_statistics,
)
from joao.kernels.layers import graph_sum, neighbour_sum, relu_norm


@final
class ResGcn(StackableEncoder):
    r"""The graph convolutional network of the paper's semi-supervised setting.

    .. math::
        x_v \leftarrow \mathrm{ReLU}\big(W_0 \, \mathrm{BN}(x_v)\big), \qquad
        x_v \leftarrow \mathrm{ReLU}\Big(W \sum_{u = v, \, u \sim v} c_v c_u \, \mathrm{BN}(x_u) + b\Big)
        \quad \text{with} \quad c_v = (1 + \deg v)^{-1/2}

    for every convolution. The embedding of a graph is
    :math:`\mathrm{BN}(\mathrm{ReLU}(W' \, \mathrm{BN}(\sum_v x_v) + b'))`. Three convolutions, the layer before and the
    layer after them are the "five layers" of the paper. Despite its name, the published results were obtained without
    residual connections; they are an option. Edge attributes are not used.

    Args:
        residual: whether to add the input of a convolution to its output.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.Graph([(0, 1), (1, 2)]), networkx.Graph([(0, 2), (2, 1)]), networkx.cycle_graph(3)])
    >>> path, same_path, triangle = ResGcn(num_features=batch.x.shape[1]).eval()(batch)
    >>> torch.allclose(path, same_path, atol=1e-4), torch.allclose(path, triangle, atol=1e-4), len(path)
    (True, False, 128)
    """

    uses_edge_attr = False
    can_diffuse = True

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 128, layers: int = 3, residual: bool = False
    ) -> None:
        super().__init__()
        check_layers("ResGcn", width, layers)
        self.residual = residual
        self.first = _linear(num_features, width, bias=False)
        self.convolutions = nn.ModuleList(_linear(width, width) for _ in range(layers))
        self.last = _linear(width, width)
        self.node_norms = nn.ModuleList(_norm(each) for each in [num_features] + [width] * layers)
        self.graph_norms = nn.ModuleList(_norm(width) for _ in range(2))
        self.num_dimensions = self.num_node_dimensions = width

    def forward(self, batch: GraphBatch) -> Tensor:
        before, after = self.graph_norms
        return cast(Tensor, after(torch.relu(self.last(before(sum_nodes(self.encode_nodes(batch), batch))))))

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        norms = iter(self.node_norms)
        x = torch.relu(self.first(next(norms)(batch.x)))
        dtype = torch.promote_types(x.dtype, torch.float32)
        matrix = adjacency(batch, dtype) if self.diffusion is None else diffusion(batch, self.diffusion, dtype)
        # A diffusion includes the scaling by degrees.
        c = (1 + batch.first_edge.diff()).to(x.dtype).rsqrt().unsqueeze(1) if self.diffusion is None else 1
        for convolution, norm in zip(self.convolutions, norms, strict=True):
            output = torch.relu(convolution(c * add_neighbours(c * norm(x), matrix)))
            x = x + output if self.residual else output
        return x

    def encode_padded(self, views: PaddedViews) -> Tensor:
        keep, mask = views.keep, views.keep.unsqueeze(-1)
        norms = cast(Sequence[nn.BatchNorm1d], self.node_norms)
        c = torch.where(mask, neighbour_sum(mask.to(views.x.dtype), views), 1).rsqrt().squeeze(-1)
        moments: list[Moments] = []
        x = normalise_views(views.x, keep, norms[0], moments)
        # z + bias is the input of the next ReLU, which is fused with the normalisation that follows it where possible.
        # carried is what a residual connection adds to the output of that ReLU.
        z, bias, carried = x @ self.first.weight.mT, x.new_zeros(self.num_dimensions), None
        for convolution, norm in zip(cast(Sequence[nn.Linear], self.convolutions), norms[1:], strict=True):
            if self.residual or not self.training:
                carried = _relu_with_residual(z, bias, carried if self.residual else None)
                x = normalise_views(carried, keep, norm, moments)
            else:
                x, *norm_moments = relu_norm(z, bias, keep, norm.weight, norm.bias, norm.eps)
                moments.append((norm_moments[0], norm_moments[1]))
            z, bias = neighbour_sum(x, views, c) @ convolution.weight.mT, convolution.bias
        if self.training:
            update_running_statistics(norms, keep, moments)
        nodes = _relu_with_residual(z, bias, carried if self.residual else None)
        return self._embed(graph_sum(nodes * mask, views), views)

    def _embed(self, pooled: Tensor, views: PaddedViews) -> Tensor:
        """Turn ``(V, G, d)`` sums over nodes into embeddings."""
        before, after = norms = cast(Sequence[nn.BatchNorm1d], self.graph_norms)
        has_nodes = (views.first_node.diff() > 0).expand(pooled.shape[:2])
        moments: list[Moments] = []
        x = normalise_views(pooled, has_nodes, before, moments)
        hidden = _relu_with_residual(x @ self.last.weight.mT, self.last.bias, None)
        embeddings = normalise_views(hidden, has_nodes, after, moments)
        if self.training:
            update_running_statistics(norms, has_nodes, moments)
        return embeddings


def _relu_with_residual(z: Tensor, bias: Tensor, carried: Tensor | None) -> Tensor:
    activated = torch.relu(z + bias.unsqueeze(-2))
    return activated if carried is None else carried + activated


def _linear(num_inputs: int, width: int, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(num_inputs, width, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _norm(width: int) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(width)
    nn.init.constant_(norm.bias, 1e-4)  # as published; keeps a following ReLU alive for constant columns
    return norm
