from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from joao.encoders.base import Encoder, sum_nodes
from joao.errors import UserError, nearest
from joao.graphs import GraphBatch


@final
class Convolutions(Encoder):
    """Layers of any torch-geometric convolution, each followed by ReLU and batch normalisation.

    The embedding of a graph is, for every layer, the sum over its nodes, side by side, as in :class:`Gin`. Edge
    attributes are used by a convolution built with ``edge_dim``, a single column of them also as ``edge_weight``.

    Args:
        convolution: a name in :mod:`torch_geometric.nn` such as ``"GATConv"``, or a function that takes the numbers
            of input and output columns and returns a module to be called with ``x`` and ``edge_index``.
    """

    def __init__(
        self,
        num_features: int,
        num_edge_features: int = 0,
        convolution: str | Callable[[int, int], nn.Module] = "GCNConv",
        width: int = 32,
        layers: int = 3,
    ) -> None:
        super().__init__()
        if width < 1 or layers < 1:
            raise UserError(f"Convolutions: width and layers must be at least 1, got {width} and {layers}.")
        make = _maker(convolution, num_edge_features) if isinstance(convolution, str) else convolution
        widths = [num_features] + [width] * layers
        self.convolutions = nn.ModuleList(make(before, width) for before in widths[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.num_dimensions = width * layers

    def forward(self, batch: GraphBatch) -> Tensor:
        x, edge_index, pooled = batch.x, batch.edge_index, []
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(torch.relu(convolution(x, edge_index, **_edge_arguments(convolution, batch))))
            pooled.append(sum_nodes(x, batch))
        return torch.cat(pooled, dim=1)


def _maker(name: str, num_edge_features: int) -> Callable[[int, int], nn.Module]:
    import torch_geometric.nn.conv as conv

    known = [each for each in dir(conv) if each.endswith("Conv")]
    if name not in known:
        raise UserError(f"Convolutions: torch-geometric has no convolution '{name}'. {nearest(name, known)}")
    kind: Any = getattr(conv, name)
    parameters = inspect.signature(kind.__init__).parameters
    options = {"edge_dim": num_edge_features} if "edge_dim" in parameters and num_edge_features else {}

    def make(before: int, after: int) -> nn.Module:
        try:
            module: nn.Module = kind(before, after, **options)
        except (TypeError, ValueError, AssertionError, AttributeError) as error:
            raise UserError(
                f"Convolutions: {name} needs more than numbers of columns ({error}). Give a function."
            ) from error
        return module

    return make


def _edge_arguments(convolution: nn.Module, batch: GraphBatch) -> dict[str, Tensor]:
    if batch.edge_attr is None:
        return {}
    parameters = inspect.signature(convolution.forward).parameters
    if "edge_attr" in parameters and getattr(convolution, "edge_dim", None):
        return {"edge_attr": batch.edge_attr}
    if "edge_weight" in parameters and batch.edge_attr.shape[1] == 1:
        return {"edge_weight": batch.edge_attr[:, 0]}
    return {}
