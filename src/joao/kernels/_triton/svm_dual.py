"""Triton form of :mod:`joao.kernels.svm_dual`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.kernels.svm_dual import MAX_STEPS, TOLERANCE, SvmProblems


def solve_duals(problems: SvmProblems) -> tuple[Tensor, Tensor]:
    """See :func:`joao.kernels.svm_dual.plain_solve_duals`. One program fits one machine and holds all its rows."""
    number, width = problems.sign.shape
    alpha, gradient = torch.empty_like(problems.sign), torch.empty_like(problems.sign)
    block = triton.next_power_of_2(width)
    fields = (problems.kernels, problems.matrix, problems.rows, problems.sign, problems.bound)
    tensors = *(each.contiguous() for each in fields), alpha, gradient
    limits = problems.kernels.shape[1], width, TOLERANCE, MAX_STEPS
    _solve[(number,)](*tensors, *limits, BLOCK=block, num_warps=min(32, max(4, block // 256)))
    return alpha, gradient


@triton.jit
def _solve(
    kernels, matrix, rows, signs, bounds, alphas, gradients, size, width, tolerance, most_steps, BLOCK: tl.constexpr
):
    machine = tl.program_id(0).to(tl.int64)
    position = tl.arange(0, BLOCK)
    inside = position < width
    own = machine * width
    kernel = kernels + tl.load(matrix + machine) * size * size
    bound = tl.load(bounds + machine)
    sign = tl.load(signs + own + position, mask=inside, other=0.0)
    row = tl.load(rows + own + position, mask=inside, other=0)
    diagonal = tl.load(kernel + row * size + row, mask=inside, other=0.0)
    alpha = tl.zeros((BLOCK,), tl.float64)
    gradient = -tl.abs(sign)
    step_number = 0
    going = True
    while going:  # the steps are those of plain_solve_duals, which explains them
        uphill = -sign * gradient
        can_rise = ((sign > 0) & (alpha < bound)) | ((sign < 0) & (alpha > 0))
        can_fall = ((sign > 0) & (alpha > 0)) | ((sign < 0) & (alpha < bound))
        rising = tl.where(can_rise, uphill, float("-inf"))
        top = tl.max(rising, 0)
        bottom = tl.min(tl.where(can_fall, uphill, float("inf")), 0)
        going = (top - bottom >= tolerance) & (step_number < most_steps)
        i = tl.max(tl.where(rising == top, position, 0), 0)
        of_i = kernel + tl.load(rows + own + i) * size
        row_i = tl.load(of_i + row, mask=inside, other=0.0).to(tl.float64)
        gap = top - uphill
        curve = tl.load(of_i + tl.load(rows + own + i)).to(tl.float64) + diagonal.to(tl.float64) - 2 * row_i
        curve = tl.where(curve > 0, curve, 1e-12)
        decrease = tl.where(can_fall & (gap > 0), gap * gap / curve, float("-inf"))
        j = tl.max(tl.where(decrease == tl.max(decrease, 0), position, 0), 0)
        row_j = tl.load(kernel + tl.load(rows + own + j) * size + row, mask=inside, other=0.0).to(tl.float64)
        y_i, y_j = tl.load(signs + own + i), tl.load(signs + own + j)
        is_i, is_j = position == i, position == j
        # A scalar is read out of a vector by a masked sum; Triton has no indexing of registers.
        a_i = tl.sum(tl.where(is_i, alpha, 0.0), 0)
        a_j = tl.sum(tl.where(is_j, alpha, 0.0), 0)
        longest = tl.sum(tl.where(is_j, gap / curve, 0.0), 0)
        room_i = tl.where(y_i > 0, bound - a_i, a_i)
        room_j = tl.where(y_j > 0, a_j, bound - a_j)
        step = tl.where(going, tl.minimum(longest, tl.minimum(room_i, room_j)), 0.0)
        new_i = tl.where(going & (step == room_i), tl.where(y_i > 0, bound, 0.0), a_i + y_i * step)
        new_j = tl.where(going & (step == room_j), tl.where(y_j > 0, 0.0, bound), a_j - y_j * step)
        alpha = tl.where(is_i, new_i, tl.where(is_j, new_j, alpha))
        gradient += sign * step * (row_i - row_j)
        step_number += 1
    tl.store(alphas + own + position, alpha, mask=inside)
    tl.store(gradients + own + position, gradient, mask=inside)
