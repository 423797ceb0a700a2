"""The base classes of encoders, and what several of them share."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.layers import Readout
from joao.encoders.layers import sum_nodes as sum_nodes


class Encoder(nn.Module, ABC):
    """A module that turns graphs into vectors.

    The constructor takes ``num_features`` and ``num_edge_features``, the numbers of columns of ``x`` and ``edge_attr``
    (0 without edge attributes), followed by its own parameters, all with defaults.

    Attributes:
        num_dimensions: length of the vectors.
        embedding_size: length of the embeddings, which a readout changes.
        uses_edge_attr: whether edge attributes are used; if not, other graphs may have different ones.
        codes: the rule of :mod:`joao.data.features` for encoders whose input is category numbers; None for any numbers.
        takes_atoms: whether that rule is ``atoms``.
        cpu_budget: nodes and edges of a batch of embeddings on a CPU; small ones fit into its cache.

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
    cpu_budget: int = 20_000

    @abstractmethod
    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the graphs of ``batch``, ``(G, num_dimensions)``, for pre-training and fine-tuning."""

    @property
    def embedding_size(self) -> int:
        """Length of the embeddings."""
        return self.num_dimensions

    def embed(self, batch: GraphBatch) -> Tensor:
        """Embed the graphs of ``batch``, ``(G, embedding_size)``: :meth:`forward` unless the encoder has a readout."""
        return cast(Tensor, self(batch))


class NodeEncoder(Encoder, ABC):
    """An encoder that can also return the vectors of nodes.

    Attributes:
        num_node_dimensions: length of the node vectors.
        can_diffuse: whether the encoder uses edges only in one sum over neighbours, which a diffusion can replace.
        diffusion: ``alpha`` of that diffusion, or None for the sum. It is not a weight and is not stored in files.
    """

    num_node_dimensions: int
    can_diffuse: bool = False
    diffusion: float | None = None

    @abstractmethod
    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """Compute the vectors of the nodes before pooling, ``(N, num_node_dimensions)``."""


class MeanEncoder(NodeEncoder, ABC):
    """An encoder that embeds a graph as the mean of its node vectors."""

    def forward(self, batch: GraphBatch) -> Tensor:
        return sum_nodes(self.encode_nodes(batch), batch) / batch.nodes_per_graph.unsqueeze(1)


class LayeredEncoder(NodeEncoder, ABC):
    """An encoder that concatenates, for every layer, the sum of the node vectors; a readout may embed differently.

    Args:
        num_features: number of columns of ``x``.
        width, layers: size of the layers.
        readout: see :class:`~joao.encoders.layers.Readout`.
    """

    def __init__(self, num_features: int, width: int, layers: int, readout: str) -> None:
        super().__init__()
        check_layers(type(self).__name__, width, layers)
        self.num_dimensions = self.num_node_dimensions = width * layers
        self._size_of_input = num_features
        self.readout = Readout(readout)

    @abstractmethod
    def encode_layers(self, batch: GraphBatch) -> Iterator[Tensor]:
        """Yield the node vectors ``(N, width)`` of each layer."""

    @property
    def embedding_size(self) -> int:
        return self.readout.width(self._size_of_input, [self.num_dimensions])

    def forward(self, batch: GraphBatch) -> Tensor:
        return torch.cat([sum_nodes(x, batch) for x in self.encode_layers(batch)], dim=1)

    def embed(self, batch: GraphBatch) -> Tensor:
        return self.readout([*self.encode_layers(batch)], batch)

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        return torch.cat([*self.encode_layers(batch)], dim=1)


class PaddedEncoder(NodeEncoder, ABC):
    """An encoder that also encodes padded views. They have edge attributes only if the encoder uses them."""

    @abstractmethod
    def encode_padded(self, views: PaddedViews) -> Tensor:
        """Embed padded views in training mode, ``(V, G, num_dimensions)``, as if each view were a batch of its own.

        Each view is normalised separately and updates the running statistics in turn. The code must not synchronise
        with the host, so that a GPU can replay it.
        """


class StackableEncoder(PaddedEncoder, ABC):
    """An encoder whose weights may have a further first dimension, so that each view has its own weights.

    :meth:`encode_padded` then takes views of different graphs, and uses the running statistics in evaluation mode.
    """


def check_layers(encoder_name: str, width: int, layers: int, dropout: float = 0.0) -> None:
    """Raise a :class:`UserError` if the encoder ``encoder_name`` cannot have these layers."""
    if width < 1 or layers < 1:
        raise UserError(f"{encoder_name}: width and layers must be at least 1, got {width} and {layers}.")
    if not 0 <= dropout < 1:
        raise UserError(f"{encoder_name}: dropout must be in [0, 1), got {dropout}.")
