"""MVGRL with the loss that the paper's unsupervised table has it with."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Generator, Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.objectives.base import EncodeNodes, NodeObjective, mean_or_zero, unit_vectors
from joao.objectives.infomax import MultiView, encode_both


@final
@dataclass(frozen=True)
class MultiViewNtXent(NodeObjective):
    r"""MVGRL with NT-Xent: each node tells its graph in the other view from all other graphs.

    Encoders, views and networks are those of :class:`joao.objectives.MultiView`, and

    .. math::
        \ell = L(n, s') + L(n', s)
        \quad \text{with} \quad
        L(n, s) = \frac{1}{N} \sum_v \Big[ -\frac{\cos(n_v, s_{g(v)})}{T}
               + \log \sum_{h \ne g(v)} \exp \frac{\cos(n_v, s_h)}{T} \Big]

    over the N nodes of a batch. As in :class:`joao.objectives.NtXent` the graph itself is not among the negatives
    (deviation 1), so that the loss is the one that GraphCL's row has.

    Args:
        alpha: as in :class:`joao.objectives.MultiView`.
        temperature: :math:`T`.
    """

    needs_diffusion: ClassVar[bool] = True
    alpha: float = 0.2
    temperature: float = 0.2

    def __post_init__(self) -> None:
        MultiView(self.alpha)  # checks alpha
        if not self.temperature > 0:
            raise UserError(f"MultiViewNtXent: temperature must be positive, got {self.temperature}.")

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return MultiView(self.alpha).parts(encoder, num_node_dimensions)

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        nodes, graphs = encode_both(encode_nodes, parts, batch)
        with torch.autocast(batch.device.type, enabled=False):  # scores in float32 also under mixed precision
            losses = [self._loss(*each, batch) for each in zip(nodes, reversed(graphs), strict=True)]
        return losses[0] + losses[1]

    def _loss(self, nodes: Tensor, graphs: Tensor, batch: GraphBatch) -> Tensor:
        scores, own = unit_vectors(nodes) @ unit_vectors(graphs).T / self.temperature, batch.graph_of_node.unsqueeze(1)
        others = scores.scatter(1, own, -torch.inf)
        return mean_or_zero(torch.logsumexp(others, dim=1) - scores.gather(1, own).squeeze(1))
