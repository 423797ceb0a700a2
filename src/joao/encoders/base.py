"""What an encoder is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.layers import sum_lists


class Encoder(nn.Module, ABC):
    """A module that turns graphs into vectors.

    Its constructor takes ``num_features`` and ``num_edge_features``, the numbers of columns of ``x`` and
    ``edge_attr`` (0 without edge attributes), and then its own parameters, all with defaults.

    Attributes:
        num_dimensions: length of the vectors.
        uses_edge_attr: whether edge attributes matter to it; if not, graphs may have others than it was trained with.
        codes: where ``x`` and ``edge_attr`` are numbers to look vectors up by, the rule of features that gives them.
        takes_atoms: whether these are ``atoms``, and bonds.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> class Sizes(Encoder):
    ...     num_dimensions = 2
    ...     def __init__(self, num_features=0, num_edge_features=0):
    ...         super().__init__()
    ...     def forward(self, batch):
    ...         ends_per_graph = torch.bincount(batch.graph_of_node[batch.source], minlength=batch.num_graphs)
    ...         return torch.stack([batch.nodes_per_graph, ends_per_graph / 2], dim=1)
    >>> Sizes()(batch_of([networkx.path_graph(3), networkx.cycle_graph(4)])).tolist()  # nodes and edges
    [[3.0, 2.0], [4.0, 4.0]]
    """

    num_dimensions: int
    uses_edge_attr: bool = True
    codes: str | None = None
    takes_atoms: bool = False

    @abstractmethod
    def forward(self, batch: GraphBatch) -> Tensor:
        """``(G, num_dimensions)`` embeddings of the graphs of ``batch``."""


class NodeEncoder(Encoder, ABC):
    """An encoder whose embeddings are made from vectors of nodes, which can be had, too.

    Attributes:
        num_node_dimensions: length of the nodes' vectors.
        can_diffuse: whether all that it knows of edges is one sum over neighbours, which a diffusion may replace.
        diffusion: the ``alpha`` of this diffusion, or None for the sum. It is no weight: no file has it.
    """

    num_node_dimensions: int
    can_diffuse: bool = False
    diffusion: float | None = None

    @abstractmethod
    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """``(N, num_node_dimensions)`` vectors of the nodes of ``batch``, as they are before they are put together."""


class MeanEncoder(NodeEncoder, ABC):
    """An encoder whose embedding of a graph is the mean over its nodes."""

    def forward(self, batch: GraphBatch) -> Tensor:
        return sum_nodes(self.encode_nodes(batch), batch) / batch.nodes_per_graph.unsqueeze(1)


class PaddedEncoder(NodeEncoder, ABC):
    """An encoder that has a form for padded views, too; they have edge attributes if these matter to it."""

    @abstractmethod
    def encode_padded(self, views: PaddedViews) -> Tensor:
        """``(V, G, num_dimensions)`` embeddings in training mode, as if each view were a batch of its own.

        The views are normalised one by one and their statistics remembered in their order. The host is asked nothing.
        """


class StackableEncoder(PaddedEncoder, ABC):
    """An encoder whose weights may be stacked (:func:`stack_parameters`): each view is encoded by its own weights.

    Its :meth:`encode_padded` takes views that have graphs of their own, and in evaluation mode normalises by what it
    remembers.
    """


def check_layers(encoder_name: str, width: int, layers: int, dropout: float = 0.0) -> None:
    """Refuses options of the encoder ``encoder_name`` that no layers can be made with."""
    if width < 1 or layers < 1:
        raise UserError(f"{encoder_name}: width and layers must be at least 1, got {width} and {layers}.")
    if not 0 <= dropout < 1:
        raise UserError(f"{encoder_name}: dropout must be in [0, 1), got {dropout}.")


M = TypeVar("M", bound=nn.Module)


def stack_parameters(module: M, count: int) -> M:
    """A copy of ``module`` whose parameters and buffers have a leading dimension: ``count`` times the same."""
    copied = copy.deepcopy(module)
    for part in copied.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(_repeated(value, count)))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, _repeated(buffer, count))
    return copied


def _repeated(value: Tensor, count: int) -> Tensor:
    return value.detach().expand(count, *value.shape).clone()


def sum_nodes(x: Tensor, batch: GraphBatch) -> Tensor:
    """Adds up the rows of each graph's nodes: ``(N, d)`` to ``(G, d)``."""
    if x.device.type == "cpu" and x.dtype.itemsize >= 4:
        summed: Tensor = _SumOfGraphs.apply(x, batch)  # type: ignore[no-untyped-call]
        return summed
    return x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x)


class _SumOfGraphs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: GraphBatch) -> Tensor:
        ctx.graph_of_node = batch.graph_of_node
        return sum_lists(x, torch.arange(batch.num_nodes), batch.first_node)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.index_select(0, ctx.graph_of_node), None
