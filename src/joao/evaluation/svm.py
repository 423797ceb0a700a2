r"""The scorer of the unsupervised protocol: a support vector machine on frozen embeddings.

Inside each training part, and inside each of its inner training parts, features are standardised and the kernel is

.. math::
    k(x, y) = \exp(-\gamma \lVert x - y \rVert^2), \qquad \gamma = 1 / (d \operatorname{Var} X)

with the variance over all entries of the :math:`d` columns (scikit-learn's ``gamma='scale'``). :math:`C` is the
one with the best mean accuracy over five inner folds; of equally good ones, the smallest.

Scores and choices are those of ``GridSearchCV`` over a pipeline of ``StandardScaler`` and ``SVC``. Here the
kernel matrix of a part is computed once and shared by every :math:`C`. What is left is libsvm's own steps, most of
them for the largest :math:`C`; it stops within a tolerance, where only the same steps lead to the same scores.

The feature map :math:`\phi` of a graph kernel is not standardised; its rows have the length 1 instead,

.. math::
    k(x, y) = \phi(x) \cdot \phi(y) \, / \, (\lVert \phi(x) \rVert \lVert \phi(y) \rVert)

This needs nothing but the two graphs, so one matrix of all pairs serves all folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn import config_context
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from joao.core.errors import UserError
from joao.evaluation.folds import Fold, count_per_class, grouped_folds
from joao.evaluation.svm_batched import KernelsOf, score_parts
from joao.kernels.svm_dual import has_fast_solver

C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
NUM_INNER_FOLDS = 5
BYTES_AT_ONCE = 1 << 31  # of kernel matrices on a GPU
# MB of kernel columns that libsvm keeps. With small C it takes few steps and hardly meets a column twice: then
# fewer columns, which stay in the processor's own cache, are quicker. The steps are the same.
CACHE_OF_FEW_STEPS, CACHE_OF_MANY = 4, 200

Matrix = NDArray[np.float64]
Classes = NDArray[np.int64]
Kernel = Literal["rbf", "linear"]
KernelOf = Callable[[Fold], tuple[Matrix, Matrix]]


@final
@dataclass(frozen=True)
class FoldScores:
    """Test accuracy, as a share of 1, and chosen C of each fold."""

    accuracies: tuple[float, ...]
    chosen_c: tuple[float, ...]


def score_folds(
    embeddings: ArrayLike | csr_array,
    classes: Classes,
    folds: Sequence[Fold],
    *,
    kernel: Kernel = "rbf",
    standardise: bool = True,
    groups: NDArray[np.int64] | None = None,
    jobs: int = 1,
    device: str = "cpu",
    on_fold: Callable[[int, float], None] | None = None,
) -> FoldScores:
    """Chooses C and fits on the training part of each fold, and scores the test part.

    Args:
        embeddings: ``(G, d)``, for the linear kernel also a sparse array.
        classes: ``(G,)`` class numbers.
        folds: train and test graphs of each fold. Where a class has fewer than five members in a training part,
            there are that many inner folds instead of five; below two, it is an error.
        kernel: ``linear`` for the feature map of a graph kernel, which is scaled to length 1 and nothing else.
        standardise: False is the published, unscaled form.
        groups: ``(G,)`` numbers; the inner folds keep graphs of the same number together, as ``folds`` should.
        jobs: folds at a time; the scores do not depend on it.
        device: on ``cuda`` the machines of several folds are fitted side by side, by the same steps but for libsvm's
            shrinking: where it sets in, a graph at the border may fall on its other side.
        on_fold: called with the fold's number and accuracy, in order, as folds are done.
    """
    scores: list[tuple[float, float]] = []
    # Threads, for libsvm and matrix products let others run meanwhile, and processes take seconds to start.
    parallel = Parallel(n_jobs=jobs, prefer="threads", return_as="generator")
    with threadpool_limits(1, user_api="blas"):  # threads inside these would only wait for each other
        embeddings, classes = check_embeddings(embeddings, classes)
        if has_fast_solver(len(classes), device):
            found = _score_folds_batched(
                _make_torch_kernel(embeddings, kernel, standardise, device), classes, folds, groups
            )
        else:
            kernel_of = _make_kernel(embeddings, kernel, standardise)
            found = parallel(delayed(_score_fold)(kernel_of, classes, fold, groups) for fold in folds)
        for score in found:
            scores.append(score)
            if on_fold is not None:
                on_fold(len(scores) - 1, score[0])
    return FoldScores(tuple(accuracy for accuracy, _ in scores), tuple(c for _, c in scores))


def check_embeddings(embeddings: ArrayLike | csr_array, classes: Classes) -> tuple[Matrix | csr_array, Classes]:
    """The same as float64 and integers, or an error that names the first graph that cannot be scored."""
    matrix, classes = _as_matrix(embeddings), np.asarray(classes)
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.shape[0] != len(classes):
        raise UserError(
            f"embeddings: expected one row, with at least one column, for each of {len(classes)} graphs; "
            f"got shape {matrix.shape}."
        )
    finite = _finite_rows(matrix)
    if not finite.all():
        raise UserError(
            f"embeddings: {(~finite).sum()} of {len(classes)} rows are not finite, the first is graph "
            f"{np.argmin(finite)}. The pre-training diverged; lower its learning rate."
        )
    return matrix, classes


def _as_matrix(embeddings: ArrayLike | csr_array) -> Matrix | csr_array:
    if issparse(embeddings):
        return csr_array(embeddings, dtype=np.float64)
    return np.ascontiguousarray(embeddings, dtype=np.float64)


def _finite_rows(matrix: Any) -> NDArray[np.bool_]:
    finite = np.ones(matrix.shape[0], dtype=bool)
    if issparse(matrix):
        bad = np.flatnonzero(~np.isfinite(matrix.data))
        finite[np.searchsorted(matrix.indptr, bad, side="right") - 1] = False
    else:
        np.isfinite(matrix).all(axis=1, out=finite)
    return finite


def _make_kernel(x: Matrix | csr_array, kernel: Kernel, standardise: bool) -> KernelOf:
    """What gives the kernels of a part: of its training graphs, and of its test graphs with those."""
    if kernel == "linear":
        return partial(_select_gram, normalised_gram(x))
    if kernel != "rbf" or issparse(x):
        raise UserError(f"svm: kernel '{kernel}' of {type(x).__name__}. Known: rbf, of a dense array, and linear.")
    return partial(_rbf_kernels, x, standardise)


def _score_fold(
    kernel_of: KernelOf, classes: Classes, fold: Fold, groups: NDArray[np.int64] | None
) -> tuple[float, float]:
    # Inputs were checked once; sklearn need not search every kernel matrix for NaN again.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        inner = [_accuracies(kernel_of, classes, part, C_GRID) for part in _inner_folds(classes, fold, groups)]
        chosen = C_GRID[_best_c(np.array(inner))]
        (accuracy,) = _accuracies(kernel_of, classes, fold, [chosen])
    return accuracy, chosen


def _score_folds_batched(
    kernels_of: KernelsOf, classes: Classes, folds: Sequence[Fold], groups: NDArray[np.int64] | None
) -> Iterator[tuple[float, float]]:
    """The scores of several folds at a time, as many as memory is for."""
    bytes_of_fold = 4 * (NUM_INNER_FOLDS + 1) * len(classes) ** 2
    at_once = max(1, BYTES_AT_ONCE // bytes_of_fold)
    for begin in range(0, len(folds), at_once):
        some = folds[begin : begin + at_once]
        inner = [_inner_folds(classes, fold, groups) for fold in some]
        found = score_parts(kernels_of, classes, [part for parts in inner for part in parts] + list(some), C_GRID)
        ends = np.cumsum([len(parts) for parts in inner])
        for own, last in zip(np.split(found, ends)[:-1], found[ends[-1] :], strict=True):
            chosen = _best_c(own)
            yield float(last[chosen]), C_GRID[chosen]


def _best_c(accuracies: NDArray[np.float64]) -> int:
    """Which C has the best mean over inner folds ``(folds, C)``."""
    # The layout GridSearchCV has, so that sums round alike and equally good C are equal here too.
    return int(accuracies.T.copy().mean(axis=1).argmax())


def _inner_folds(all_classes: Classes, fold: Fold, all_groups: NDArray[np.int64] | None) -> list[Fold]:
    """Parts of a fold's training part."""
    train, _ = fold
    classes, groups = all_classes[train], None if all_groups is None else all_groups[train]
    values, counts = count_per_class(classes, groups)
    if len(values) < 2 or counts.min() < 2:
        members = "members" if groups is None else "different members"
        raise UserError(
            f"svm: a training part has {len(values)} classes and {counts.min()} {members} of the rarest; choosing C "
            "needs two of both. Leave rare classes out, or use more folds."
        )
    number = min(NUM_INNER_FOLDS, int(counts.min()))
    found = StratifiedKFold(number).split(classes, classes)
    if groups is not None:
        found = iter(grouped_folds(classes, groups, number))
    return [(train[part], train[rest]) for part, rest in found]


