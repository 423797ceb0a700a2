r"""Kernel ridge regression on embeddings, fingerprints or both: a quick model for labelled molecules.

The kernel of embeddings, standardised on the training molecules, is :math:`\exp(-\lVert x - y \rVert^2 / d)`. That of
ECFP counts is Tanimoto's, :math:`x \cdot y / (\lVert x \rVert^2 + \lVert y \rVert^2 - x \cdot y)`. Several kernels are
averaged. Only the kernel with m landmarks, molecules that are drawn without labels, is computed (Nyström's method):
with :math:`K = L L^T` among the landmarks, the features of a molecule are :math:`L^{-1} k_x`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from torch import Tensor

from joao.core.errors import UserError
from joao.core.randomness import numpy_generator

Matrix = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
NUM_LANDMARKS = 2000
PENALTIES = np.logspace(-3, 5, 17)
_JITTER = 1e-6  # share of the diagonal that is added, against rounding
_CERTAIN = 16.0  # logit of tasks whose labels are all equal
_ROWS_AT_ONCE = 4096
_PARTS = ("landmarks", "shift", "scale")


@final
@dataclass(frozen=True, eq=False)
class KernelRidge:
    """Kernel ridge regression of several tasks.

    Attributes:
        kind: ``binary`` (predicts the probability of 1) or ``numbers``.
        landmarks: ``(m, d)`` by name of the columns; those of ``ecfp`` have Tanimoto's kernel, others are standardised.
        shift, scale: ``(d,)`` by name: how columns other than ``ecfp`` are standardised.
        weight, bias: ``(T, m)`` and ``(T,)``: the output is the sum of kernels with these weights; a logit if binary.
    """

    kind: str
    landmarks: Mapping[str, NDArray[Any]]
    shift: Mapping[str, NDArray[np.float32]]
    scale: Mapping[str, NDArray[np.float32]]
    weight: Matrix
    bias: Matrix

    @classmethod
    def fit(cls, columns: Columns, labels: NDArray[np.float32], kind: str, seed: int) -> Self:
        """Fit every task to the rows that have its label; the penalty has the smallest leave-one-out error.

        Args:
            columns: ``(G, d)`` by name.
            labels: ``(G, T)``, NaN for missing labels. A task without labels predicts 0.
        """
        statistics = {name: mean_and_scale(values) for name, values in columns.items() if name != "ecfp"}
        shift, scale = ({name: each[part] for name, each in statistics.items()} for part in (0, 1))
        drawn = np.sort(numpy_generator(seed, "landmarks").permutation(len(labels))[:NUM_LANDMARKS])
        landmarks = {
            name: values[drawn].astype(np.uint8) if name == "ecfp" else _scaled(values[drawn], shift[name], scale[name])
            for name, values in columns.items()
        }
        empty = np.zeros((labels.shape[1], len(drawn)))
        model = cls(kind, landmarks, shift, scale, empty, empty[:, 0])
        among = model._kernel({name: values[drawn] for name, values in columns.items()})
        triangle = cholesky(among + _JITTER * np.trace(among) / len(among) * np.eye(len(among)), lower=True)
        features = solve_triangular(triangle, model._kernel(columns).T, lower=True).T
        weight, bias = fit_ridge(features, labels, kind)
        weight = solve_triangular(triangle, weight.T, lower=True, trans="T").T
        return cls(kind, landmarks, shift, scale, weight, bias)

    def predict(self, columns: Columns) -> Matrix:
        """Predict ``(G, T)`` probabilities of 1 or numbers."""
        num_rows = len(next(iter(columns.values())))
        outputs = np.zeros((num_rows, len(self.bias)))
        for first in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            kernel = self._kernel({name: columns[name][rows] for name in self.landmarks})
            outputs[rows] = kernel @ self.weight.T + self.bias
        return to_predictions(outputs, self.kind)

    def _kernel(self, columns: Columns) -> Matrix:
        """``(G, m)`` mean kernel with the landmarks."""
        kernels = []
        for name, marks in self.landmarks.items():
            if columns[name].shape[1] != marks.shape[1]:
                raise UserError(f"kernel: expected {marks.shape[1]} columns of {name}, got {columns[name].shape[1]}.")
            if name == "ecfp":
                kernels.append(_tanimoto(columns[name].astype(np.float64), marks.astype(np.float64)))
            else:
                x = _scaled(columns[name], self.shift[name], self.scale[name]).astype(np.float64)
                kernels.append(np.exp(-_squared_distances(x, marks.astype(np.float64)) / max(x.shape[1], 1)))
        return sum(kernels[1:], kernels[0]) / len(kernels)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the model as tensors by name: all that :meth:`from_tensors` needs."""
        arrays: dict[str, NDArray[Any]] = {"weight": self.weight, "bias": self.bias}
        for what in _PARTS:
            arrays |= {f"{what}.{name}": values for name, values in getattr(self, what).items()}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], kind: str, num_tasks: int) -> Self:
        """Make a model of ``num_tasks`` tasks from untrusted tensors; a ValueError says what is wrong with them."""
        arrays = {name: value.numpy() for name, value in tensors.items()}
        names = [name.removeprefix("landmarks.") for name in arrays if name.startswith("landmarks.")]
        others = [name for name in names if name != "ecfp"]
        types: dict[str, Any] = {"weight": np.float64, "bias": np.float64}
        types |= {f"landmarks.{name}": np.uint8 if name == "ecfp" else np.float32 for name in names}
        types |= {f"{what}.{name}": np.float32 for what in ("shift", "scale") for name in others}
        if not names or {name: value.dtype for name, value in arrays.items()} != types:
            raise ValueError(f"kernel: expected {', '.join(types)}, got {', '.join(arrays)}")
        widths = {name: arrays[f"landmarks.{name}"].shape[1:] for name in names}
        number = len(arrays[f"landmarks.{names[0]}"])
        shapes = {"weight": (num_tasks, number), "bias": (num_tasks,)}
        shapes |= {f"landmarks.{name}": (number, *width[:1]) for name, width in widths.items()}
        shapes |= {f"{what}.{name}": widths[name] for what in ("shift", "scale") for name in others}
        if {name: value.shape for name, value in arrays.items()} != shapes or any(
            len(each) != 1 for each in widths.values()
        ):
            raise ValueError("kernel: weights and landmarks do not fit together")
        if not all(np.isfinite(value).all() for value in arrays.values()):
            raise ValueError("kernel: has NaN or infinite values")
        parts = [{name: arrays[f"{what}.{name}"] for name in names if f"{what}.{name}" in arrays} for what in _PARTS]
        return cls(kind, parts[0], parts[1], parts[2], arrays["weight"], arrays["bias"])


