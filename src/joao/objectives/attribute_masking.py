from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from joao.core.codes import NUM_ELEMENTS
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, nonzero_indices, take_rows
from joao.core.randomness import random_choice
from joao.objectives.base import EncodeNodes, NodeObjective, full_precision


@final
@dataclass(frozen=True)
class AttributeMasking(NodeObjective):
    r"""Predict masked atoms from their surroundings: AttrMasking (Hu et al., 2020).

    In every molecule of n atoms, :math:`\min(n, \lfloor r n \rfloor + 1)` atoms are replaced by the mask token. Over
    the masked atoms M of a batch, with their vectors :math:`x_v`,

    .. math:: \ell = - \frac{1}{|M|} \sum_{v \in M} \log \mathrm{softmax}(W x_v + b)_{\mathrm{element}(v)} ,

    where :math:`W` and :math:`b` are learned.

    Args:
        share: :math:`r`.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> carbon = replace(batch_of([networkx.path_graph(10)]), x=torch.tensor([[5.0, 0.0]] * 10))  # as numbers of atoms
    >>> knows = nn.Linear(1, NUM_ELEMENTS)
    >>> _ = nn.init.zeros_(knows.weight), nn.init.zeros_(knows.bias)
    >>> loss = AttributeMasking()(lambda shown: torch.ones(10, 1), knows, carbon, torch.Generator())
    >>> round(loss.item(), 2)  # all 119 elements are equally likely: log 119
    4.78
    """

    methods: ClassVar[Mapping[str, str]] = {"attr_masking": "AttrMasking"}
    needs_atoms: ClassVar[bool] = True
    share: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise UserError(f"AttributeMasking: share must be in [0, 1), got {self.share}.")

    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        return nn.Linear(num_node_dimensions, NUM_ELEMENTS)

    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        sizes = batch.nodes_per_graph
        count = torch.minimum((self.share * sizes.double() + 1e-9).long() + 1, sizes)
        masked = nonzero_indices(random_choice(batch.graph_of_node, sizes, count, generator))
        shown = replace(batch, x=batch.x.index_fill(0, masked, -1))
        vectors = take_rows(full_precision(encode_nodes(shown)), masked)
        with torch.autocast(vectors.device.type, enabled=False):
            scores = parts(vectors)
        return cross_entropy(scores, take_rows(batch.x, masked)[:, 0].long())
