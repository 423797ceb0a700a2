"""What an encoder is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from joao.graphs import GraphBatch


class Encoder(nn.Module, ABC):
    """A module that turns graphs into vectors.

    Its constructor takes ``num_features`` and ``num_edge_features``, the numbers of columns of ``x`` and
    ``edge_attr`` (0 without edge attributes), and then its own parameters, all with defaults.

    Attributes:
        num_dimensions: length of the vectors.
        uses_edge_attr: whether edge attributes matter to it; if not, graphs may have others than it was trained with.
    """

    num_dimensions: int
    uses_edge_attr: bool = True

    @abstractmethod
    def forward(self, batch: GraphBatch) -> Tensor:
        """``(G, num_dimensions)`` embeddings of the graphs of ``batch``."""


def sum_nodes(x: Tensor, batch: GraphBatch) -> Tensor:
    """Adds up the rows of each graph's nodes: ``(N, d)`` to ``(G, d)``."""
    return x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x)
