from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from joao.errors import UserError
from joao.evaluation.folds import folds
from joao.evaluation.svm import score_folds

GRID = [10.0**power for power in range(-3, 4)]


def noisy_data(seed, num_graphs=120, num_classes=2):
    """Columns of unlike scales, one of them constant, that tell the class of most graphs."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(num_classes, size=num_graphs)
    x = rng.normal(size=(num_graphs, 6))
    x[:, 0] += classes
    x[:, 1] = x[:, 1] * x[:, 2] + 0.5 * classes
    return np.c_[x * [1, 3, 0.1, 10, 1, 0.01], np.full(num_graphs, 7.0)], classes


def plain_grid_search(x, classes, parts, standardise, num_inner=5):
    steps = [("scaler", StandardScaler())] if standardise else []
    search = GridSearchCV(Pipeline([*steps, ("svc", SVC())]), {"svc__C": GRID}, cv=StratifiedKFold(num_inner))
    accuracies, chosen = [], []
    for train, test in parts:
        fitted = search.fit(x[train], classes[train])
        accuracies.append(fitted.score(x[test], classes[test]))
        chosen.append(fitted.best_params_["svc__C"])
    return tuple(accuracies), tuple(chosen)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize(("seed", "num_classes"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4)])
def test_scores_and_choices_are_those_of_a_plain_grid_search(seed, num_classes, standardise):
    x, classes = noisy_data(seed, num_classes=num_classes)
    parts = folds(classes, seed, num_folds=3)
    ours = score_folds(x, classes, parts, standardise=standardise)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, standardise)


def test_on_pure_noise_the_ties_are_resolved_as_in_a_plain_grid_search():
    rng = np.random.default_rng(0)
    x, classes = rng.integers(2, size=(60, 2)).astype(float), rng.integers(2, size=60)
    parts = folds(classes, 0, num_folds=3)
    ours = score_folds(x, classes, parts)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, True)


def test_constant_embeddings_score_the_largest_class():
    classes = np.array([0] * 30 + [1] * 20)
    ours = score_folds(np.ones((50, 3)), classes, folds(classes, 0, num_folds=5))
    assert ours.accuracies == (0.6,) * 5
    assert ours.chosen_c == (1e-3,) * 5  # all are equal, so the first


def test_test_graphs_change_no_other_prediction():
    x, classes = noisy_data(0)
    (train, test), *_ = folds(classes, 0, num_folds=4)
    alone = [score_folds(x, classes, [(train, test[i : i + 1])]).accuracies[0] for i in range(6)]
    assert score_folds(x, classes, [(train, test[:6])]).accuracies[0] == pytest.approx(np.mean(alone))


def test_scores_do_not_depend_on_the_number_of_processes():
    x, classes = noisy_data(0, num_graphs=60)
    parts = folds(classes, 0, num_folds=3)
    assert score_folds(x, classes, parts, jobs=2) == score_folds(x, classes, parts)


def test_progress_is_told_in_order():
    x, classes = noisy_data(0, num_graphs=60)
    told = []
    scores = score_folds(x, classes, folds(classes, 0, num_folds=3), on_fold=lambda *call: told.append(call))
    assert told == list(enumerate(scores.accuracies))


def test_float32_embeddings_are_scored_in_double_precision():
    x, classes = noisy_data(0)
    single = x.astype(np.float32)
    parts = folds(classes, 0, num_folds=3)
    assert score_folds(single, classes, parts) == score_folds(single.astype(np.float64), classes, parts)


def test_a_rare_class_reduces_the_inner_folds():
    x, _ = noisy_data(0, num_graphs=40)
    classes = np.array([0] * 36 + [1] * 4)
    parts = folds(classes, 0, num_folds=4)  # three of the rare class in each training part
    ours = score_folds(x, classes, parts)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, True, num_inner=3)


@pytest.mark.parametrize("classes", [[0] * 9 + [1] * 3, [0] * 12])
def test_a_training_part_too_poor_to_choose_c_is_an_error(classes):
    fold = np.arange(10), np.arange(10, 12)
    with pytest.raises(UserError, match="choosing C needs two of both"):
        score_folds(np.eye(12), np.array(classes), [fold])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_an_error(value):
    x, classes = noisy_data(0)
    x[[7, 30], 2] = value
    with pytest.raises(UserError, match="2 of 120 rows are not finite, the first is graph 7"):
        score_folds(x, classes, folds(classes, 0))


@pytest.mark.parametrize("shape", [(119, 3), (120,), (120, 0)])
def test_embeddings_of_another_shape_are_an_error(shape):
    _, classes = noisy_data(0)
    with pytest.raises(UserError, match=r"for each of 120 graphs; got shape"):
        score_folds(np.zeros(shape), classes, folds(classes, 0))
