from __future__ import annotations

import torch
from torch import Tensor

from joao.core.graphs import take_rows
from joao.core.padded import PaddedBatch


def first_passage(batch: PaddedBatch, start: Tensor, waiting: Tensor) -> Tensor:
    r"""The smallest solution :math:`t` of :math:`t_v = \min(s_v, \; w_v + \min_{u \sim v} t_u)`, ``(N,)``.

    Args:
        batch: the graphs; their edges, whatever nodes are kept.
        start: ``(N,)`` float64, :math:`s \ge 0`.
        waiting: ``(N,)`` float64, :math:`w \ge 0`.
    """
    if start.is_cuda:
        from joao.kernels import _triton

        return _triton.first_passage(batch, start, waiting)
    return swept(batch.source, batch.target, start, waiting)


def swept(source: Tensor, target: Tensor, start: Tensor, waiting: Tensor, sweeps_per_check: int = 8) -> Tensor:
    """The same by sweeps over all edges until nothing changes."""
    time = start.clone()
    arrival_waiting = take_rows(waiting, target)
    while True:
        before = time.clone()
        for _ in range(sweeps_per_check):
            time.scatter_reduce_(0, target, take_rows(time, source) + arrival_waiting, "amin")
        if torch.equal(before, time):
            return time
