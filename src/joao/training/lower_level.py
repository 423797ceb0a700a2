"""The lower level of JOAO: how hard is every pair of augmentations now?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.graphs import GraphBatch
from joao.objectives import PairObjective
from joao.training.model import project, statistics_untouched
from joao.training.views import view_by_one


@torch.no_grad()
def pair_losses(
    model: nn.Module,
    batch: GraphBatch,
    pool: Sequence[Augmentation],
    objective: PairObjective,
    generator: torch.Generator,
) -> Tensor:
    r"""The loss :math:`\ell_{ij}` of ``batch`` under every ordered pair of augmentations, ``(K, K)`` (Eq. 7).

    Each augmentation is drawn twice and each draw is encoded once; the pair (i, j) compares the first draw of i
    with the second of j. So at most :math:`2K` encodings serve all :math:`K^2` pairs, and (i, i) compares two draws.

    Normalisation uses the statistics of each draw and forgets them.
    """
    numbers = range(len(pool))
    with statistics_untouched(model):
        first = [project(model, view_by_one(batch, k, pool, generator)) for k in numbers]
        views = [view_by_one(batch, k, pool, generator) for k in numbers]
        # Graphs that were left as they are need not be encoded again.
        second = torch.stack([first[k] if views[k].batch is batch else project(model, views[k]) for k in numbers])
    return torch.stack([objective(each, second) for each in first])
