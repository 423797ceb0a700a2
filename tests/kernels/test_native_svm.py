"""The SVM of the compiled core; the oracle is libsvm on the same kernel."""

import numpy as np
import pytest
from sklearn.svm import SVC

from joao.core.errors import UserError
from joao.evaluation import embeddings, svm
from joao.evaluation.embeddings import EXACT_UP_TO, choose_scorer, evaluate_embeddings
from joao.evaluation.folds import folds
from joao.evaluation.svm import C_GRID, score_folds
from joao.kernels import native
from tests.evaluation.test_svm import noisy_data, plain_grid_search


@pytest.fixture(params=native.LEVELS, autouse=True)
def level(request, monkeypatch):
    monkeypatch.setenv("JOAO_NATIVE", request.param)
    if native.native_level() != request.param:
        pytest.skip(f"no {request.param} here")


def make_kernel(kind, seed=0, size=150):
    """A kernel in float32, and rows of both classes in an order that is not that of the kernel."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size + 20, 4))
    if kind == "twins":
        x = x[rng.integers(25, size=size + 20)]
    exponents = -0.2 * ((x[:, None] - x) ** 2).sum(axis=2)
    kernel = {"linear": x @ x.T, "indefinite": np.tanh(x @ x.T)}.get(kind, np.exp(exponents)).astype(np.float32)
    positive = rng.permutation(size + 20)[:size]
    is_first = x[positive, 0] + 0.7 * rng.normal(size=size) > 0.3
    return kernel, np.concatenate([positive[is_first], positive[~is_first]]), int(is_first.sum())


def objective(coefficients, kernel):
    return np.abs(coefficients).sum() - coefficients @ kernel @ coefficients / 2


@pytest.mark.parametrize("kind", ["rbf", "twins", "linear"])
def test_machines_are_optimal_and_decide_as_libsvm(kind):
    kernel, rows, positive = make_kernel(kind)
    labels = np.where(np.arange(len(rows)) < positive, 1, -1)
    own, others = kernel[np.ix_(rows, rows)].astype(np.float64), kernel[:, rows].astype(np.float64)
    for c, b, offset in zip(C_GRID, *native.fit_machines(kernel, rows, positive, C_GRID), strict=True):
        assert ((labels * b >= 0) & (labels * b <= c)).all()
        assert abs(b.sum()) < 1e-9 * c * len(b)
        slope = labels - own @ b
        gap = slope[b < np.where(labels > 0, c, 0)].max() - slope[b > np.where(labels > 0, 0, -c)].min()
        assert gap < 1.001e-3
        theirs = SVC(kernel="precomputed", C=c).fit(own, labels)
        expected = np.zeros(len(rows))
        expected[theirs.support_] = theirs.dual_coef_[0]
        assert objective(b, own) == pytest.approx(objective(expected, own), rel=1e-4)
        decisions, known = others @ b - offset, theirs.decision_function(others)
        clear = np.abs(known) > 0.02
        assert clear.mean() > 0.8
        assert ((decisions > 0) == (known > 0))[clear].all()


def test_an_indefinite_kernel_ends_inside_the_bounds():
    kernel, rows, positive = make_kernel("indefinite")
    coefficients, offsets = native.fit_machines(kernel, rows, positive, C_GRID)
    assert np.isfinite(coefficients).all()
    assert np.isfinite(offsets).all()
    assert (np.abs(coefficients) <= np.array(C_GRID)[:, None]).all()


def test_two_rows_have_the_solution_of_the_closed_form():
    """By symmetry both coefficients are a, and 2a - a^2 (1 + 1 - 2k) / 2 is largest at 1 / (1 - k)."""
    kernel = np.array([[1, 0.5], [0.5, 1]], dtype=np.float32)
    coefficients, offsets = native.fit_machines(kernel, np.array([1, 0]), 1, [0.1, 1.0, 10.0])
    np.testing.assert_allclose(coefficients, [[0.1, -0.1], [1, -1], [2, -2]], rtol=1e-6)
    np.testing.assert_allclose(offsets, 0, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_kernels_that_tell_nothing_decide_for_the_larger_class(value):
    kernel = np.full((9, 9), value, dtype=np.float32)
    coefficients, offsets = native.fit_machines(kernel, np.arange(9), 5, C_GRID)
    assert (coefficients @ kernel - offsets[:, None] > 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_kernels_that_are_not_finite_are_refused(value):
    kernel, rows, positive = make_kernel("rbf", size=20)
    kernel[rows[3], rows[4]] = value
    with pytest.raises(UserError):
        native.fit_machines(kernel, rows, positive, C_GRID)


@pytest.mark.parametrize(("seed", "num_classes", "standardise"), [(0, 2, True), (1, 2, False), (4, 4, True)])
def test_scores_and_choices_are_those_of_a_plain_grid_search(seed, num_classes, standardise):
    x, classes = noisy_data(seed, num_classes=num_classes)
    parts = folds(classes, seed, num_folds=3)
    ours = score_folds(x, classes, parts, standardise=standardise, compiled=True)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, standardise)
    assert score_folds(x, classes, parts, standardise=standardise, jobs=2, compiled=True) == ours


def test_several_kernels_are_scored_as_by_libsvm():
    x, classes = noisy_data(2, num_classes=3)
    parts = folds(classes, 0, num_folds=3)
    together = [(x, "rbf"), (np.abs(x), "linear")]
    ours = score_folds(together, classes, parts, kernel="mean", compiled=True)
    assert score_folds(together, classes, parts, kernel="mean") == ours


def test_the_record_names_the_solver_and_a_missing_core_is_an_error(monkeypatch):
    x, classes = noisy_data(0, num_graphs=40)
    found = evaluate_embeddings(x, classes, partitions=[0], num_folds=3, scorer="compiled")
    assert found.to_json()["scorer"] != evaluate_embeddings(x, classes, partitions=[0], num_folds=3).to_json().get(
        "scorer"
    )
    monkeypatch.setenv("JOAO_NATIVE", "off")
    with pytest.raises(UserError, match="off"):
        evaluate_embeddings(x, classes, partitions=[0], num_folds=3, scorer="compiled")


def test_auto_takes_the_compiled_core_where_it_is_the_fastest_exact_solver(monkeypatch):
    x, classes = noisy_data(0, num_graphs=40)
    settings = {"partitions": [0], "num_folds": 3}
    expected = evaluate_embeddings(x, classes, **settings, scorer="compiled")
    assert evaluate_embeddings(x, classes, **settings, scorer="auto") == expected
    assert evaluate_embeddings(x, classes, **settings).scorer == "exact"  # what repro uses
    assert choose_scorer("auto", EXACT_UP_TO) == "compiled"
    assert choose_scorer("auto", EXACT_UP_TO + 1) == "linear"
    monkeypatch.setattr(embeddings, "has_fast_solver", lambda rows, device: device == "cuda")
    assert [choose_scorer("auto", 40, device=device) for device in ("cpu", "cuda")] == ["compiled", "exact"]
    monkeypatch.setenv("JOAO_NATIVE", "off")
    assert choose_scorer("auto", 40) == "exact"


def test_a_training_part_of_one_class_predicts_it():
    kernels = np.ones((4, 4), dtype=np.float32), np.ones((3, 4), dtype=np.float32)
    fold = np.arange(4), np.arange(4, 7)
    classes = np.array([2, 2, 2, 2, 2, 1, 2])
    assert svm._compiled_accuracies(lambda part: kernels, classes, fold, [1.0, 10.0]) == [2 / 3, 2 / 3]
