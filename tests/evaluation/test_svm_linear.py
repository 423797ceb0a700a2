"""The support vector machine on the feature map of a graph kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.folds import folds
from joao.evaluation.svm import normalised_gram, score_folds
from tests.messages import refused

GRID = {"C": [10.0**power for power in range(-3, 4)]}


def counts(seed, num_graphs=120, num_classes=2):
    """Rare counts of 40 things, some of which the class makes more frequent."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(num_classes, size=num_graphs)
    rates = rng.random((num_classes, 40)) * 0.6
    return rng.poisson(rates[classes]).astype(float), classes


def plain_grid_search(x, classes, parts):
    """By scikit-learn, on rows of length 1."""
    rows, accuracies, chosen = normalize(x), [], []
    for train, test in parts:
        search = GridSearchCV(SVC(kernel="linear"), GRID, cv=StratifiedKFold(5)).fit(rows[train], classes[train])
        accuracies.append(search.score(rows[test], classes[test]))
        chosen.append(search.best_params_["C"])
    return tuple(accuracies), tuple(chosen)


@pytest.mark.parametrize(("seed", "num_classes"), [(0, 2), (1, 2), (2, 3), (3, 4)])
def test_scores_and_choices_are_those_of_a_plain_grid_search(seed, num_classes):
    x, classes = counts(seed, num_classes=num_classes)
    parts = folds(classes, seed, num_folds=3)
    ours = score_folds(x, classes, parts, kernel="linear")
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts)
    assert score_folds(csr_array(x), classes, parts, kernel="linear", jobs=2) == ours
    assert ours != score_folds(x, classes, parts)


def test_linear_kernel_is_the_gram_matrix_of_unit_rows():
    x, _ = counts(0)
    x[7] = 0
    expected = normalize(x) @ normalize(x).T
    for rows in (x, csr_array(x)):
        np.testing.assert_allclose(normalised_gram(rows), expected, rtol=1e-12, atol=1e-15)
    assert not normalised_gram(x)[7].any()


def test_row_of_zeros_is_scored():
    x, classes = counts(0, num_graphs=40)
    x[[3, 9]] = 0
    assert len(score_folds(csr_array(x), classes, folds(classes, 0, num_folds=4), kernel="linear").accuracies) == 4


def test_the_scale_of_a_row_does_not_matter():
    x, classes = counts(1)
    parts = folds(classes, 0, num_folds=3)
    scaled = x * 2.0 ** (np.arange(len(x)) % 30)[:, None]
    assert score_folds(scaled, classes, parts, kernel="linear") == score_folds(x, classes, parts, kernel="linear")


def test_kernel_is_passed_on_and_recorded():
    x, classes = counts(0, num_graphs=60)
    scores = evaluate_embeddings(csr_array(x), classes, partitions=[1], num_folds=3, kernel="linear")
    assert scores.partitions[0].folds == score_folds(x, classes, folds(classes, 1, 3), kernel="linear")
    record = scores.to_json()
    assert (record["kernel"], record["standardise"]) == ("linear", False)
    assert "kernel" not in evaluate_embeddings(x, classes, partitions=[1], num_folds=3).to_json()


@pytest.mark.parametrize("kernel", ["rbf", "cosine"])
def test_other_kernels_of_sparse_rows_are_an_error(kernel):
    x, classes = counts(0)
    with refused("svm", f"'{kernel}'", "csr_array", "rbf", "linear"):
        score_folds(csr_array(x), classes, folds(classes, 0), kernel=kernel)


def test_sparse_rows_that_are_not_finite_are_an_error():
    x, classes = counts(0)
    x[[7, 30], 2] = np.nan, np.inf
    with refused("embeddings", "2 of 120", "graph 7"):
        score_folds(csr_array(x), classes, folds(classes, 0), kernel="linear")
