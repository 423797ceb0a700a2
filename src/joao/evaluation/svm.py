r"""The scorer of the unsupervised protocol: a support vector machine on frozen embeddings.

Inside each training part, and inside each of its inner training parts, features are standardised and the kernel is

.. math::
    k(x, y) = \exp(-\gamma \lVert x - y \rVert^2), \qquad \gamma = 1 / (d \operatorname{Var} X)

with the variance over all entries of the :math:`d` columns (scikit-learn's ``gamma='scale'``). :math:`C` is the
one with the best mean accuracy over five inner folds; of equally good ones, the smallest.

Scores and choices are those of ``GridSearchCV`` over a pipeline of ``StandardScaler`` and ``SVC``. Here the
kernel matrix of a part is computed once and shared by every :math:`C`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.parallel import Parallel, delayed

from joao.errors import UserError

if TYPE_CHECKING:  # worker processes import this module, and need not wait for torch
    from joao.evaluation.folds import Fold

C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
NUM_INNER_FOLDS = 5

Matrix = NDArray[np.float64]
Classes = NDArray[np.int64]


@final
@dataclass(frozen=True)
class FoldScores:
    """Test accuracy, as a share of 1, and chosen C of each fold."""

    accuracies: tuple[float, ...]
    chosen_c: tuple[float, ...]


def score_folds(
    embeddings: ArrayLike,
    classes: Classes,
    folds: Sequence[Fold],
    *,
    standardise: bool = True,
    jobs: int = 1,
    on_fold: Callable[[int, float], None] | None = None,
) -> FoldScores:
    """Chooses C and fits on the training part of each fold, and scores the test part.

    Args:
        embeddings: ``(G, d)``.
        classes: ``(G,)`` class numbers.
        folds: train and test graphs of each fold. Where a class has fewer than five members in a training part,
            there are that many inner folds instead of five; below two, it is an error.
        standardise: False is the published, unscaled form.
        jobs: processes; the scores do not depend on it.
        on_fold: called with the fold's number and accuracy, in order, as folds are done.
    """
    embeddings, classes = checked_embeddings(embeddings, classes)
    tasks = (delayed(_score_fold)(embeddings, classes, fold, standardise) for fold in folds)
    scores: list[tuple[float, float]] = []
    for score in Parallel(n_jobs=jobs, return_as="generator")(tasks):
        scores.append(score)
        if on_fold is not None:
            on_fold(len(scores) - 1, score[0])
    return FoldScores(tuple(accuracy for accuracy, _ in scores), tuple(c for _, c in scores))


def checked_embeddings(embeddings: ArrayLike, classes: Classes) -> tuple[Matrix, Classes]:
    """The same as float64 and integers, or an error that names the first graph that cannot be scored."""
    matrix, classes = np.ascontiguousarray(embeddings, dtype=np.float64), np.asarray(classes)
    if matrix.ndim != 2 or matrix.shape[1] == 0 or len(matrix) != len(classes):
        raise UserError(
            f"embeddings: expected one row, with at least one column, for each of {len(classes)} graphs; "
            f"got shape {matrix.shape}."
        )
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise UserError(
            f"embeddings: {(~finite).sum()} of {len(matrix)} rows are not finite, the first is graph "
            f"{np.argmin(finite)}. The pre-training diverged; lower its learning rate."
        )
    return matrix, classes


def _score_fold(x: Matrix, classes: Classes, fold: Fold, standardise: bool) -> tuple[float, float]:
    train, test = fold
    splitter = StratifiedKFold(_num_inner_folds(classes[train]))
    # Inputs were checked once; sklearn need not search every kernel matrix for NaN again.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        inner = [
            _accuracies(x[train], classes[train], inner_fold, C_GRID, standardise)
            for inner_fold in splitter.split(x[train], classes[train])
        ]
        # The layout GridSearchCV has, so that sums round alike and equally good C are equal here too.
        mean_accuracies = np.array(inner).T.copy().mean(axis=1)
        chosen = C_GRID[int(mean_accuracies.argmax())]
        (accuracy,) = _accuracies(x, classes, (train, test), [chosen], standardise)
    return accuracy, chosen


def _num_inner_folds(classes: Classes) -> int:
    values, counts = np.unique(classes, return_counts=True)
    if len(values) < 2 or counts.min() < 2:
        raise UserError(
            f"svm: a training part has {len(values)} classes and {counts.min()} members of the rarest; choosing C "
            "needs two of both. Leave rare classes out, or use more folds."
        )
    return min(NUM_INNER_FOLDS, int(counts.min()))


def _accuracies(x: Matrix, classes: Classes, fold: Fold, c_values: Sequence[float], standardise: bool) -> list[float]:
    """The test accuracy under each C, all with one kernel matrix."""
    train, test = fold
    x_train, x_test = x[train], x[test]
    if standardise:
        scaler = StandardScaler().fit(x_train)
        x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
    variance = x_train.var()
    gamma = 1.0 / (x.shape[1] * variance) if variance != 0 else 1.0
    among_train = rbf_kernel(x_train, gamma=gamma)
    test_to_train = rbf_kernel(x_test, x_train, gamma=gamma)
    accuracies = []
    for c in c_values:
        machine = SVC(kernel="precomputed", C=c).fit(among_train, classes[train])
        accuracies.append(float(np.mean(machine.predict(test_to_train) == classes[test])))
    return accuracies