def fit_ridge(features: Matrix, labels: NDArray[np.float32], kind: str) -> tuple[Matrix, Matrix]:
    r"""Ridge regression of every task on the rows that have its label; returns weights ``(T, d)`` and bias ``(T,)``.

    The penalty has the smallest leave-one-out error. For tasks of 0 and 1 the regression is on -1 and 1, both with the
    same total weight, and its leave-one-out predictions :math:`f_i` give the logit :math:`a f + b` by logistic
    regression, so that :math:`\sigma(a f + b)` is a probability.
    """
    weight, bias = np.zeros((labels.shape[1], features.shape[1])), np.zeros(labels.shape[1])
    for task, of_task in enumerate(labels.T.astype(np.float64)):
        known = ~np.isnan(of_task)
        y = of_task[known]
        if kind == "numbers" and len(y):
            weight[task], bias[task], _ = _ridge(features[known], y, np.ones(len(y)))
        elif kind == "binary" and len(np.unique(y)) < 2:
            bias[task] = _CERTAIN if len(y) and y[0] == 1 else -_CERTAIN
        elif kind == "binary":
            weights = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
            coefficients, intercept, left_out = _ridge(features[known], 2 * y - 1, weights)
            slope, offset = _calibrate(left_out, y)
            weight[task], bias[task] = slope * coefficients, slope * intercept + offset
    return weight, bias


def to_predictions(outputs: Matrix, kind: str) -> Matrix:
    """Convert outputs to probabilities of 1, or leave numbers as they are."""
    return 1 / (1 + np.exp(-np.clip(outputs, -700, 700))) if kind == "binary" else outputs


def _ridge(x: Matrix, y: Matrix, weights: Matrix) -> tuple[Matrix, float, Matrix]:
    """Weighted ridge regression; returns coefficients, intercept and the leave-one-out predictions ``(n,)``."""
    shares = weights / weights.sum()
    mean_x, mean_y, root = shares @ x, shares @ y, np.sqrt(weights)
    z, target = root[:, None] * (x - mean_x), root * (y - mean_y)
    if len(z) < z.shape[1]:  # only as many directions as rows matter
        _, singular, directions = np.linalg.svd(z, full_matrices=False)
        values, vectors = singular**2, directions.T
    else:
        values, vectors = eigh(z.T @ z)
    # With one decomposition, every penalty costs a few products. Without row i, its residual is that of the fit to all
    # rows divided by 1 - leverage_i, so that no fit is repeated to leave rows out.
    values, rotated, best = np.maximum(values, 0), z @ vectors, np.inf
    along = rotated.T @ target
    for penalty in PENALTIES:
        shrunk = along / (values + penalty)
        leverage = shares + rotated**2 @ (1 / (values + penalty))
        residual = (target - rotated @ shrunk) / np.maximum(1 - leverage, 1e-9)
        error = float(residual @ residual)
        if error < best:
            best, coefficients, left_out = error, vectors @ shrunk, y - residual / root
    return coefficients, float(mean_y - mean_x @ coefficients), left_out


def _calibrate(scores: Matrix, y: Matrix) -> tuple[float, float]:
    """Slope, at least 0, and offset of a logistic regression of balanced labels on scores."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced").fit(scores[:, None], y)
    return max(float(model.coef_[0, 0]), 0.0), float(model.intercept_[0])


def _scaled(x: NDArray[Any], shift: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = ((x - shift) / scale).astype(np.float32)
    return scaled


def _squared_distances(x: Matrix, y: Matrix) -> Matrix:
    distances: Matrix = np.maximum((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T, 0)
    return distances


def _tanimoto(x: Matrix, y: Matrix) -> Matrix:
    """Tanimoto's kernel of rows; 1 between rows of zeros."""
    from scipy.sparse import csr_array

    products = (csr_array(x) @ csr_array(y).T).toarray()
    union = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - products
    similarities: Matrix = np.where(union > 0, products / np.where(union > 0, union, 1), 1.0)
    return similarities


def mean_and_scale(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of columns; 1 instead of the deviation of constant ones."""
    deviation = x.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 1e-5 * np.abs(x).max(axis=0), deviation, 1)
    return x.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)