def _accuracies(kernel_of: KernelOf, classes: Classes, fold: Fold, c_values: Sequence[float]) -> list[float]:
    """The test accuracy under each C, all with one kernel matrix."""
    train, test = fold
    among_train, test_to_train = kernel_of(fold)
    accuracies = []
    for c in c_values:
        machine = SVC(kernel="precomputed", C=c, cache_size=CACHE_OF_FEW_STEPS if c <= 1 else CACHE_OF_MANY)
        machine.fit(among_train, classes[train])
        accuracies.append(float(np.mean(machine.predict(test_to_train) == classes[test])))
    return accuracies


def _select_gram(gram: Matrix, fold: Fold) -> tuple[Matrix, Matrix]:
    train, test = fold
    return gram[np.ix_(train, train)], gram[np.ix_(test, train)]


def _make_torch_kernel(x: Matrix | csr_array, kernel: Kernel, standardise: bool, device: str) -> KernelsOf:
    """The same on another device."""
    if kernel == "linear":
        gram = torch.from_numpy(normalised_gram(x)).to(device)
        return lambda fold: (gram[fold[0]][:, fold[0]], gram[fold[1]][:, fold[0]])
    _make_kernel(x, kernel, standardise)  # tells what cannot be done

    def rbf(fold: Fold) -> tuple[Tensor, Tensor]:
        *parts, gamma = _scale(x, standardise, fold)
        x_train, x_test = (torch.from_numpy(part).to(device) for part in parts)
        among_train, test_to_train = (_torch_kernel(each, x_train, gamma) for each in (x_train, x_test))
        among_train.fill_diagonal_(1.0)
        return among_train, test_to_train

    return rbf


