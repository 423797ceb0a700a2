from __future__ import annotations

from itertools import accumulate
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from joao.encoders.base import check_layers


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
        owner: whose layers they are, for messages.
        num_columns: of edges.
        width: of all layers.
        layers: how many.
        dropout: the share of entries of every layer's output that are 0 in training.
    """

    def __init__(self, owner: str, num_columns: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        check_layers(owner, width, layers, dropout)
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
class CodeTable(nn.Module):
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
