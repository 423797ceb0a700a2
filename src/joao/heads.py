"""Projection heads between embedding and loss. They are discarded after pre-training."""

from abc import ABC, abstractmethod
from typing import cast, final

import torch
from torch import Tensor, nn

from joao.core.registry import catalogue


class Heads(nn.Module, ABC):
    """Projects the embeddings of views. A head may depend on the augmentation that made a view.

    Args:
        num_dimensions: of the embeddings and of their projections.
        num_augmentations: size of the pool.

    Attributes:
        shared: whether all augmentations are treated alike.
    """

    shared: bool = False

    @abstractmethod
    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        """Project ``embeddings``.

        Args:
            embeddings: ``(G, d)``, one row per view.
            augmentation: number of the augmentation in the pool, one for all views or one per view, ``(G,)``.
        """


@final
class SharedHead(Heads):
    """One head for all views, as in GraphCL and JOAO."""

    shared = True

    def __init__(self, num_dimensions: int, num_augmentations: int) -> None:
        super().__init__()
        self.head = _make_head(num_dimensions)

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        return cast(Tensor, self.head(embeddings))


@final
class HeadPerAugmentation(Heads):
    """A head for each augmentation, as in JOAOv2 (Section 3.3).

    The heads are separate modules, so that a head that was not used has no gradient instead of a zero gradient. Adam
    would otherwise keep moving it by momentum.
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
    """Returns the embeddings unchanged."""

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
