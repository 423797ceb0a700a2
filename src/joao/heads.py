"""Projection heads: what stands between the embedding and the loss, and is thrown away after pre-training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from joao.core.registry import catalogue


class Heads(nn.Module, ABC):
    """Projects embeddings of views, knowing which augmentation made each view.

    Args:
        num_dimensions: of the embeddings and of their projections.
        num_augmentations: in the pool.

    Attributes:
        shared: whether all augmentations are treated alike.
    """

    shared: bool = False

    @abstractmethod
    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        """Projects ``embeddings`` ``(G, d)`` of views.

        Args:
            embeddings: one row a view.
            augmentation: the pool's number of the augmentation that made all the views, or of each, ``(G,)``.
        """


@final
class SharedHead(Heads):
    """One head for all views: JOAO, and GraphCL."""

    shared = True

    def __init__(self, num_dimensions: int, num_augmentations: int) -> None:
        super().__init__()
        self.head = _make_head(num_dimensions)

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        projected: Tensor = self.head(embeddings)
        return projected


@final
class HeadPerAugmentation(Heads):
    """The view made by augmentation i goes through head i: JOAOv2 (Section 3.3).

    The heads are modules of their own, so that a head that was not used has no gradient, rather than a gradient of
    zero: Adam then leaves it alone, where it would otherwise go on moving it by momentum.
    """

    def __init__(self, num_dimensions: int, num_augmentations: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(_make_head(num_dimensions) for _ in range(num_augmentations))

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        if isinstance(augmentation, int):
            projected: Tensor = self.heads[augmentation](embeddings)
            return projected
        projected = torch.empty_like(embeddings)
        for number in torch.unique(augmentation).tolist():
            views = (augmentation == number).nonzero().squeeze(1)
            projected = projected.index_copy(0, views, self.heads[number](embeddings[views]).to(projected.dtype))
        return projected


@final
class NoHead(Heads):
    """Embeddings as they are."""

    shared = True

    def __init__(self, num_dimensions: int, num_augmentations: int) -> None:
        super().__init__()

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        return embeddings


def _make_head(width: int) -> nn.Sequential:
    layers = [nn.Linear(width, width), nn.Linear(width, width)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


HEADS: dict[str, type[Heads]] = catalogue(Heads, globals())
