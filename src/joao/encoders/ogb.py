"""The three encoders of the OGB setting and the layers they share."""

from itertools import accumulate
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.codes import (
    OGB_ATOM_SIZES,
    OGB_BOND_SIZES,
    OGB_MAX_DEPTH,
    OGB_NODE_ATTRIBUTES,
    OGB_NODE_TYPES,
    OGB_TREE_COLUMNS,
)
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.encoders.base import MeanEncoder, check_layers


@final
class OgbLayers(nn.Module):
    r"""The message-passing layers of the OGB encoders.

    With edge columns :math:`c_{uv}`, and :math:`W` and :math:`\varepsilon` of each layer,

    .. math::
        x_v \leftarrow \mathrm{ReLU}\Big(\mathrm{BN}\big(\mathrm{MLP}\big((1 + \varepsilon) x_v +
        \textstyle\sum_{u \to v} \mathrm{ReLU}(x_u + W c_{uv})\big)\big)\Big) .

    The MLP has one hidden layer of double width with batch normalisation before its ReLU, and no biases, because
    normalisation would remove them. The last layer has no outer ReLU. Error messages start with ``encoder_name``.
    """

    def __init__(self, encoder_name: str, num_columns: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        check_layers(encoder_name, width, layers, dropout)
        self.dropout = dropout
        self.own = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in range(layers))
        self.edges = nn.ModuleList(nn.Linear(num_columns, width, bias=False) for _ in range(layers))
        self.mlps = nn.ModuleList(_mlp(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        """Update node vectors ``x`` ``(N, width)`` with the ``columns`` ``(E, k)`` of edges, ``(N, width)``."""
        for number, (own, edges, mlp, norm) in enumerate(
            zip(self.own, self.edges, self.mlps, self.norms, strict=True), start=1
        ):
            messages = torch.relu(x.index_select(0, source) + edges(columns))
            summed = torch.zeros_like(x).index_add(0, target, messages.to(x.dtype))
            x = norm(mlp((1 + own) * x + summed))
            x = F.dropout(torch.relu(x) if number < len(self.mlps) else x, self.dropout, self.training)
        return x


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, 2 * width, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(inplace=True),
        nn.Linear(2 * width, width, bias=False),
    )


@final
class CodeEmbedding(nn.Module):
    """Sums learned vectors, one for each of several category numbers.

    Args:
        sizes: number of categories of each column. Larger numbers count as the last category; -1, the mask token, has a
            vector of its own.
        width: length of the vectors.
    """

    first: Tensor
    last: Tensor

    def __init__(self, sizes: tuple[int, ...], width: int) -> None:
        super().__init__()
        ends = list(accumulate(size + 1 for size in sizes))
        self.weight = nn.Parameter(torch.empty(ends[-1], width))
        # The rows of a column follow each other; the first one is the mask token.
        first = [end - size for end, size in zip(ends, sizes, strict=True)]
        self.register_buffer("first", torch.tensor(first), persistent=False)
        self.register_buffer("last", torch.tensor(ends) - 1, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Embed ``(N, columns)`` category numbers as ``(N, width)`` vectors."""
        return F.embedding(self._rows(codes), self.weight).sum(1)

    def embed_padded(self, codes: Tensor, keep: Tensor) -> Tensor:
        """Embed the category numbers ``(V, N, columns)`` of padded views; 0 for nodes that are not kept."""
        # A product with one-hot rows, because its gradient does not synchronise with the host.
        with torch.autocast(codes.device.type, enabled=False):
            counts = self.weight.new_zeros(*keep.shape, len(self.weight)).scatter_(2, self._rows(codes), 1)
            return (counts * keep.unsqueeze(-1)) @ self.weight

    def _rows(self, codes: Tensor) -> Tensor:
        return torch.minimum(codes.long().clamp(min=-1) + self.first, self.last)


@final
class OgbGin(MeanEncoder):
    """The graph isomorphism network of the paper's setting on ogbg-ppa, for numeric edge attributes.

    The first node vectors are :math:`W_0 x_v`; if all nodes have the input 1, as published, this is one common vector.
    The edge columns of :class:`OgbLayers` are the attributes of the edge and 1. The embedding of a graph is the mean
    over its nodes.
    """

    def __init__(
        self, num_features: int, num_edge_features: int = 0, width: int = 300, layers: int = 5, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("OgbGin", num_edge_features + 1, width, layers, dropout)
        self.first = nn.Linear(num_features, width, bias=False)
        nn.init.normal_(self.first.weight, std=num_features**-0.5)
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        ones = batch.x.new_ones(batch.num_edges, 1)
        columns = ones if batch.edge_attr is None else torch.cat([batch.edge_attr.to(ones.dtype), ones], dim=1)
        return cast(Tensor, self.layers(self.first(batch.x), batch.source, batch.target, columns))


@final
class OgbMoleculeGin(MeanEncoder):
    """The graph isomorphism network of the OGB setting for molecules, on OGB's nine atom and three bond features.

    An atom starts with the sum of the vectors of its nine features (:mod:`joao.core.codes`). The edge columns of
    :class:`OgbLayers` are one-hot bond features, so that :math:`W c_{uv}` sums their vectors. The embedding of a graph
    is the mean over its atoms. Atoms with the features -1 get the vectors of the mask token.
    """

    codes = "ogb_atoms"

    def __init__(
        self,
        num_features: int = len(OGB_ATOM_SIZES),
        num_edge_features: int = len(OGB_BOND_SIZES),
        width: int = 300,
        layers: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("OgbMoleculeGin", sum(OGB_BOND_SIZES), width, layers, dropout)
        if (num_features, num_edge_features) != (len(OGB_ATOM_SIZES), len(OGB_BOND_SIZES)):
            raise UserError(
                f"OgbMoleculeGin: requires {len(OGB_ATOM_SIZES)} columns of atoms and {len(OGB_BOND_SIZES)} of bonds, "
                f"got {num_features} and {num_edge_features}. Use it for OGB's molecules, and molecule_gin for others."
            )
        self.atoms = CodeEmbedding(OGB_ATOM_SIZES, width)
        for table in (self.atoms, *self.layers.edges):
            nn.init.xavier_uniform_(cast(nn.Linear, table).weight)
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        assert batch.edge_attr is not None  # checked by the constructor: three columns
        x = self.atoms(batch.x)
        return cast(Tensor, self.layers(x, batch.source, batch.target, bond_columns(batch.edge_attr, x.dtype)))


def bond_columns(bonds: Tensor, dtype: torch.dtype) -> Tensor:
    """Encode ``(E, 3)`` bond features as ``(E, 13)`` one-hot columns."""
    last = torch.tensor(OGB_BOND_SIZES, device=bonds.device) - 1
    first = torch.tensor(OGB_BOND_SIZES, device=bonds.device).cumsum(0) - last - 1
    rows = torch.minimum(bonds.long(), last) + first
    return torch.zeros(len(bonds), sum(OGB_BOND_SIZES), dtype=dtype, device=bonds.device).scatter_(1, rows, 1)


@final
class SyntaxGin(MeanEncoder):
    """The graph isomorphism network of the paper's setting on ogbg-code, for syntax trees of programs.

    A node starts with the sum of the vectors of its type, attribute and depth (:mod:`joao.core.codes`). Besides the
    edges of the tree, each node with an attribute (a token) is connected to the next token of its graph in depth-first
    order. This happens here, after augmentation, so that removing a token closes the chain. The edge columns of
    :class:`OgbLayers` are whether the edge connects tokens, whether it points backwards, and 1. The embedding of a
    graph is the mean over its nodes. Nodes with the features -1 get the vectors of the mask token and are not tokens.

    Args:
        dropout: dropout probability after every layer.
        types, attributes: number of categories; larger numbers count as the last one.
        most_depth: larger depths count as this one.
    """

    codes = "syntax_nodes"

    def __init__(
        self,
        num_features: int = OGB_TREE_COLUMNS,
        num_edge_features: int = 1,
        width: int = 300,
        layers: int = 5,
        dropout: float = 0.0,
        types: int = OGB_NODE_TYPES,
        attributes: int = OGB_NODE_ATTRIBUTES,
        most_depth: int = OGB_MAX_DEPTH,
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("SyntaxGin", 3, width, layers, dropout)
        if (num_features, num_edge_features) != (OGB_TREE_COLUMNS, 1):
            raise UserError(
                f"SyntaxGin: requires {OGB_TREE_COLUMNS} columns of nodes and one of edges, got {num_features} and "
                f"{num_edge_features}. Use it for OGB's syntax trees, and encoder gin for other graphs."
            )
        if min(types, attributes) < 1 or most_depth < 0:
            raise UserError(
                f"SyntaxGin: types and attributes must be at least 1 and most_depth at least 0, got {types}, "
                f"{attributes} and {most_depth}."
            )
        self.nodes = CodeEmbedding((types, attributes, most_depth + 1), width)
        nn.init.normal_(self.nodes.weight)
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        assert batch.edge_attr is not None  # checked by the constructor: one column
        x = self.nodes(batch.x[:, :3])
        token, following = next_tokens(batch)
        source = torch.cat([batch.source, token, following])
        target = torch.cat([batch.target, following, token])
        backwards = [batch.edge_attr[:, 0].to(x.dtype), x.new_zeros(len(token)), x.new_ones(len(token))]
        joins_tokens = torch.arange(len(source), device=x.device) >= batch.num_edges
        columns = torch.stack([joins_tokens.to(x.dtype), torch.cat(backwards), x.new_ones(len(source))], dim=1)
        return cast(Tensor, self.layers(x, source, target, columns))


def next_tokens(batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Pairs of successive tokens in each graph, as two tensors ``(t,)``."""
    position = batch.x[:, 3].long()
    tokens = (position >= 0).nonzero().squeeze(1)
    tokens = tokens[torch.argsort(position[tokens], stable=True)]
    tokens = tokens[torch.argsort(batch.graph_of_node[tokens], stable=True)]
    graph = batch.graph_of_node[tokens]
    joined = (graph[1:] == graph[:-1]).nonzero().squeeze(1)
    return tokens[joined], tokens[joined + 1]
