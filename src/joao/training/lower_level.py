"""The lower level of JOAO: how hard is every pair of augmentations now?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation
from joao.objectives import PairObjective
from joao.training.model import project, statistics_untouched
from joao.training.share import Share


@torch.no_grad()
def pair_losses(
    model: nn.Module,
    share: Share,
    pool: Sequence[Augmentation],
    objective: PairObjective,
    generator: torch.Generator,
) -> Tensor:
    r"""The loss :math:`\ell_{ij}` of a batch under every ordered pair of augmentations, ``(K, K)`` (Eq. 7).

    Each augmentation is drawn twice and each draw is encoded once; the pair (i, j) compares the first draw of i
    with the second of j. So at most :math:`2K` encodings serve all :math:`K^2` pairs, and (i, i) compares two draws.

    Normalisation uses the statistics of each draw and forgets them. Several processes have a ``share`` each of the
    batch and rows each of the table, and all have the whole of it.
    """
    numbers = range(len(pool))
    with statistics_untouched(model):
        first = [project(model, share.view(torch.tensor([k]), pool, generator), share.gather) for k in numbers]
        views = [share.view(torch.tensor([k]), pool, generator) for k in numbers]
        # Graphs that were left as they are need not be encoded again.
        again = [first[k] if share.is_unchanged(views[k]) else project(model, views[k], share.gather) for k in numbers]
        second = torch.stack(again)
    ranks, table = share.ranks, second.new_zeros(len(pool), len(pool))
    for k in range(ranks.rank, len(pool), ranks.size):
        table[k] = objective(first[k], second)
    return ranks.total(table)
