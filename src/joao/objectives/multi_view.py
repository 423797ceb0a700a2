from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import torch
from torch import Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.objectives.base import EncodeNodes, FeedForward, NodeObjective, every_graph_loss, full_precision, sums


@final
@dataclass(frozen=True)
class MultiView(NodeObjective):
    r"""Neighbours and diffusion tell the same: MVGRL (Hassani and Khasahmadi, 2020), for graphs.

    The encoder sums over neighbours; a second one, with weights of its own that begin as the first one's, has the
    diffusion :math:`S = \alpha (I - (1 - \alpha) \hat A)^{-1}` instead, personalised PageRank, where :math:`\hat A` is
    the adjacency matrix with loops, scaled by the roots of the degrees on both sides. Nodes of each view tell their
    graph as the other shows it from all others of the batch: with :math:`L` the loss of :class:`InfoGraph`,

    .. math::
        \ell = L(n, s') + L(n', s)
        \quad \text{with} \quad n_v = f(x_v), \quad s_g = f' \Big( \sum_{v \in V_g} x_v \Big) ,

    and :math:`n', s'` likewise from the second encoder's vectors by the same :math:`f` and :math:`f'`, which are
    learned: three layers beside a linear shortcut.

    Args:
        alpha: the smaller, the farther the diffusion reaches.

    >>> from joao.encoders import Gin
    >>> encoder = Gin(num_features=1)
    >>> parts = MultiView(alpha=0.1).parts(encoder, encoder.num_node_dimensions)
    >>> encoder.diffusion, parts["encoder"].diffusion  # the first sums over neighbours, its copy diffuses
    (None, 0.1)
    """

    needs_diffusion: ClassVar[bool] = True
    alpha: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"MultiView: alpha must be in (0, 1), got {self.alpha}.")

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        second = copy.deepcopy(encoder)
        cast(Any, second).diffusion = self.alpha
        networks = {name: FeedForward(num_node_dimensions) for name in ("nodes", "graphs")}
        return nn.ModuleDict({"encoder": second, **networks})

    def __call__(
        self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: torch.Generator
    ) -> Tensor:
        assert isinstance(parts, nn.ModuleDict)
        views = [full_precision(encode(batch)) for encode in (encode_nodes, cast(Any, parts["encoder"]).encode_nodes)]
        with torch.autocast(batch.device.type, enabled=False):  # under mixed precision scores are in float32, too
            nodes = [parts["nodes"](vectors) for vectors in views]
            graphs = [parts["graphs"](sums(each, batch.graph_of_node, batch.num_graphs)) for each in views]
            losses = [
                every_graph_loss(*each, batch.graph_of_node) for each in zip(nodes, reversed(graphs), strict=True)
            ]
        return losses[0] + losses[1]
