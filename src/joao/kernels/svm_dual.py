"""Support vector machines, fitted side by side by decomposition with two coordinates per step."""

import importlib.util
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

TOLERANCE = 1e-3  # as in libsvm
MAX_STEPS = 10_000_000  # as in libsvm
MAX_ROWS = 16_384  # a program of the Triton form holds all rows of its machine


def has_fast_solver(num_rows: int, device: str) -> bool:
    """Whether the Triton form can fit machines with ``num_rows`` rows on ``device``."""
    return device.startswith("cuda") and num_rows <= MAX_ROWS and importlib.util.find_spec("triton") is not None


@final
@dataclass(frozen=True)
class SvmProblems:
    """Two-class support vector machines that are fitted together.

    Attributes:
        kernels: ``(M, n, n)`` float32, symmetric kernel matrices.
        matrix: ``(P,)`` the kernel matrix of each machine.
        rows: ``(P, m)`` the rows of that matrix a machine is fitted to; padding behind the last row is arbitrary.
        sign: ``(P, m)`` float64, the class of each row, 1 or -1; 0 for padding.
        bound: ``(P,)`` float64, the :math:`C` of each machine.
    """

    kernels: Tensor
    matrix: Tensor
    rows: Tensor
    sign: Tensor
    bound: Tensor


def solve_duals(problems: SvmProblems) -> tuple[Tensor, Tensor]:
    r"""Solve the dual problem of each machine.

    .. math:: \min_\alpha \tfrac{1}{2} \sum_{ij} y_i y_j k_{ij} \alpha_i \alpha_j - \sum_i \alpha_i,
        \qquad 0 \le \alpha \le C, \quad \sum_i y_i \alpha_i = 0,

    Each step changes two coordinates (Fan, Chen and Lin, 2005): :math:`i` violates optimality most, :math:`j` promises
    the largest decrease; the last one wins a tie. Selection rule and tolerance are those of libsvm, without shrinking.

    Returns:
        ``(P, m)`` :math:`y \alpha` and ``(P,)`` :math:`\rho`. The decision function of a machine is
        :math:`\sum_i y_i \alpha_i k(x_i, x) - \rho`.
    """
    if problems.sign.is_cuda:
        from joao.kernels import _triton

        alpha, gradient = _triton.solve_duals(problems)
    else:
        alpha, gradient = plain_solve_duals(problems)
    return problems.sign * alpha, _offset(problems, alpha, gradient)


def plain_solve_duals(problems: SvmProblems) -> tuple[Tensor, Tensor]:
    """Plain form of the solver; all machines step at the same time. Returns alpha and its gradient, ``(P, m)``."""
    kernels, sign, bound = problems.kernels, problems.sign, problems.bound[:, None]
    machine = torch.arange(len(sign), device=sign.device)
    matrix, position = problems.matrix[:, None], torch.arange(sign.shape[1], device=sign.device)
    diagonal = kernels[matrix, problems.rows, problems.rows].double()
    alpha, gradient = torch.zeros_like(sign), -sign.abs()  # padding has sign 0 and never moves
    for _ in range(MAX_STEPS):
        # A step moves y_i alpha_i up and y_j alpha_j down by the same amount, which keeps their sum at 0.
        # It helps while uphill_i > uphill_j; the largest such gap is the violation of optimality.
        uphill = -sign * gradient
        can_rise = ((sign > 0) & (alpha < bound)) | ((sign < 0) & (alpha > 0))
        can_fall = ((sign > 0) & (alpha > 0)) | ((sign < 0) & (alpha < bound))
        rising = uphill.masked_fill(~can_rise, -torch.inf)
        top = rising.max(dim=1, keepdim=True).values
        bottom = uphill.masked_fill(~can_fall, torch.inf).min(dim=1, keepdim=True).values
        going = top - bottom >= TOLERANCE
        if not bool(going.any()):
            break
        i = torch.where(rising == top, position, -1).max(dim=1).values
        row_i = kernels[matrix, problems.rows[machine, i, None], problems.rows].double()
        # Second-order choice of j: the unconstrained minimum along (i, j) decreases the objective by gap^2 / curve.
        gap = top - uphill
        curve = diagonal[machine, i, None] + diagonal - 2 * row_i
        curve = torch.where(curve > 0, curve, 1e-12)  # equal rows, or a kernel that is not positive definite
        decrease = (gap * gap / curve).masked_fill(~can_fall | (gap <= 0), -torch.inf)
        j = torch.where(decrease == decrease.max(dim=1, keepdim=True).values, position, -1).max(dim=1).values
        row_j = kernels[matrix, problems.rows[machine, j, None], problems.rows].double()
        y_i, y_j, a_i, a_j = (each[machine, k, None] for each in (sign, alpha) for k in (i, j))
        # Both coordinates stay inside [0, C]. One that reaches a bound is set to it exactly, not up to rounding.
        room_i = torch.where(y_i > 0, bound - a_i, a_i)
        room_j = torch.where(y_j > 0, a_j, bound - a_j)
        step = torch.minimum(gap[machine, j, None] / curve[machine, j, None], torch.minimum(room_i, room_j))
        step = torch.where(going, step, 0.0)  # machines that have converged wait for the others
        new_i = torch.where(going & (step == room_i), torch.where(y_i > 0, bound, 0.0), a_i + y_i * step)
        new_j = torch.where(going & (step == room_j), torch.where(y_j > 0, 0.0, bound), a_j - y_j * step)
        alpha = torch.where(position == i[:, None], new_i, torch.where(position == j[:, None], new_j, alpha))
        gradient = gradient + sign * step * (row_i - row_j)
    return alpha, gradient


def _offset(problems: SvmProblems, alpha: Tensor, gradient: Tensor) -> Tensor:
    r"""Compute :math:`\rho` ``(P,)``: the mean of y times gradient over rows strictly inside the bounds.

    If there are none, :math:`\rho` is the middle of the interval that the rows at the bounds allow.
    """
    sign, bound = problems.sign, problems.bound[:, None]
    values = sign * gradient
    is_free = (sign != 0) & (alpha > 0) & (alpha < bound)
    above = torch.where(sign > 0, alpha <= 0, alpha >= bound) & (sign != 0)  # rows that bound the offset from above
    below = torch.where(sign > 0, alpha >= bound, alpha <= 0) & (sign != 0)
    highest = values.masked_fill(~above, torch.inf).min(dim=1).values
    lowest = values.masked_fill(~below, -torch.inf).max(dim=1).values
    number = is_free.sum(dim=1)
    mean = (values * is_free).sum(dim=1) / number.clamp(min=1)
    return torch.where(number > 0, mean, (highest + lowest) / 2)
