import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.encoders import Encoder


class PlainGin(Encoder):
    r"""The network of :class:`joao.encoders.Gin` in plain torch, without our kernels.

    The sum over neighbours gathers a row for every edge and scatters it to its target (``index_add``), and its
    gradient is left to autograd. Weights have the same names, so ``load_state_dict`` takes those of ``Gin``.
    """

    uses_edge_attr = False

    def __init__(self, num_features: int, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        inputs = [num_features] + [width] * (layers - 1)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(each, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()) for each in inputs
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in inputs)
        self.num_dimensions = width * layers

    def forward(self, batch: GraphBatch) -> Tensor:
        x, pooled = batch.x, []
        for mlp, norm in zip(self.mlps, self.norms, strict=True):
            x = norm(mlp(x.index_add(0, batch.target, x.index_select(0, batch.source))))
            pooled.append(x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x))
        return torch.cat(pooled, dim=1)