def _torch_kernel(first: Tensor, second: Tensor, gamma: float) -> Tensor:
    norms_of_first, norms_of_second = ((x * x).sum(dim=1) for x in (first, second))
    return torch.exp(2 * gamma * (first @ second.T) - gamma * norms_of_first[:, None] - gamma * norms_of_second)


def _scale(x: Matrix, standardise: bool, fold: Fold) -> tuple[Matrix, Matrix, float]:
    """Training and test rows, and the kernel's gamma."""
    train, test = fold
    x_train, x_test = x[train], x[test]
    if standardise:
        scaler = StandardScaler().fit(x_train)
        x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
    variance = x_train.var()
    return x_train, x_test, 1.0 / (x.shape[1] * variance) if variance != 0 else 1.0


def _rbf_kernels(x: Matrix, standardise: bool, fold: Fold) -> tuple[Matrix, Matrix]:
    x_train, x_test, gamma = _scale(x, standardise, fold)
    among_train, test_to_train = kernel_matrix(x_train, x_train, gamma), kernel_matrix(x_test, x_train, gamma)
    np.fill_diagonal(among_train, 1.0)  # as libsvm has it; by rounding alone its steps between equal rows change
    return among_train, test_to_train


def normalised_gram(x: Matrix | csr_array) -> Matrix:
    """``(G, G)`` the scalar products of all pairs of rows, of ``(G, d)``, at length 1; of a row of zeros, 0."""
    products: Any = x @ x.T
    gram: Matrix = products.toarray() if issparse(products) else products
    lengths = np.sqrt(np.diag(gram))
    scale = np.outer(lengths, lengths)
    scale[scale == 0] = 1.0
    gram /= scale
    return gram


def kernel_matrix(first: Matrix, second: Matrix, gamma: float) -> Matrix:
    r"""The kernel of every pair of rows, ``(n, d)`` and ``(m, d)`` to ``(n, m)``.

    All exponents come out of one matrix product,

    .. math::
        -\gamma \lVert x - y \rVert^2
        = (2 \gamma x, \; -\gamma \lVert x \rVert^2, \; 1) \cdot (y, \; 1, \; -\gamma \lVert y \rVert^2)
    """
    norms_of_first, norms_of_second = ((x * x).sum(axis=1, keepdims=True) for x in (first, second))
    left = np.hstack([2 * gamma * first, -gamma * norms_of_first, np.ones_like(norms_of_first)])
    right = np.hstack([second, np.ones_like(norms_of_second), -gamma * norms_of_second])
    exponents: Matrix = left @ right.T
    np.exp(exponents, out=exponents)
    return exponents
