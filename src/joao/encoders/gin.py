from collections.abc import Iterator, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.base import LayeredEncoder, PaddedEncoder
from joao.encoders.layers import add_neighbours, adjacency, diffusion, update_running_statistics
from joao.kernels.layers import GinWeights, gin_layer


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
        self.mlps = nn.ModuleList(_mlp(before, width) for before in widths[:-1])
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


def _mlp(num_inputs: int, width: int) -> nn.Sequential:
    layers = [nn.Linear(num_inputs, width), nn.Linear(width, width)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(inplace=True), layers[1], nn.ReLU(inplace=True))
