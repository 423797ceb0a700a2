"""The scorer's machines for all inner folds, class pairs and values of C, fitted together on a GPU.

A *part* is a pair of training and test graphs. A *machine* separates two classes of a part with one value of C. One
call of :func:`joao.kernels.svm_dual.solve_duals` fits all machines of all parts.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from joao.evaluation.folds import Fold
from joao.kernels.svm_dual import SvmProblems, solve_duals

# Kernel matrices (n, n) train to train and (t, n) test to train, float64, on the device of the machines.
KernelsOf = Callable[[Fold], tuple[Tensor, Tensor]]


def score_parts(
    kernels_of: KernelsOf, classes: NDArray[np.int64], parts: Sequence[Fold], c_values: Sequence[float]
) -> NDArray[np.float64]:
    """Compute ``(parts, C)`` the test accuracy of each part for each C.

    With more than two classes there is one machine for each pair of classes. The class with most votes wins; ties go
    to the first class, as in libsvm.
    """
    # Parts differ in size. Padding all kernels to the largest makes one tensor of them; no machine reads the padding,
    # because its ``rows`` name training graphs only.
    size = max(len(train) for train, _ in parts)
    kernels, to_test = [], []
    for part in parts:
        among_train, test_to_train = kernels_of(part)
        padding = size - len(among_train)
        kernels.append(F.pad(among_train.float(), (0, padding, 0, padding)))  # libsvm stores float32, too
        to_test.append(test_to_train)
    machines = [class_pairs(classes[train]) for train, _ in parts]
    coefficients, offsets = _fit(torch.stack(kernels), machines, c_values)
    result = np.empty((len(parts), len(c_values)))
    for number, (train, test) in enumerate(parts):
        of_part = coefficients[number][:, :, : len(train)]  # without the padding
        # Decision of class pair p with value c on test graph t: sum over training graphs n, minus the offset.
        decisions = torch.einsum("tn,pcn->cpt", to_test[number], of_part) - offsets[number].T[:, :, None]
        result[number] = (vote(decisions.cpu().numpy(), classes[train]) == classes[test]).mean(axis=1)
    return result


def class_pairs(classes: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], int]]:
    """For each pair of classes: rows of the first followed by rows of the second, and the number of the first.

    This is libsvm's order of rows. The solver breaks ties by position, so the order matters.
    """
    rows_of = [np.flatnonzero(classes == value) for value in np.unique(classes)]
    return [(np.concatenate(pair), len(pair[0])) for pair in combinations(rows_of, 2)]


def _fit(
    kernels: Tensor, machines: Sequence[Sequence[tuple[NDArray[np.int64], int]]], c_values: Sequence[float]
) -> tuple[list[Tensor], list[Tensor]]:
    """For each part, ``(pairs, C, n)`` coefficients of its training rows and ``(pairs, C)`` offsets."""
    device, size = kernels.device, kernels.shape[1]
    pairs = [(part, rows, first) for part, of_part in enumerate(machines) for rows, first in of_part]
    # One row per class pair of a part, padded to the largest pair. Sign 0 marks padding: the solver ignores it.
    width = max(len(rows) for _, rows, _ in pairs)
    rows, sign = torch.zeros(len(pairs), width, dtype=torch.long), torch.zeros(len(pairs), width, dtype=torch.float64)
    for number, (_, of_pair, first) in enumerate(pairs):
        rows[number, : len(of_pair)] = torch.from_numpy(of_pair)
        sign[number, :first], sign[number, first : len(of_pair)] = 1.0, -1.0
    # A machine is a class pair with one C: (pair 0, C 0), (pair 0, C 1), ..., (pair 1, C 0), ...
    rows, sign = (each.to(device).repeat_interleave(len(c_values), dim=0) for each in (rows, sign))
    matrix = torch.tensor([part for part, _, _ in pairs], device=device).repeat_interleave(len(c_values))
    bound = torch.tensor(c_values, dtype=torch.float64, device=device).repeat(len(pairs))
    values, offsets = solve_duals(SvmProblems(kernels, matrix, rows, sign, bound))
    # From positions inside a machine to training rows of its part. Padding has row 0 and value 0, so it adds nothing.
    coefficients = torch.zeros(len(values), size, dtype=torch.float64, device=device).scatter_add_(1, rows, values)
    shape, numbers = (len(pairs), len(c_values)), [len(of_part) for of_part in machines]
    by_part = torch.split(coefficients.view(*shape, size), numbers), torch.split(offsets.view(shape), numbers)
    return list(by_part[0]), list(by_part[1])


def vote(decisions: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``(C, t)`` the classes with most votes of the machines ``(C, pairs, t)``."""
    values = np.unique(classes)
    votes = np.zeros((len(values), len(decisions), decisions.shape[2]), dtype=np.int64)
    for number, (first, second) in enumerate(combinations(range(len(values)), 2)):
        is_first = decisions[:, number] > 0
        votes[first] += is_first
        votes[second] += ~is_first
    chosen: NDArray[np.int64] = values[votes.argmax(axis=0)]  # argmax takes the first of equal counts
    return chosen
