"""The linear scorer. Oracle: kernel ridge regression in its dual form, fitted anew on every training part."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import cosine_similarity, rbf_kernel
from sklearn.preprocessing import StandardScaler

from joao.evaluation import embeddings as scoring
from joao.evaluation.embeddings import choose_scorer, evaluate_embeddings
from joao.evaluation.folds import folds
from joao.evaluation.svm import C_GRID
from joao.evaluation.svm_linear import choose_landmarks
from tests.messages import refused


def rows_and_classes(num_classes=2, number=90, seed=0):
    random = np.random.default_rng(seed)
    classes = np.arange(number) % num_classes
    return random.normal(size=(number, 5)) + 1.6 * np.eye(5)[classes], classes


def by_the_dual(kernel, classes, partition, num_folds):
    """Accuracy and C of each fold; a constant feature adds 1 to the kernel."""
    kernel, parts, values = kernel + 1, folds(classes, partition, num_folds), np.unique(classes)
    targets = np.where(classes[:, None] == values, 1.0, -1.0)

    def accuracy(train, test, c):
        alpha = np.linalg.solve(kernel[np.ix_(train, train)] + np.eye(len(train)) / (2 * c), targets[train])
        return np.mean(values[(kernel[np.ix_(test, train)] @ alpha).argmax(axis=1)] == classes[test])

    found = []
    for number, (train, test) in enumerate(parts):
        others = [part for place, (_, part) in enumerate(parts) if place != number]
        means = [np.mean([accuracy(np.setdiff1d(train, part), part, c) for part in others]) for c in C_GRID]
        chosen = C_GRID[int(np.argmax(means))]
        found.append((accuracy(train, test, chosen), chosen))
    return found


def scaled_rbf(rows):
    x = StandardScaler().fit_transform(rows)
    return rbf_kernel(x, gamma=1 / (x.shape[1] * x.var()))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_with_all_graphs_as_landmarks_it_is_kernel_ridge_regression(num_classes):
    rows, classes = rows_and_classes(num_classes)
    sparse = csr_array(np.abs(rows) * (rows > 0.3))
    score = partial(evaluate_embeddings, classes=classes, partitions=[3], num_folds=4, scorer="linear")
    cases = {
        "rbf": (rows, scaled_rbf(rows)),
        "linear": (sparse, cosine_similarity(sparse)),
        "mean": ([(rows, "rbf"), (sparse, "linear")], (scaled_rbf(rows) + cosine_similarity(sparse)) / 2),
    }
    for kernel, (given, matrix) in cases.items():
        (found,) = score(given, kernel=kernel).partitions
        expected = by_the_dual(matrix, classes, 3, 4)
        np.testing.assert_allclose(np.transpose([found.folds.accuracies, found.folds.chosen_c]), expected)


def test_fewer_landmarks_than_graphs(monkeypatch):
    rows, classes = rows_and_classes(number=400)
    exact = evaluate_embeddings(rows, classes, partitions=[0], num_folds=5).mean
    monkeypatch.setattr(scoring, "score_folds_linear", partial(scoring.score_folds_linear, num_landmarks=40))
    assert evaluate_embeddings(rows, classes, partitions=[0], num_folds=5, scorer="linear").mean == pytest.approx(
        exact, abs=0.06
    )
    landmarks = choose_landmarks(400, 40)
    assert len(np.unique(landmarks)) == 40
    assert landmarks.max() < 400


def test_labels_of_a_test_fold_do_not_matter():
    rows, classes = rows_and_classes()
    parts = folds(classes, 0, 3)
    other = classes.copy()
    other[parts[0][1]] = 1 - other[parts[0][1]]  # accuracy a becomes 1 - a if nothing else has changed
    first, second = (
        next(scoring.score_folds_linear([(rows, rbf_kernel)], each, parts, (0.1, 1.0, 10.0)))
        for each in (classes, other)
    )
    assert first == (pytest.approx(1 - second[0]), second[1])


def test_which_scorer_is_chosen_and_recorded():
    assert choose_scorer("auto", 10_000) == "exact"
    assert choose_scorer("auto", 10_001) == "linear"
    assert [choose_scorer(name, number) for name, number in (("exact", 10**6), ("linear", 3))] == ["exact", "linear"]
    with refused("auto", "exact", "linear", "'fast'"):
        choose_scorer("fast", 3)
    rows, classes = rows_and_classes()
    score = partial(evaluate_embeddings, rows, classes, partitions=[0], num_folds=3)
    assert "1,000" in score(scorer="linear").to_json()["scorer"]
    assert "scorer" not in score().to_json()
    with refused("linear", 3, 2):
        score(num_folds=2, scorer="linear")
