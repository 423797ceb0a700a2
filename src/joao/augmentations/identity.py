from dataclasses import dataclass
from typing import final

import torch

from joao.augmentations.base import PaddedAugmentation
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedBatch


@final
@dataclass(frozen=True)
class Identity(PaddedAugmentation):
    """Change nothing: "Identical" in the paper.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(3)])
    >>> Identity()(batch, torch.Generator()) is batch
    True
    """

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        return batch

    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        return batch
