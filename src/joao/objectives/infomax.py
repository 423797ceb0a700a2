"""Objectives that distinguish the graph of a node from other graphs: Infomax, InfoGraph and MVGRL."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import linear, softplus

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, take_rows
from joao.objectives.base import (
    EncodeNodes,
    NodeObjective,
    binary_loss,
    full_precision,
    group_means,
    group_sums,
    inner_products,
    mean_or_zero,
)


@final
@dataclass(frozen=True)
class Infomax(NodeObjective):
    r"""Match nodes with a summary of their graph: Deep Graph Infomax, as used for molecules (Hu et al., 2020).

    With node vectors :math:`x_v`, :math:`V_g` the nodes of graph g and :math:`g(v)` the graph of node v, graphs have
    the summaries :math:`s_g = \sigma\big( \frac{1}{|V_g|} \sum_{v \in V_g} x_v \big)`, and over the N nodes of a batch
    of B graphs

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
    ...     print(f"{loss:.2f}")  # uninformative nodes: 2 log 2; informative nodes: 0
    1.39
    0.00
    """

    methods: ClassVar[Mapping[str, str]] = {"infomax": "Infomax"}

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        matrix = nn.Linear(num_node_dimensions, num_node_dimensions, bias=False)
        nn.init.xavier_uniform_(matrix.weight)
        return matrix

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        assert isinstance(parts, nn.Linear)
        nodes = full_precision(encode_nodes(batch))
        summaries = torch.sigmoid(group_means(nodes, batch.graph_of_node, batch.num_graphs))
        with torch.autocast(nodes.device.type, enabled=False):  # scores in float32 also under mixed precision
            directions = linear(summaries, parts.weight.to(nodes.dtype))
        return binary_loss(
            inner_products(nodes, take_rows(directions, batch.graph_of_node)),
            inner_products(nodes, take_rows(directions.roll(-1, dims=0), batch.graph_of_node)),
        )


@final
@dataclass(frozen=True)
class InfoGraph(NodeObjective):
    r"""Distinguish the graph of a node from all others of the batch: InfoGraph (Sun et al., 2020), without labels.

    With node vectors :math:`x_v`, :math:`V_g` the nodes of graph g and :math:`g(v)` the graph of node v, over the N
    nodes of a batch of B graphs

    .. math::
        \ell = - \frac{1}{N} \sum_v \Big[ \log \sigma(n_v^\top s_{g(v)}) + \frac{1}{B - 1} \sum_{h \ne g(v)}
               \log \big( 1 - \sigma(n_v^\top s_h) \big) \Big]
        \quad \text{with} \quad n_v = f(x_v), \quad s_g = f' \Big( \sum_{v \in V_g} x_v \Big) ,

    where :math:`f` and :math:`f'` are learned: three layers plus a linear shortcut. :class:`Infomax` uses means, one
    other graph per node, and a matrix instead.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(2), networkx.path_graph(2)])
    >>> parts = nn.ModuleDict({"nodes": nn.Identity(), "graphs": nn.Identity()})  # in place of f and f'
    >>> for vectors in (torch.zeros(4, 1), torch.tensor([[3.0], [3.0], [-3.0], [-3.0]])):
    ...     loss = InfoGraph()(lambda batch: vectors, parts, batch, torch.Generator())
    ...     print(f"{loss:.2f}")  # uninformative nodes: 2 log 2; informative nodes: 0
    1.39
    0.00
    """

    methods: ClassVar[Mapping[str, str]] = {"infograph": "InfoGraph"}

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return nn.ModuleDict({name: FeedForward(num_node_dimensions) for name in ("nodes", "graphs")})

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        assert isinstance(parts, nn.ModuleDict)
        vectors = full_precision(encode_nodes(batch))
        with torch.autocast(vectors.device.type, enabled=False):  # scores in float32 also under mixed precision
            nodes = parts["nodes"](vectors)
            graphs = parts["graphs"](group_sums(vectors, batch.graph_of_node, batch.num_graphs))
            return node_graph_loss(nodes, graphs, batch.graph_of_node)


@final
@dataclass(frozen=True)
class MultiView(NodeObjective):
    r"""Contrast sums over neighbours with diffusion: MVGRL (Hassani and Khasahmadi, 2020), for graphs.

    The encoder sums over neighbours. A second encoder, a copy with its own weights, uses the diffusion
    :math:`S = \alpha (I - (1 - \alpha) \hat A)^{-1}` instead (personalised PageRank), where :math:`\hat A` is the
    adjacency matrix with self-loops, normalised by the square roots of the degrees. The nodes of each view are matched
    with the graphs of the other view: with :math:`L` the loss of :class:`InfoGraph`,

    .. math::
        \ell = L(n, s') + L(n', s)
        \quad \text{with} \quad n_v = f(x_v), \quad s_g = f' \Big( \sum_{v \in V_g} x_v \Big) ,

    and :math:`n', s'` likewise from the second encoder with the same :math:`f` and :math:`f'`, which are learned: three
    layers plus a linear shortcut.

    Args:
        alpha: smaller values reach farther.

    >>> from joao.encoders import Gin
    >>> encoder = Gin(num_features=1)
    >>> parts = MultiView(alpha=0.1).parts(encoder, encoder.num_node_dimensions)
    >>> encoder.diffusion, parts["encoder"].diffusion  # the first sums over neighbours, its copy diffuses
    (None, 0.1)
    """

    methods: ClassVar[Mapping[str, str]] = {"mvgrl": "MVGRL"}
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

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        nodes, graphs = encode_both(encode_nodes, parts, batch)
        with torch.autocast(batch.device.type, enabled=False):  # scores in float32 also under mixed precision
            losses = [node_graph_loss(*each, batch.graph_of_node) for each in zip(nodes, reversed(graphs), strict=True)]
        return losses[0] + losses[1]


def encode_both(encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch) -> tuple[list[Tensor], list[Tensor]]:
    """Return the nodes ``(N, d)`` and the graphs ``(B, d)`` of both views, for ``parts`` of :class:`MultiView`."""
    assert isinstance(parts, nn.ModuleDict)
    views = [full_precision(encode(batch)) for encode in (encode_nodes, cast(Any, parts["encoder"]).encode_nodes)]
    with torch.autocast(batch.device.type, enabled=False):
        nodes = [parts["nodes"](vectors) for vectors in views]
        graphs = [parts["graphs"](group_sums(each, batch.graph_of_node, batch.num_graphs)) for each in views]
    return nodes, graphs


class FeedForward(nn.Module):
    """Three layers with ReLU plus a linear shortcut, :math:`f(x) + V x + c`, all of the same width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU(inplace=True))]
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x) + self.shortcut(x))


def node_graph_loss(nodes: Tensor, graphs: Tensor, graph_of_node: Tensor) -> Tensor:
    """Compare every node with every graph, ``(N, d)`` and ``(B, d)`` to ``()``: the loss of :class:`InfoGraph`.

    It is the Jensen-Shannon estimate of mutual information, up to a constant.
    """
    scores, own = nodes @ graphs.T, graph_of_node.unsqueeze(1)
    others = softplus(scores).scatter(1, own, 0.0)
    return mean_or_zero(softplus(-scores.gather(1, own))) + others.sum() / (others.numel() - len(nodes))
