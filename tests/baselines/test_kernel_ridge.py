"""Oracles: scikit-learn's ridge regression in a loop over left-out rows, and kernels by hand."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from joao.baselines import kernel_ridge
from joao.baselines.kernel_ridge import PENALTIES, KernelRidge, fit_ridge

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 6)).astype(np.float32)
COUNTS = DRAW.integers(0, 4, size=(40, 8)).astype(np.float32)
Y = (X[:, 0] + COUNTS[:, 0] + DRAW.normal(size=40)).astype(np.float32)


def by_loop(features, y, weights):
    """Ridge regression with the penalty that predicts left-out rows best, and these predictions."""
    found = []
    for penalty in PENALTIES:
        rest = [np.delete(np.arange(len(y)), row) for row in range(len(y))]
        left_out = [
            Ridge(penalty).fit(features[rows], y[rows], weights[rows]).predict(features[[row]])[0]
            for row, rows in enumerate(rest)
        ]
        found.append((float(weights @ (np.array(left_out) - y) ** 2), penalty, left_out))
    _, penalty, left_out = min(found)
    return Ridge(penalty).fit(features, y, weights), np.array(left_out)


def test_ridge_leaves_out_every_row_once():
    labels = np.stack([Y, np.where(np.arange(40) % 3, Y, np.nan)], axis=1)
    weight, bias = fit_ridge(X.astype(np.float64), labels, "numbers")
    for task in (0, 1):
        known = ~np.isnan(labels[:, task])
        expected, _ = by_loop(X[known].astype(np.float64), labels[known, task].astype(np.float64), np.ones(known.sum()))
        assert weight[task] == pytest.approx(expected.coef_, abs=1e-6)
        assert bias[task] == pytest.approx(expected.intercept_, abs=1e-6)


def test_probabilities_follow_from_the_predictions_of_left_out_rows():
    from sklearn.linear_model import LogisticRegression

    y = (X[:, 0] + X[:, 1] > 0.8).astype(np.float32)
    weight, bias = fit_ridge(X.astype(np.float64), y[:, None], "binary")
    weights = np.where(y == 1, 20 / y.sum(), 20 / (1 - y).sum())
    ridge, left_out = by_loop(X.astype(np.float64), 2 * y.astype(np.float64) - 1, weights)
    logistic = LogisticRegression(class_weight="balanced").fit(left_out[:, None], y)
    expected = logistic.decision_function(ridge.predict(X)[:, None])
    assert X @ weight[0] + bias[0] == pytest.approx(expected, abs=1e-4)


def test_kernel_matches_ridge_regression_on_its_square_root(monkeypatch):
    monkeypatch.setattr(kernel_ridge, "_JITTER", 1e-12)
    model = KernelRidge.fit({"encoder": X, "ecfp": COUNTS}, Y[:, None], "numbers", 0)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = np.zeros((40, 40))
    for first in range(40):
        for second in range(40):
            a, b = COUNTS[first].astype(float), COUNTS[second].astype(float)
            near = np.exp(-((scaled[first] - scaled[second]) ** 2).sum() / 6)
            kernel[first, second] = (near + a @ b / (a @ a + b @ b - a @ b)) / 2
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(values)  # any square root has the same predictions
    expected, _ = by_loop(root, Y.astype(np.float64), np.ones(40))
    found = model.predict({"encoder": X, "ecfp": COUNTS})[:, 0]
    assert found == pytest.approx(expected.predict(root), abs=1e-3)
    assert np.ptp(found) > 1


def test_tasks_without_two_labels_predict_their_label():
    labels = np.stack([np.ones(40), np.full(40, np.nan), X[:, 0] > 0], axis=1).astype(np.float32)
    found = KernelRidge.fit({"encoder": X}, labels, "binary", 0).predict({"encoder": X})
    assert found[:, 0] == pytest.approx(1, abs=1e-6)
    assert found[:, 1] == pytest.approx(0, abs=1e-6)
    assert ((found[:, 2] > 0.5) == (labels[:, 2] == 1)).mean() > 0.8
    numbers = KernelRidge.fit({"encoder": X[:2]}, np.array([[3.0], [3.0]], np.float32), "numbers", 0)
    assert numbers.predict({"encoder": X}) == pytest.approx(3)


@pytest.mark.parametrize("number", [10, 40])
def test_stored_model_predicts_the_same(monkeypatch, number):
    monkeypatch.setattr(kernel_ridge, "NUM_LANDMARKS", number)
    columns = {"encoder": X, "ecfp": COUNTS}
    model = KernelRidge.fit(columns, Y[:, None], "numbers", 0)
    assert model.weight.shape == (1, number)
    loaded = KernelRidge.from_tensors(model.to_tensors(), "numbers", 1)
    assert (loaded.predict(columns) == model.predict(columns)).all()


@pytest.mark.parametrize("name", ["weight", "bias", "landmarks.encoder", "landmarks.ecfp", "shift.encoder"])
@pytest.mark.parametrize("damage", ["missing", "shorter", "type", "nan"])
def test_damaged_models_are_refused(name, damage):
    tensors = KernelRidge.fit({"encoder": X, "ecfp": COUNTS}, Y[:, None], "numbers", 0).to_tensors()
    if (name, damage) == ("landmarks.ecfp", "missing"):
        return  # a model of embeddings alone
    value = tensors.pop(name)
    if damage == "shorter":
        tensors[name] = value[:-1]
    elif damage == "type":
        tensors[name] = value.half()
    elif damage == "nan":
        tensors[name] = value * float("nan")
    with pytest.raises(ValueError, match="kernel"):
        KernelRidge.from_tensors(tensors, "numbers", 1)
