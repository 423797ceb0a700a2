from collections.abc import Iterator, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.base import LayeredEncoder, PaddedEncoder
from joao.encoders.layers import (
    Moments,
    add_neighbours,
    adjacency,
    diffusion,
    normalise_views,
    update_running_statistics,
)
from joao.kernels.layers import GinWeights, gin_layer, graph_sum


@final
class Gin(LayeredEncoder, PaddedEncoder):
    r"""The graph isomorphism network of the paper's unsupervised setting.

    Layer by layer,

    .. math:: x_v \leftarrow \mathrm{BN}\Big(\mathrm{ReLU}\big(\mathrm{MLP}(x_v + \sum_{u \sim v} x_u)\big)\Big)

    with a two-layer MLP. Pre-training pools a graph by concatenating, for every layer, the sum over its nodes;
    ``readout`` (:class:`~joao.encoders.layers.Readout`) says what the embedding is made of. Linear layers are
    initialised Xavier-uniform with zero bias. Edge attributes are not used.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.Graph([(0, 1), (1, 2)]), networkx.Graph([(0, 2), (2, 1)]), networkx.cycle_graph(3)])
    >>> path, same_path, triangle = Gin(num_features=batch.x.shape[1]).eval()(batch)
    >>> torch.allclose(path, same_path, atol=1e-4), torch.allclose(path, triangle, atol=1e-4), len(path)
    (True, False, 96)
    """

    uses_edge_attr = False
    can_diffuse = True

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 32, layers: int = 3, readout: str = "sum"
    ) -> None:
        super().__init__(num_features, width, layers, readout)
        widths = [num_features] + [width] * layers
        self.mlps = nn.ModuleList(make_mlp(before, width) for before in widths[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))

    def encode_layers(self, batch: GraphBatch) -> Iterator[Tensor]:
        x = batch.x
        dtype = torch.promote_types(x.dtype, torch.float32)
        matrix = adjacency(batch, dtype) if self.diffusion is None else diffusion(batch, self.diffusion, dtype)
        for mlp, norm in zip(self.mlps, self.norms, strict=True):
            x = norm(mlp(add_neighbours(x, matrix)))
            yield x

    def encode_padded(self, views: PaddedViews) -> Tensor:
        x, layers = views.x * views.keep.unsqueeze(-1), []
        norms = cast(Sequence[nn.BatchNorm1d], self.norms)
        for mlp, norm in zip(self.mlps, norms, strict=True):
            layers.append(gin_layer(x, views, GinWeights._make((*mlp.parameters(), *norm.parameters(), norm.eps))))
            x = layers[-1].x
        update_running_statistics(norms, views.keep, [(layer.means, layer.variances) for layer in layers])
        return torch.cat([layer.pooled for layer in layers], dim=2)


@final
class Gine(LayeredEncoder, PaddedEncoder):
    r"""The network ``gin`` with edge attributes or weights :math:`e_{uv}`, known as GINE.

    Layer by layer,

    .. math::
        x_v \leftarrow \mathrm{BN}\Big(\mathrm{ReLU}\big(\mathrm{MLP}(
        x_v + \sum_{u \sim v} \mathrm{ReLU}(x_u + W e_{uv} + b))\big)\Big)

    with a matrix :math:`W` and a vector :math:`b` for each layer. Everything else is as in :class:`Gin`.
    """

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 32, layers: int = 3, readout: str = "sum"
    ) -> None:
        super().__init__(num_features, width, layers, readout)
        widths = [num_features] + [width] * layers
        # One more column of ones, for b: graphs may have no edge attributes.
        self.edges = nn.ModuleList(nn.Linear(num_edge_features + 1, before, bias=False) for before in widths[:-1])
        self.mlps = nn.ModuleList(make_mlp(before, width) for before in widths[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))

    def encode_layers(self, batch: GraphBatch) -> Iterator[Tensor]:
        x, attr = batch.x, _with_ones(batch.edge_attr, batch.x[batch.source, :1])
        for edges, mlp, norm in zip(self.edges, self.mlps, self.norms, strict=True):
            messages = torch.relu(x[batch.source] + edges(attr))
            x = norm(mlp(x + torch.zeros_like(x).index_add(0, batch.target, messages.to(x.dtype))))
            yield x

    def encode_padded(self, views: PaddedViews) -> Tensor:
        num_views, num_nodes, _ = views.x.shape
        # Nodes are numbered through all views, so that one index_add is enough.
        every_view = num_nodes * torch.arange(num_views, device=views.x.device).unsqueeze(1)
        source, target = ((ends + every_view).flatten() for ends in (views.source, views.target))
        x = (views.x * views.keep.unsqueeze(-1)).flatten(0, 1)
        # An edge from a node that is not kept sends nothing, and neither does padding, which starts at such a node.
        is_edge = views.keep.flatten().index_select(0, source).unsqueeze(1).to(x.dtype)
        attr = _with_ones(None if views.edge_attr is None else views.edge_attr.flatten(0, 1), is_edge)
        pooled, norms, moments = list[Tensor](), cast(Sequence[nn.BatchNorm1d], self.norms), list[Moments]()
        for edges, mlp, norm in zip(self.edges, self.mlps, norms, strict=True):
            messages = torch.relu(x.index_select(0, source) + edges(attr)) * is_edge
            hidden = mlp(x + torch.zeros_like(x).index_add(0, target, messages.to(x.dtype)))
            y = normalise_views(hidden.unflatten(0, (num_views, num_nodes)), views.keep, norm, moments)
            pooled.append(graph_sum(y, views))
            x = y.flatten(0, 1)
        update_running_statistics(norms, views.keep, moments)
        return torch.cat(pooled, dim=2)


def _with_ones(attr: Tensor | None, like: Tensor) -> Tensor:
    """Edge attributes ``(E, k)`` and a column of ones of the shape and type of ``like`` ``(E, 1)``."""
    ones = torch.ones_like(like)
    return ones if attr is None else torch.cat([attr.to(like.dtype), ones], dim=1)


def make_mlp(num_inputs: int, width: int) -> nn.Sequential:
    """Two linear layers, each followed by ReLU, initialised Xavier-uniform with zero bias."""
    layers = [nn.Linear(num_inputs, width), nn.Linear(width, width)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(inplace=True), layers[1], nn.ReLU(inplace=True))
