from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

TOLERANCE = 1e-3  # libsvm's
MAX_STEPS = 10_000_000  # likewise
MAX_ROWS = 16_384  # that a program of the Triton form holds


def has_fast_solver(num_rows: int, device: str) -> bool:
    """Whether there is a quick form for machines of so many rows; the plain one is for small ones."""
    return device == "cuda" and num_rows <= MAX_ROWS and importlib.util.find_spec("triton") is not None


@final
@dataclass(frozen=True)
class SvmProblems:
    """Support vector machines of two classes, to be fitted side by side.

    Attributes:
        kernels: ``(M, n, n)`` float32, symmetric.
        matrix: ``(P,)`` which of them each machine has.
        rows: ``(P, m)`` its rows and columns; behind a machine's last one, any.
        sign: ``(P, m)`` float64, the class of each row, 1 or -1; behind a machine's last row, 0.
        bound: ``(P,)`` float64, the :math:`C` of each machine.
    """

    kernels: Tensor
    matrix: Tensor
    rows: Tensor
    sign: Tensor
    bound: Tensor


def solve_duals(problems: SvmProblems) -> tuple[Tensor, Tensor]:
    r"""Fits the machines: for each,

    .. math:: \min_\alpha \tfrac{1}{2} \sum_{ij} y_i y_j k_{ij} \alpha_i \alpha_j - \sum_i \alpha_i,
        \qquad 0 \le \alpha \le C, \quad \sum_i y_i \alpha_i = 0,

    by steps along two coordinates (Fan, Chen and Lin, 2005): :math:`i` violates optimality most, :math:`j` promises the
    greatest decrease, and of equal ones the last is taken. Rule and tolerance are libsvm's, without its shrinking.

    Returns:
        ``(P, m)`` :math:`y \alpha` and ``(P,)`` :math:`\rho`: a machine decides by the sign of
        :math:`\sum_i y_i \alpha_i k(x_i, x) - \rho`.
    """
    if problems.sign.is_cuda:
        from joao.kernels import _triton

        alpha, gradient = _triton.solve_duals(problems)
    else:
        alpha, gradient = plain_solve_duals(problems)
    return problems.sign * alpha, _offset(problems, alpha, gradient)


def plain_solve_duals(problems: SvmProblems) -> tuple[Tensor, Tensor]:
    """``(P, m)`` alpha and the gradient there, all machines at the same step."""
    kernels, sign, bound = problems.kernels, problems.sign, problems.bound[:, None]
    machine = torch.arange(len(sign), device=sign.device)
    matrix, place = problems.matrix[:, None], torch.arange(sign.shape[1], device=sign.device)
    diagonal = kernels[matrix, problems.rows, problems.rows].double()
    alpha, gradient = torch.zeros_like(sign), -sign.abs()
    for _ in range(MAX_STEPS):
        uphill = -sign * gradient
        can_rise = ((sign > 0) & (alpha < bound)) | ((sign < 0) & (alpha > 0))
        can_fall = ((sign > 0) & (alpha > 0)) | ((sign < 0) & (alpha < bound))
        rising = uphill.masked_fill(~can_rise, -torch.inf)
        top = rising.max(dim=1, keepdim=True).values
        bottom = uphill.masked_fill(~can_fall, torch.inf).min(dim=1, keepdim=True).values
        going = top - bottom >= TOLERANCE
        if not bool(going.any()):
            break
        i = torch.where(rising == top, place, -1).max(dim=1).values
        row_i = kernels[matrix, problems.rows[machine, i, None], problems.rows].double()
        gap = top - uphill
        curve = diagonal[machine, i, None] + diagonal - 2 * row_i
        curve = torch.where(curve > 0, curve, 1e-12)
        decrease = (gap * gap / curve).masked_fill(~can_fall | (gap <= 0), -torch.inf)
        j = torch.where(decrease == decrease.max(dim=1, keepdim=True).values, place, -1).max(dim=1).values
        row_j = kernels[matrix, problems.rows[machine, j, None], problems.rows].double()
        y_i, y_j, a_i, a_j = (each[machine, k, None] for each in (sign, alpha) for k in (i, j))
        room_i = torch.where(y_i > 0, bound - a_i, a_i)
        room_j = torch.where(y_j > 0, a_j, bound - a_j)
        step = torch.minimum(gap[machine, j, None] / curve[machine, j, None], torch.minimum(room_i, room_j))
        step = torch.where(going, step, 0.0)
        new_i = torch.where(going & (step == room_i), torch.where(y_i > 0, bound, 0.0), a_i + y_i * step)
        new_j = torch.where(going & (step == room_j), torch.where(y_j > 0, 0.0, bound), a_j - y_j * step)
        alpha = torch.where(place == i[:, None], new_i, torch.where(place == j[:, None], new_j, alpha))
        gradient = gradient + sign * step * (row_i - row_j)
    return alpha, gradient


def _offset(problems: SvmProblems, alpha: Tensor, gradient: Tensor) -> Tensor:
    """``(P,)`` the mean of y times gradient over rows inside the bounds; without any, the middle of what is allowed."""
    sign, bound = problems.sign, problems.bound[:, None]
    values = sign * gradient
    is_free = (sign != 0) & (alpha > 0) & (alpha < bound)
    above = torch.where(sign > 0, alpha <= 0, alpha >= bound) & (sign != 0)  # the offset is not greater than these
    below = torch.where(sign > 0, alpha >= bound, alpha <= 0) & (sign != 0)
    highest = values.masked_fill(~above, torch.inf).min(dim=1).values
    lowest = values.masked_fill(~below, -torch.inf).max(dim=1).values
    number = is_free.sum(dim=1)
    mean = (values * is_free).sum(dim=1) / number.clamp(min=1)
    return torch.where(number > 0, mean, (highest + lowest) / 2)
