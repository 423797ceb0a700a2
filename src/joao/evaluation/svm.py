r"""The scorer of the unsupervised protocol: a support vector machine on frozen embeddings.

On each training part, and on each inner training part, features are standardised and the kernel is

.. math::
    k(x, y) = \exp(-\gamma \lVert x - y \rVert^2), \qquad \gamma = 1 / (d \operatorname{Var} X)

with the variance over all entries of the :math:`d` columns (scikit-learn's ``gamma='scale'``). :math:`C` is chosen by
the mean accuracy over five inner folds; ties go to the smallest.

The machines are fitted by libsvm, by the compiled core, or on a GPU side by side. With libsvm, scores and choices equal
those of ``GridSearchCV`` over a pipeline of ``StandardScaler`` and ``SVC``; the difference is that the kernel matrix of
a part is computed once for all values of :math:`C`. All solvers stop within the same tolerance, so a graph close to the
decision boundary may be classified differently.

The feature map :math:`\phi` of a graph kernel is not standardised. Its rows are scaled to length 1 instead,

.. math::
    k(x, y) = \phi(x) \cdot \phi(y) \, / \, (\lVert \phi(x) \rVert \lVert \phi(y) \rVert)

This depends on the two graphs only, so that one matrix of all pairs serves all folds.

Several embeddings and feature maps of the same graphs can be scored together: their kernel is the mean of the kernels.
"""

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
from joao.evaluation.svm_batched import KernelsOf, class_pairs, score_parts, vote
from joao.kernels.native import fit_machines
from joao.kernels.svm_dual import has_fast_solver

C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
NUM_INNER_FOLDS = 5
BYTES_AT_ONCE = 1 << 31  # of kernel matrices on a GPU
ROWS_AT_ONCE = 384  # of a kernel matrix: fewer make the products slow, more leave the processor's cache
# Size in MB of libsvm's cache of kernel columns. With a small C it takes few steps and rarely reads a column twice. A
# cache that fits into the processor's own cache is then faster. The size does not change the steps.
SMALL_C_CACHE, LARGE_C_CACHE = 4, 200

Matrix = NDArray[np.float64]
Classes = NDArray[np.int64]
Groups = NDArray[np.int64] | None
Kernel = Literal["rbf", "linear", "mean"]
Parts = Sequence[tuple[ArrayLike | csr_array, Kernel]]
KernelOf = Callable[[Fold], tuple[Matrix, Matrix]]


@final
@dataclass(frozen=True)
class FoldScores:
    """Test accuracy (0 to 1) and chosen C of each fold."""

    accuracies: tuple[float, ...]
    chosen_c: tuple[float, ...]


