from dataclasses import dataclass
from typing import final

import torch

from joao.augmentations.base import PaddedAugmentation, choose_nodes, choose_padded_nodes
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedBatch, keep_nodes


@final
@dataclass(frozen=True)
class NodeDrop(PaddedAugmentation):
    r"""Remove :math:`\lfloor s n \rfloor` uniformly chosen nodes of each graph of n nodes, and their edges.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.complete_graph(5), networkx.complete_graph(10)])
    >>> NodeDrop(0.2)(batch, torch.Generator()).nodes_per_graph.tolist()
    [4, 8]
    """

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        return batch.keep_nodes(~choose_nodes(batch, self.strength, generator))

    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        return keep_nodes(batch, ~choose_padded_nodes(batch, self.strength, generator))
