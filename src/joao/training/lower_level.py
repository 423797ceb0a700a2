"""The lower level of JOAO: how hard is every pair of augmentations now?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.graphs import GraphBatch
from joao.objectives import Objective
from joao.training.model import project, statistics_untouched
from joao.training.views import view_by_one


@torch.no_grad()
def pair_losses(
    model: nn.Module,
    batch: GraphBatch,
    pool: Sequence[Augmentation],
    objective: Objective,
    generator: torch.Generator,
) -> Tensor:
    r"""The loss :math:`\ell_{ij}` of ``batch`` under every ordered pair of augmentations, ``(K, K)`` (Eq. 7).

    Each augmentation is drawn twice and each draw is encoded once; the pair (i, j) compares the first draw of i
    with the second of j. So :math:`2K` encodings serve all :math:`K^2` pairs, and (i, i) compares two draws.

    Normalisation uses the statistics of each draw and forgets them.
    """
    with statistics_untouched(model):
        first, second = (
            torch.stack([project(model, view_by_one(batch, k, pool, generator)) for k in range(len(pool))])
            for _ in range(2)
        )
    return torch.stack([objective(each, second) for each in first])
