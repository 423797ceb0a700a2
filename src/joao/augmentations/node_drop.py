from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from joao.augmentations.base import Augmentation, choose_nodes
from joao.graphs import GraphBatch


@final
@dataclass(frozen=True)
class NodeDrop(Augmentation):
    r"""Removes some nodes of each graph, and the edges that touch them.

    Of a graph with :math:`n` nodes, :math:`\lfloor s n \rfloor` are removed, chosen uniformly.
    """

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        return batch.keep_nodes(~choose_nodes(batch, self.strength, generator))
