from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from joao.core.graphs import GraphBatch
from joao.objectives.base import EncodeNodes, FeedForward, NodeObjective, every_graph_loss, full_precision, sums


@final
@dataclass(frozen=True)
class InfoGraph(NodeObjective):
    r"""Nodes tell their graph from all others of the batch: InfoGraph (Sun et al., 2020), without labels.

    With the nodes' vectors :math:`x_v`, :math:`V_g` the nodes of graph g and :math:`g(v)` the graph of node v, over the
    N nodes of a batch of B graphs

    .. math::
        \ell = - \frac{1}{N} \sum_v \Big[ \log \sigma(n_v^\top s_{g(v)}) + \frac{1}{B - 1} \sum_{h \ne g(v)}
               \log \big( 1 - \sigma(n_v^\top s_h) \big) \Big]
        \quad \text{with} \quad n_v = f(x_v), \quad s_g = f' \Big( \sum_{v \in V_g} x_v \Big) ,

    where :math:`f` and :math:`f'` are learned: three layers beside a linear shortcut. The sum over nodes is what
    :class:`Gin` embeds a graph by. :class:`Infomax` has means, one other graph for each node and a matrix instead.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(2), networkx.path_graph(2)])
    >>> parts = nn.ModuleDict({"nodes": nn.Identity(), "graphs": nn.Identity()})  # in place of f and f'
    >>> for vectors in (torch.zeros(4, 1), torch.tensor([[3.0], [3.0], [-3.0], [-3.0]])):
    ...     loss = InfoGraph()(lambda batch: vectors, parts, batch, torch.Generator())
    ...     print(f"{loss:.2f}")  # nodes that tell nothing: 2 log 2; nodes that tell their graph: 0
    1.39
    0.00
    """

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return nn.ModuleDict({name: FeedForward(num_node_dimensions) for name in ("nodes", "graphs")})

    def __call__(
        self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: torch.Generator
    ) -> Tensor:
        assert isinstance(parts, nn.ModuleDict)
        vectors = full_precision(encode_nodes(batch))
        with torch.autocast(vectors.device.type, enabled=False):  # under mixed precision scores are in float32, too
            nodes = parts["nodes"](vectors)
            graphs = parts["graphs"](sums(vectors, batch.graph_of_node, batch.num_graphs))
            return every_graph_loss(nodes, graphs, batch.graph_of_node)
