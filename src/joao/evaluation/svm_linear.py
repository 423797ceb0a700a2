r"""A scorer for many graphs: the kernels of :mod:`joao.evaluation.svm`, at a cost that is linear in the graphs.

The kernel is approximated from m landmarks, graphs that are drawn without labels (Nyström's method): with the kernel
:math:`k_x` of a graph with the landmarks and the matrix :math:`K` among them,

.. math::
    k(x, y) \approx \phi(x) \cdot \phi(y), \qquad \phi(x) = K^{-1/2} k_x

The hinge loss of the support vector machine is replaced by squared loss, with one target of 1 and -1 per class,

.. math::
    w = \Bigl(\sum_i \phi_i \phi_i^T + \tfrac{1}{2C} I\Bigr)^{-1} \sum_i \phi_i y_i

Sums over a training part are sums over its folds. So the sums of each fold are computed once per partition, in
:math:`O(G m^2)`, and every training part takes only :math:`O(m^3)`. C is chosen by nested cross-validation: for a fold,
by the mean accuracy over all other folds, each predicted from the rest.

Landmarks, scaling and gamma are computed once, on all graphs; the exact scorer uses those of each training part.
Neither uses labels.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import csr_array, issparse
from sklearn.preprocessing import StandardScaler, normalize

from joao.core.randomness import numpy_generator
from joao.evaluation.folds import Fold

NUM_LANDMARKS = 1000
ROWS_AT_ONCE = 8192
# Directions in which the landmarks vary less than this share of the largest are left out: they are rounding.
SMALLEST = 1e-6

Matrix = NDArray[np.float64]
Numbers = NDArray[np.int64]
Rows: TypeAlias = Matrix | csr_array
# Scaled rows of all graphs and their kernel, which takes two selections of rows; the mean of several kernels is used.
Parts: TypeAlias = Sequence[tuple[Rows, Callable[[Any, Any], Matrix]]]


def score_folds_linear(
    parts: Parts,
    classes: Numbers,
    folds: Sequence[Fold],
    c_grid: Sequence[float],
    num_landmarks: int = NUM_LANDMARKS,
) -> Iterator[tuple[float, float]]:
    """Yield test accuracy and chosen C of each fold of one partition.

    Args:
        parts: see :data:`Parts`.
        classes: ``(G,)`` class numbers.
        folds: all folds of one partition, at least three.
        c_grid: values of C, ascending.
        num_landmarks: m.
    """
    landmarks = choose_landmarks(len(classes), num_landmarks)
    values = np.unique(classes)
    targets = np.where(classes[:, None] == (values[1:] if len(values) == 2 else values), 1.0, -1.0)  # (G, k)
    to_features = _features_of_kernel(_kernel(parts, landmarks, landmarks))
    moments = [_moments(parts, landmarks, to_features, targets, test) for _, test in folds]
    gram, product = (_sum(each) for each in zip(*moments, strict=True))
    # weights[held_out] has the weights of all C, trained without these folds: (features, C, k).
    held_out = [*((f,) for f in range(len(folds))), *combinations(range(len(folds)), 2)]
    weights = {
        out: _solve(gram - _sum(moments[f][0] for f in out), product - _sum(moments[f][1] for f in out), c_grid)
        for out in held_out
    }
    # hits[f, g]: accuracies of all C on fold f, predicted without folds f and g; without f alone if f = g.
    hits = np.empty((len(folds), len(folds), len(c_grid)))
    for f, (_, test) in enumerate(folds):
        own = np.stack([weights[tuple(sorted({f, g}))] for g in range(len(folds))], axis=1)  # (features, folds, C, k)
        hits[f] = _accuracies(parts, landmarks, to_features @ own.reshape(len(own), -1), own.shape[1:], classes, test)
    for f in range(len(folds)):
        inner = np.delete(hits[:, f], f, axis=0)  # other folds, predicted without f
        chosen = int(inner.mean(axis=0).argmax())
        yield float(hits[f, f, chosen]), c_grid[chosen]


def choose_landmarks(num_graphs: int, number: int) -> Numbers:
    """Draw the numbers of the landmarks, in ascending order; the same for all methods."""
    if number >= num_graphs:
        return np.arange(num_graphs)
    return np.sort(numpy_generator(0, "landmarks").choice(num_graphs, number, replace=False))


def scale_rows(x: Rows, is_linear: bool, standardise: bool) -> tuple[Rows, float]:
    """Scale rows as the exact scorer does, but with the statistics of all rows; returns them and gamma."""
    if is_linear:
        return normalize(x), 1.0
    scaled = StandardScaler().fit_transform(x) if standardise else x
    variance = scaled.var()
    return scaled, 1.0 / (x.shape[1] * variance) if variance != 0 else 1.0


def cosines(first: Rows, second: Rows) -> Matrix:
    """Products of rows of length 1, as a dense matrix."""
    products: Any = first @ second.T
    return np.asarray(products.toarray() if issparse(products) else products)


def _kernel(parts: Parts, rows: Numbers, landmarks: Numbers) -> Matrix:
    """``(rows, m)`` kernel of graphs with the landmarks."""
    kernels = [kernel(x[rows], x[landmarks]) for x, kernel in parts]
    return kernels[0] if len(kernels) == 1 else sum(kernels[1:], kernels[0]) / len(kernels)


def _features_of_kernel(among: Matrix) -> Matrix:
    """``(m + 1, r + 1)`` factor that turns kernel values with the landmarks, and a constant, into features."""
    values, vectors = eigh(among)
    kept = values > SMALLEST * values[-1]
    factor = np.zeros((len(among) + 1, kept.sum() + 1))
    factor[:-1, :-1] = vectors[:, kept] / np.sqrt(values[kept])
    factor[-1, -1] = 1.0
    return factor


def _chunks(parts: Parts, landmarks: Numbers, rows: Numbers) -> Iterator[tuple[Numbers, Matrix]]:
    """Some rows at a time and their kernel with the landmarks, with a last column of ones."""
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        yield some, np.hstack([_kernel(parts, some, landmarks), np.ones((len(some), 1))])


def _moments(
    parts: Parts,
    landmarks: Numbers,
    to_features: Matrix,
    targets: Matrix,
    rows: Numbers,
) -> tuple[Matrix, Matrix]:
    """Sums over a fold: of the products of features ``(r, r)``, and of features times targets ``(r, k)``."""
    gram = np.zeros((len(to_features), len(to_features)))
    product = np.zeros((len(to_features), targets.shape[1]))
    for some, kernel in _chunks(parts, landmarks, rows):
        gram += kernel.T @ kernel
        product += kernel.T @ targets[some]
    return to_features.T @ gram @ to_features, to_features.T @ product


def _sum(matrices: Iterable[Matrix]) -> Matrix:
    return reduce(np.add, matrices)


def _solve(gram: Matrix, product: Matrix, c_grid: Sequence[float]) -> Matrix:
    """Weights of ridge regression for every C, ``(r, C, k)``."""
    unit = np.eye(len(gram))
    return np.stack([cho_solve(cho_factor(gram + unit / (2 * c)), product) for c in c_grid], axis=1)


def _accuracies(
    parts: Parts,
    landmarks: Numbers,
    weights: Matrix,
    shape: tuple[int, ...],
    classes: Numbers,
    rows: Numbers,
) -> Matrix:
    """Accuracies on ``rows`` of models with ``weights`` ``(m + 1, prod(shape))``; the last of ``shape`` are targets."""
    values, right = np.unique(classes), np.zeros(shape[:-1])
    for some, kernel in _chunks(parts, landmarks, rows):
        outputs = (kernel @ weights).reshape(len(some), *shape)
        best = (outputs[..., 0] > 0).astype(np.int64) if shape[-1] == 1 else outputs.argmax(axis=-1)
        right += (values[best] == classes[some, None, None]).sum(axis=0)
    return right / len(rows)
