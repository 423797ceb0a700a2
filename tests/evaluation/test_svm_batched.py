import numpy as np
import pytest

from joao.evaluation import svm
from joao.evaluation.folds import folds
from joao.evaluation.svm import score_folds

X = np.random.default_rng(0).normal(size=(60, 3))
CLASSES = {
    2: (X[:, 0] + 0.8 * X[:, 1] ** 2 > 0.5).astype(np.int64),
    3: np.digitize(X[:, 0] + 0.8 * X[:, 1] ** 2, [-0.2, 0.9]),
}


def batched_scores(classes, parts, kernel="rbf", standardise=True, groups=None):
    kernels_of = svm._make_torch_kernel(X, kernel, standardise, "cpu")
    found = list(svm._score_folds_batched(kernels_of, classes, parts, groups))
    return [accuracy for accuracy, _ in found], [c for _, c in found]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(("kernel", "standardise"), [("rbf", True), ("rbf", False), ("linear", True)])
def test_batched_scores_equal_sequential_scores(number, kernel, standardise, monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (0.01, 3.0))
    classes = CLASSES[number]
    parts = folds(classes, 0, 3)
    one_by_one = score_folds(X, classes, parts, kernel=kernel, standardise=standardise)
    accuracies, chosen = batched_scores(classes, parts, kernel, standardise)
    assert accuracies == list(one_by_one.accuracies)
    assert chosen == list(one_by_one.chosen_c)
    assert 0.5 < np.mean(accuracies) < 1.0


def test_memory_limit_changes_only_the_number_of_folds_per_batch(monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (0.1, 3.0))
    parts = folds(CLASSES[2], 1, 3)
    together = batched_scores(CLASSES[2], parts)
    calls = []
    score_parts = svm.score_parts
    monkeypatch.setattr(svm, "score_parts", lambda *given: calls.append(len(given[2])) or score_parts(*given))
    monkeypatch.setattr(svm, "BYTES_AT_ONCE", 1)
    assert batched_scores(CLASSES[2], parts) == together
    assert calls == [6, 6, 6]


def test_twins_stay_together_in_inner_folds(monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (0.1, 3.0))
    groups = np.arange(len(X)) // 2
    parts = folds(CLASSES[2], 0, 3, groups=groups)
    expected = score_folds(X, CLASSES[2], parts, groups=groups)
    assert batched_scores(CLASSES[2], parts, groups=groups)[0] == list(expected.accuracies)
