from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor, nn

from joao.encoders._ogb_layers import CodeTable, OgbLayers
from joao.encoders.base import MeanEncoder
from joao.errors import UserError
from joao.graphs import GraphBatch
from joao.ogb_codes import ATOMS, BONDS


@final
class OgbMoleculeGin(MeanEncoder):
    r"""The graph isomorphism network of the OGB setting for molecules, which knows OGB's nine and three numbers.

    An atom begins with the sum of the vectors of its nine numbers, see :mod:`joao.ogb_codes`. The layers are those of
    :class:`~joao.encoders._ogb_layers.OgbLayers`, where the columns of a bond say by 0 and 1 which three numbers it
    has, so that :math:`W c_{uv}` is the sum of their vectors. The embedding of a graph is the mean over its atoms. An
    atom whose numbers are -1 has the vectors of the mask token.

    Args:
        dropout: the share of entries of every layer's output that are 0 in training.
    """

    codes = "ogb_atoms"

    def __init__(
        self,
        num_features: int = len(ATOMS),
        num_edge_features: int = len(BONDS),
        width: int = 300,
        layers: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = OgbLayers("OgbMoleculeGin", sum(BONDS), width, layers, dropout)
        if (num_features, num_edge_features) != (len(ATOMS), len(BONDS)):
            raise UserError(
                f"OgbMoleculeGin: wants atoms of {len(ATOMS)} numbers and bonds of {len(BONDS)}, got {num_features} "
                f"and {num_edge_features} columns. Give molecules of OGB, or use encoder molecule_gin."
            )
        self.atoms = CodeTable(ATOMS, width)
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
    last = torch.tensor(BONDS, device=bonds.device) - 1
    first = torch.tensor(BONDS, device=bonds.device).cumsum(0) - last - 1
    rows = torch.minimum(bonds.long(), last) + first
    return torch.zeros(len(bonds), sum(BONDS), dtype=dtype, device=bonds.device).scatter_(1, rows, 1)