def score_folds(
    embeddings: ArrayLike | csr_array | Parts,
    classes: Classes,
    folds: Sequence[Fold],
    *,
    kernel: Kernel = "rbf",
    standardise: bool = True,
    groups: Groups = None,
    jobs: int = 1,
    device: str = "cpu",
    compiled: bool = False,
    on_fold: Callable[[int, float], None] | None = None,
) -> FoldScores:
    """Choose C and fit on the training part of each fold, and score the test part.

    Args:
        embeddings: ``(G, d)``; the linear kernel also takes a sparse array, the kernel ``mean`` takes pairs of
            embeddings and their kernels.
        classes: ``(G,)`` class numbers.
        folds: train and test graphs of each fold. If a class has fewer than five members in a training part, there are
            that many inner folds instead of five; fewer than two are an error.
        kernel: ``linear`` for the feature map of a graph kernel, whose rows are only scaled to length 1.
        standardise: False is the published, unscaled form.
        groups: ``(G,)`` group numbers. The inner folds keep graphs of the same group together, as ``folds`` should.
        jobs: folds at a time; the scores do not depend on it.
        device: on ``cuda`` the machines of several folds are fitted together.
        compiled: fit in the compiled core (:mod:`joao.kernels.native`), which must be there, on a CPU.
        on_fold: called with the fold's number and accuracy, in order.
    """
    scores: list[tuple[float, float]] = []
    # Threads, because libsvm and matrix products release the interpreter lock and processes take seconds to start.
    parallel = Parallel(n_jobs=jobs, prefer="threads", return_as="generator")
    with threadpool_limits(1, user_api="blas"):  # BLAS threads inside ours would only compete
        parts: Any = embeddings if kernel == "mean" else [(embeddings, kernel)]
        parts = [(check_embeddings(each, classes)[0], own) for each, own in parts]
        classes = np.asarray(classes)
        if has_fast_solver(len(classes), device) and not compiled:
            kernels_of = _mean_kernel([_make_torch_kernel(x, own, standardise, device) for x, own in parts])
            results = _score_folds_batched(kernels_of, classes, folds, groups)
        else:
            # Like libsvm, the compiled core stores kernels in float32.
            dtype, accuracies = (np.float32, _compiled_accuracies) if compiled else (np.float64, _accuracies)
            kernel_of = _mean_kernel([_make_kernel(x, own, standardise, dtype) for x, own in parts])
            results = parallel(
                delayed(_score_fold)(partial(accuracies, kernel_of, classes), classes, fold, groups) for fold in folds
            )
        for score in results:
            scores.append(score)
            if on_fold is not None:
                on_fold(len(scores) - 1, score[0])
    return FoldScores(tuple(accuracy for accuracy, _ in scores), tuple(c for _, c in scores))


