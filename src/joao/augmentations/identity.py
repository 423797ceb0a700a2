from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from joao.augmentations.base import Augmentation
from joao.graphs import GraphBatch


@final
@dataclass(frozen=True)
class Identity(Augmentation):
    """Changes nothing: the paper's "Identical"."""

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        return batch
