from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from joao.encoders._ogb_layers import CodeTable, OgbLayers
from joao.encoders.base import MeanEncoder
from joao.errors import UserError
from joao.graphs import GraphBatch
from joao.ogb_codes import ATTRIBUTES, MOST_DEPTH, SYNTAX_COLUMNS, TYPES


@final
class SyntaxGin(MeanEncoder):
    r"""The graph isomorphism network of the paper's setting on ogbg-code, for syntax trees of programs.

    A node begins with the sum of the vectors of its type, attribute and depth, see :mod:`joao.ogb_codes`. Beside the
    edges of the tree, each node with an attribute is joined to the next one of its graph, in the order of a
    depth-first walk: the next token. This happens here, so that what an augmentation takes out closes up. The
    layers are those of :class:`~joao.encoders._ogb_layers.OgbLayers`; the columns of an edge are whether it joins
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
        num_features: int = SYNTAX_COLUMNS,
        num_edge_features: int = 1,
        width: int = 300,
        layers: int = 5,
        dropout: float = 0.0,
        types: int = TYPES,
        attributes: int = ATTRIBUTES,
        most_depth: int = MOST_DEPTH,
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("SyntaxGin", 3, width, layers, dropout)
        if (num_features, num_edge_features) != (SYNTAX_COLUMNS, 1):
            raise UserError(
                f"SyntaxGin: wants nodes of {SYNTAX_COLUMNS} numbers and edges of one, got {num_features} and "
                f"{num_edge_features} columns. Give syntax trees of OGB, or use encoder gin."
            )
        if min(types, attributes) < 1 or most_depth < 0:
            raise UserError(
                f"SyntaxGin: types and attributes must be at least 1 and most_depth at least 0, got {types}, "
                f"{attributes} and {most_depth}."
            )
        self.nodes = CodeTable((types, attributes, most_depth + 1), width)
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