def check_embeddings(embeddings: ArrayLike | csr_array, classes: Classes) -> tuple[Matrix | csr_array, Classes]:
    """Convert to float64 and integers; reject wrong shapes and values that are not finite."""
    is_sparse, classes = issparse(embeddings), np.asarray(classes)
    matrix: Any = csr_array(embeddings, dtype=np.float64) if is_sparse else np.ascontiguousarray(embeddings, np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.shape[0] != len(classes):
        raise UserError(
            f"embeddings: expected one row, with at least one column, for each of {len(classes)} graphs; "
            f"got shape {matrix.shape}."
        )
    finite = finite_rows(matrix)
    if not finite.all():
        raise UserError(
            f"embeddings: {(~finite).sum()} of {len(classes)} rows have NaN or infinite values, first: graph "
            f"{np.argmin(finite)}. Pre-training diverged; lower its learning rate."
        )
    return matrix, classes


def finite_rows(rows: Any) -> NDArray[np.bool_]:
    """Whether all numbers of each row of a dense array or a sparse one by rows (CSR) are finite."""
    if not issparse(rows):
        return np.asarray(np.isfinite(rows).all(axis=1))
    finite = np.ones(rows.shape[0], dtype=bool)
    # indptr[r] is the position of row r's first value: the row of a value is the last r that does not exceed it.
    bad = np.flatnonzero(~np.isfinite(rows.data))
    finite[np.searchsorted(rows.indptr, bad, side="right") - 1] = False
    return finite


def _make_kernel(x: Matrix | csr_array, kernel: Kernel, standardise: bool, dtype: Any = np.float64) -> KernelOf:
    """Return a function from a part to its kernel matrices, ``(train, train)`` and ``(test, train)``."""
    if kernel == "linear":
        gram = normalised_gram(x).astype(dtype, copy=False)
        return lambda fold: (gram[np.ix_(fold[0], fold[0])], gram[np.ix_(fold[1], fold[0])])
    if kernel != "rbf" or issparse(x):
        raise UserError(f"svm: cannot use kernel '{kernel}' on {type(x).__name__}. Use rbf on dense arrays, or linear.")
    return partial(_rbf_kernels, x, standardise, dtype)


def _mean_kernel(kernels: Sequence[Callable[[Fold], tuple[Any, Any]]]) -> Callable[[Fold], tuple[Any, Any]]:
    """Return the mean of kernels; a single one unchanged."""
    if len(kernels) == 1:
        return kernels[0]

    def mean(fold: Fold) -> tuple[Any, Any]:
        among_train, test_to_train = zip(*(each(fold) for each in kernels), strict=True)
        return sum(among_train) / len(kernels), sum(test_to_train) / len(kernels)

    return mean


def _score_fold(
    accuracies: Callable[[Fold, Sequence[float]], Sequence[float]], classes: Classes, fold: Fold, groups: Groups
) -> tuple[float, float]:
    # The embeddings were checked once; scikit-learn would search every kernel matrix for NaN again.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        inner = [accuracies(part, C_GRID) for part in _inner_folds(classes, fold, groups)]
        chosen = C_GRID[_best_c(np.array(inner))]
        (accuracy,) = accuracies(fold, [chosen])
    return accuracy, chosen


def _score_folds_batched(
    kernels_of: KernelsOf, classes: Classes, folds: Sequence[Fold], groups: Groups
) -> Iterator[tuple[float, float]]:
    """Yield accuracy and C of each fold, fitting as many folds together as memory allows.

    Unlike :func:`_score_fold`, this fits every C on the whole training part as well: on a GPU, one more machine in the
    batch costs less than a second batch after C is known.
    """
    bytes_of_fold = 4 * (NUM_INNER_FOLDS + 1) * len(classes) ** 2  # float32, one matrix for each part
    at_once = max(1, BYTES_AT_ONCE // bytes_of_fold)
    for begin in range(0, len(folds), at_once):
        some = folds[begin : begin + at_once]
        inner = [_inner_folds(classes, fold, groups) for fold in some]
        # The rows are the inner parts of the first fold, of the second and so on, and then the folds themselves.
        accuracies = score_parts(kernels_of, classes, [part for parts in inner for part in parts] + list(some), C_GRID)
        ends = np.cumsum([len(parts) for parts in inner])
        *of_inner_parts, of_folds = np.split(accuracies, ends)
        for of_parts, of_fold in zip(of_inner_parts, of_folds, strict=True):
            chosen = _best_c(of_parts)
            yield float(of_fold[chosen]), C_GRID[chosen]


def _best_c(accuracies: NDArray[np.float64]) -> int:
    """Return the position of the C with the best mean over inner folds ``(folds, C)``; the first of equal ones."""
    # The memory layout of GridSearchCV: sums then round in the same way, and its ties are ties here.
    return int(accuracies.T.copy().mean(axis=1).argmax())


def _inner_folds(all_classes: Classes, fold: Fold, all_groups: Groups) -> list[Fold]:
    """Divide a fold's training part into inner folds, with the graphs' numbers in the whole data set."""
    train, _ = fold
    classes, groups = all_classes[train], None if all_groups is None else all_groups[train]
    values, counts = count_per_class(classes, groups)
    if len(values) < 2 or counts.min() < 2:
        members = "members" if groups is None else "different members"
        raise UserError(
            f"svm: a training part has {len(values)} classes and {counts.min()} {members} of the rarest class; "
            "choosing C needs at least two of each. Remove rare classes or use more folds."
        )
    number = min(NUM_INNER_FOLDS, int(counts.min()))
    splits = StratifiedKFold(number).split(classes, classes)
    if groups is not None:
        splits = iter(grouped_folds(classes, groups, number))
    return [(train[part], train[test]) for part, test in splits]


def _accuracies(kernel_of: KernelOf, classes: Classes, fold: Fold, c_values: Sequence[float]) -> list[float]:
    """Compute the test accuracy for each C with one kernel matrix."""
    train, test = fold
    among_train, test_to_train = kernel_of(fold)
    accuracies = []
    for c in c_values:
        machine = SVC(kernel="precomputed", C=c, cache_size=SMALL_C_CACHE if c <= 1 else LARGE_C_CACHE)
        machine.fit(among_train, classes[train])
        accuracies.append(float(np.mean(machine.predict(test_to_train) == classes[test])))
    return accuracies


def _compiled_accuracies(kernel_of: KernelOf, classes: Classes, fold: Fold, c_values: Sequence[float]) -> list[float]:
    """Like :func:`_accuracies`, with the compiled core and kernels in float32."""
    train, test = fold
    train = train[classes[train].argsort(kind="stable")]  # the core copies runs of rows; one class is then one run
    among_train, test_to_train = kernel_of((train, test))
    pairs = class_pairs(classes[train])
    decisions = np.empty((len(c_values), len(pairs), len(test)))
    for number, (rows, first) in enumerate(pairs):
        coefficients, offsets = fit_machines(among_train, rows, first, c_values)
        decisions[:, number] = coefficients @ test_to_train[:, rows].T - offsets[:, None]
    return [float(each) for each in (vote(decisions, classes[train]) == classes[test]).mean(axis=1)]


def _make_torch_kernel(x: Matrix | csr_array, kernel: Kernel, standardise: bool, device: str) -> KernelsOf:
    """Like :func:`_make_kernel`, with float64 tensors on ``device``."""
    if kernel == "linear":
        gram = torch.from_numpy(normalised_gram(x)).to(device)
        return lambda fold: (gram[fold[0]][:, fold[0]], gram[fold[1]][:, fold[0]])
    _make_kernel(x, kernel, standardise)  # raises if the combination is not supported

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
    """Return training rows, test rows and the kernel's gamma; all statistics come from the training rows."""
    train, test = fold
    x_train, x_test = x[train], x[test]
    if standardise:
        scaler = StandardScaler().fit(x_train)
        x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
    variance = x_train.var()
    return x_train, x_test, 1.0 / (x.shape[1] * variance) if variance != 0 else 1.0


def _rbf_kernels(x: Matrix, standardise: bool, dtype: Any, fold: Fold) -> tuple[Matrix, Matrix]:
    x_train, x_test, gamma = _scale(x, standardise, fold)
    among_train, test_to_train = (kernel_matrix(each, x_train, gamma, dtype) for each in (x_train, x_test))
    np.fill_diagonal(among_train, 1.0)  # exactly 1 as in libsvm: rounding would change its steps between equal rows
    return among_train, test_to_train


def normalised_gram(x: Matrix | csr_array) -> Matrix:
    """Compute ``(G, G)`` cosines of all pairs of rows of ``x`` ``(G, d)``; 0 for a row of zeros."""
    products: Any = x @ x.T
    gram: Matrix = products.toarray() if issparse(products) else products
    lengths = np.sqrt(np.diag(gram))
    scale = np.outer(lengths, lengths)
    scale[scale == 0] = 1.0
    gram /= scale
    return gram


def kernel_matrix(first: Matrix, second: Matrix, gamma: float, dtype: Any = np.float64) -> Matrix:
    r"""Compute the kernel of every pair of rows, ``(n, d)`` and ``(m, d)`` to ``(n, m)``.

    One matrix product gives all exponents, in float64,

    .. math::
        -\gamma \lVert x - y \rVert^2
        = (2 \gamma x, \; -\gamma \lVert x \rVert^2, \; 1) \cdot (y, \; 1, \; -\gamma \lVert y \rVert^2)
    """
    norms_of_first, norms_of_second = ((x * x).sum(axis=1, keepdims=True) for x in (first, second))
    left = np.hstack([2 * gamma * first, -gamma * norms_of_first, np.ones_like(norms_of_first)])
    right = np.hstack([second, np.ones_like(norms_of_second), -gamma * norms_of_second])
    if dtype == np.float64:
        exponents: Matrix = left @ right.T
    else:
        # A block of float64 numbers at a time; of a symmetric matrix only the blocks up to the diagonal.
        exponents = np.empty((len(first), len(second)), dtype=dtype)
        for begin in range(0, len(first), ROWS_AT_ONCE):
            end = begin + ROWS_AT_ONCE
            columns = end if second is first else None
            block = left[begin:end] @ right[:columns].T
            exponents[begin:end, :columns] = block
            if second is first:
                exponents[:begin, begin:end] = block[:, :begin].T
    np.exp(exponents, out=exponents)
    return exponents
