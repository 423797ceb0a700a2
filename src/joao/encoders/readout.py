"""The readout: from the node vectors of all layers to the embedding of a graph."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.encoders.layers import sum_nodes

STATISTICS = ("sum", "mean", "max")
_WRITTEN = re.compile(r"(log\()?([a-z]+(?:\+[a-z]+)*)(?(1)\))")


class Readout:
    r"""Concatenates statistics over the nodes of each graph.

    ``sum``, ``mean`` and ``max`` are taken of every layer, ``input`` is the sum of the input features. ``log(...)``
    replaces each value :math:`v` by :math:`\mathrm{sign}(v) \log(1 + |v|)`, so that large graphs do not dominate.

    Pre-training uses the encoder's own pooling; a readout changes only the embeddings.

    >>> Readout("log(sum+mean+input)").width(num_features=7, layer_widths=[32, 32])
    135
    >>> Readout("median")
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: readout: expected some of sum, mean, max, input, joined by '+', got 'median'.
    """

    def __init__(self, text: str) -> None:
        found = _WRITTEN.fullmatch(text)
        self.names = found[2].split("+") if found else []
        if not self.names or not {*self.names} <= {*STATISTICS, "input"} or len({*self.names}) < len(self.names):
            known = ", ".join((*STATISTICS, "input"))
            raise UserError(f"readout: expected some of {known}, joined by '+', got '{text}'.")
        self.is_log = found is not None and found[1] is not None

    def width(self, num_features: int, layer_widths: Sequence[int]) -> int:
        """Length of the embeddings."""
        return sum(num_features if name == "input" else sum(layer_widths) for name in self.names)

    def __call__(self, layers: Sequence[Tensor], batch: GraphBatch) -> Tensor:
        """Embed the graphs of ``batch`` from the node vectors ``(N, d)`` of each layer."""
        parts: list[Tensor] = []
        for name in self.names:
            if name == "input":
                parts.append(sum_nodes(batch.x.to(layers[0].dtype), batch))
            else:
                parts += [_pool(name, x, batch) for x in layers]
        joined = torch.cat(parts, dim=1)
        return joined.sign() * joined.abs().log1p() if self.is_log else joined


def _pool(name: str, x: Tensor, batch: GraphBatch) -> Tensor:
    if name == "max":
        index = batch.graph_of_node.unsqueeze(1).expand_as(x)
        # Graphs without nodes would keep -inf; as in a sum, they get 0.
        lowest = x.new_full((batch.num_graphs, x.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, index, x, "amax").nan_to_num(neginf=0.0)
    sums = sum_nodes(x, batch)
    return sums / batch.nodes_per_graph.clamp(min=1).unsqueeze(1) if name == "mean" else sums
