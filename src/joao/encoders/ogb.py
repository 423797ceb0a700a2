from __future__ import annotations

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
    r"""The layers that the encoders of the OGB setting share.

    With columns :math:`c_{uv}` of edges, and in every layer :math:`W` and :math:`\varepsilon` of its own,

    .. math::
        x_v \leftarrow \mathrm{ReLU}\Big(\mathrm{BN}\big(\mathrm{MLP}\big((1 + \varepsilon) x_v +
        \textstyle\sum_{u \to v} \mathrm{ReLU}(x_u + W c_{uv})\big)\big)\Big) .

    The MLP has one hidden layer, twice as wide, with batch normalisation before its ReLU. The last layer has no outer
    ReLU. What normalisation would take out again, the biases of the MLP, is left out.

    Args:
        encoder_name: whose layers they are, for messages.
        num_columns: of edges.
        width: of all layers.
        layers: how many.
        dropout: the share of entries of every layer's output that are 0 in training.
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
        """``(N, width)`` vectors of nodes from ``x`` ``(N, width)`` and the ``columns`` ``(E, k)`` of edges."""
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
    """The sum of learned vectors, one for each of several numbers of categories.

    Args:
        sizes: how many categories each number has; one beyond is taken for the last. -1 has a vector of its own, the
            mask token's.
        width: of the vectors.
    """

    first: Tensor
    last: Tensor

    def __init__(self, sizes: tuple[int, ...], width: int) -> None:
        super().__init__()
        ends = list(accumulate(size + 1 for size in sizes))
        self.weight = nn.Parameter(torch.empty(ends[-1], width))
        # A column has its rows behind one another, the mask token's first.
        first = [end - size for end, size in zip(ends, sizes, strict=True)]
        self.register_buffer("first", torch.tensor(first), persistent=False)
        self.register_buffer("last", torch.tensor(ends) - 1, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """``(N, columns)`` to ``(N, width)``."""
        rows = torch.minimum(codes.long().clamp(min=-1) + self.first, self.last)
        return F.embedding(rows, self.weight).sum(1)


@final
class OgbGin(MeanEncoder):
    r"""The graph isomorphism network of the paper's setting on ogbg-ppa, for edges that carry any numbers.

    It begins with :math:`W_0 x_v`, which is the same vector for all nodes where all have the input 1, as published, and
    goes on as :class:`~joao.encoders.ogb.OgbLayers`, the columns of an edge being its numbers and 1. The
    embedding of a graph is the mean over its nodes.

    Args:
        dropout: the share of entries of every layer's output that are 0 in training.
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
        nodes: Tensor = self.layers(self.first(batch.x), batch.source, batch.target, columns)
        return nodes


@final
class OgbMoleculeGin(MeanEncoder):
    r"""The graph isomorphism network of the OGB setting for molecules, which knows OGB's nine and three numbers.

    An atom begins with the sum of the vectors of its nine numbers, see :mod:`joao.core.codes`. The layers are those of
    :class:`~joao.encoders.ogb.OgbLayers`, where the columns of a bond say by 0 and 1 which three numbers it
    has, so that :math:`W c_{uv}` is the sum of their vectors. The embedding of a graph is the mean over its atoms. An
    atom whose numbers are -1 has the vectors of the mask token.

    Args:
        dropout: the share of entries of every layer's output that are 0 in training.
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
                f"OgbMoleculeGin: wants atoms of {len(OGB_ATOM_SIZES)} numbers and bonds of {len(OGB_BOND_SIZES)}, "
                f"got {num_features} and {num_edge_features} columns. Give molecules of OGB, or use encoder "
                "molecule_gin."
            )
        self.atoms = CodeEmbedding(OGB_ATOM_SIZES, width)
        for table in (self.atoms, *self.layers.edges):
            nn.init.xavier_uniform_(cast(nn.Linear, table).weight)
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        assert batch.edge_attr is not None  # or it would not have three columns
        x = self.atoms(batch.x)
        nodes: Tensor = self.layers(x, batch.source, batch.target, _bond_columns(batch.edge_attr, x.dtype))
        return nodes


def _bond_columns(bonds: Tensor, dtype: torch.dtype) -> Tensor:
    """``(E, 3)`` numbers to ``(E, 13)`` zeros and ones."""
    last = torch.tensor(OGB_BOND_SIZES, device=bonds.device) - 1
    first = torch.tensor(OGB_BOND_SIZES, device=bonds.device).cumsum(0) - last - 1
    rows = torch.minimum(bonds.long(), last) + first
    return torch.zeros(len(bonds), sum(OGB_BOND_SIZES), dtype=dtype, device=bonds.device).scatter_(1, rows, 1)


@final
class SyntaxGin(MeanEncoder):
    r"""The graph isomorphism network of the paper's setting on ogbg-code, for syntax trees of programs.

    A node begins with the sum of the vectors of its type, attribute and depth, see :mod:`joao.core.codes`. Beside the
    edges of the tree, each node with an attribute is joined to the next one of its graph, in the order of a
    depth-first walk: the next token. This happens here, so that what an augmentation takes out closes up. The
    layers are those of :class:`~joao.encoders.ogb.OgbLayers`; the columns of an edge are whether it joins
    tokens, whether it goes backwards, and 1. The embedding of a graph is the mean over its nodes. A node whose numbers
    are -1 has the vectors of the mask token and is no token.

    Args:
        dropout: the share of entries of every layer's output that are 0 in training.
        types, attributes: sizes of the tables; a number beyond is taken for the last.
        most_depth: where depths are capped.
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
                f"SyntaxGin: wants nodes of {OGB_TREE_COLUMNS} numbers and edges of one, got {num_features} and "
                f"{num_edge_features} columns. Give syntax trees of OGB, or use encoder gin."
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
        assert batch.edge_attr is not None  # or it would not have a column
        x = self.nodes(batch.x[:, :3])
        token, following = next_tokens(batch)
        source = torch.cat([batch.source, token, following])
        target = torch.cat([batch.target, following, token])
        backwards = [batch.edge_attr[:, 0].to(x.dtype), x.new_zeros(len(token)), x.new_ones(len(token))]
        joins_tokens = torch.arange(len(source), device=x.device) >= batch.num_edges
        columns = torch.stack([joins_tokens.to(x.dtype), torch.cat(backwards), x.new_ones(len(source))], dim=1)
        nodes: Tensor = self.layers(x, source, target, columns)
        return nodes


def next_tokens(batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Each node with an attribute that has another one behind it in its graph, and that one, ``(t,)`` each."""
    place = batch.x[:, 3].long()
    tokens = (place >= 0).nonzero().squeeze(1)
    tokens = tokens[torch.argsort(place[tokens], stable=True)]
    tokens = tokens[torch.argsort(batch.graph_of_node[tokens], stable=True)]
    graph = batch.graph_of_node[tokens]
    joined = (graph[1:] == graph[:-1]).nonzero().squeeze(1)
    return tokens[joined], tokens[joined + 1]
