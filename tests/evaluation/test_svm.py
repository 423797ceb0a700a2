from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from joao.baselines import Histogram
from joao.config.recipe import make_recipe
from joao.data import Features, read
from joao.evaluation import svm
from joao.evaluation.folds import folds
from joao.evaluation.svm import ROWS_AT_ONCE, kernel_matrix, score_folds
from joao.runs.trained import make_untrained
from tests.messages import refused

ROOT = os.environ.get("JOAO_DATA")
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


@pytest.mark.parametrize(
    ("seed", "num_classes", "standardise"), [(0, 2, True), (1, 2, False), (3, 3, False), (4, 4, True)]
)
def test_scores_and_choices_are_those_of_a_plain_grid_search(seed, num_classes, standardise):
    x, classes = noisy_data(seed, num_classes=num_classes)
    parts = folds(classes, seed, num_folds=3)
    ours = score_folds(x, classes, parts, standardise=standardise)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, standardise)


@pytest.mark.parametrize(
    ("seed", "num_classes", "standardise"), [(0, 2, True), (1, 2, False), (2, 2, True), (3, 3, False)]
)
def test_ties_on_noise_are_resolved_as_in_a_plain_grid_search(seed, num_classes, standardise):
    """Four different rows, each of many graphs of all classes: equal kernels, equally good C."""
    rng = np.random.default_rng(seed)
    x, classes = rng.integers(2, size=(60, 2)).astype(float), rng.integers(num_classes, size=60)
    parts = folds(classes, 0, num_folds=3)
    ours = score_folds(x, classes, parts, standardise=standardise)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, classes, parts, standardise)


@pytest.mark.parametrize("seed", range(3))
def test_libsvm_takes_the_same_steps_as_in_a_plain_grid_search(monkeypatch, seed):
    """Few different rows, each of graphs of both classes: what is equal for libsvm's own kernel must be equal here."""
    rng = np.random.default_rng(seed)
    x, classes = rng.normal(size=(15, 4))[rng.integers(15, size=100)], rng.integers(2, size=100)
    parts, steps = folds(classes, 0, num_folds=5)[:1], []

    class CountingSVC(SVC):
        def fit(self, *args):
            super().fit(*args)
            steps.append((self.C, *self.n_iter_))
            return self

    monkeypatch.setattr(svm, "SVC", CountingSVC)
    monkeypatch.setitem(globals(), "SVC", CountingSVC)
    score_folds(x, classes, parts)
    ours = steps.copy()
    steps.clear()
    plain_grid_search(x, classes, parts, True)
    assert len(ours) == 5 * 7 + 1
    assert sorted(ours) == sorted(steps)


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
@pytest.mark.parametrize(
    ("name", "num_measured", "standardise"),
    [("MUTAG", 4, True), ("MUTAG", 2, False), pytest.param("PROTEINS", 2, True, marks=pytest.mark.slow)],
)
def test_real_embeddings_are_scored_as_by_a_plain_grid_search(name, num_measured, standardise):
    dataset = read(name, root=ROOT)
    embeddings = (
        make_untrained(make_recipe({}), dataset, Features.from_dataset(dataset, "labels"), device="cpu")
        .embed(dataset)
        .numpy()
    )
    parts = folds(dataset.classes, 0)[:num_measured]
    ours = score_folds(embeddings, dataset.classes, parts, standardise=standardise)
    plain = plain_grid_search(embeddings.astype(np.float64), dataset.classes, parts, standardise)
    assert (ours.accuracies, ours.chosen_c) == plain


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
def test_equal_histograms_of_real_graphs_are_scored_as_by_a_plain_grid_search():
    """Of MUTAG's 188 histograms, 140 occur more than once."""
    dataset = read("MUTAG", root=ROOT)
    x, parts = Histogram().fit_transform(dataset), folds(dataset.classes, 1)[:3]
    ours = score_folds(x, dataset.classes, parts)
    assert (ours.accuracies, ours.chosen_c) == plain_grid_search(x, dataset.classes, parts, True)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 3.0])
def test_the_kernel_is_that_of_sklearn(gamma):
    x, y = np.random.default_rng(0).normal(size=(2, 30, 5))
    np.testing.assert_allclose(kernel_matrix(x, y[:20], gamma), rbf_kernel(x, y[:20], gamma=gamma), rtol=1e-12)


def test_a_symmetric_kernel_is_the_same_whether_half_of_it_is_computed_or_all():
    """The blocks below the diagonal are computed and mirrored; rows of another array are not known to be equal."""
    x = np.random.default_rng(0).normal(size=(2 * ROWS_AT_ONCE + 50, 3))
    half, whole = kernel_matrix(x, x, 0.5, np.float32), kernel_matrix(x, x.copy(), 0.5, np.float32)
    np.testing.assert_allclose(half, rbf_kernel(x, gamma=0.5), rtol=2e-6)
    np.testing.assert_allclose(half, whole, rtol=1e-6)
    assert (half == half.T).all()


def test_kernel_of_equal_rows_is_one_in_single_precision():
    """libsvm keeps columns in single precision, where the kernel of equal rows is exactly 1, as in its own."""
    x = 100 + np.random.default_rng(0).normal(size=(40, 5))
    assert (np.diag(kernel_matrix(x, x.copy(), 0.2)).astype(np.float32) == 1).all()


def test_constant_embeddings_score_the_largest_class():
    classes = np.array([0] * 30 + [1] * 20)
    ours = score_folds(np.ones((50, 3)), classes, folds(classes, 0, num_folds=5))
    assert ours.accuracies == (0.6,) * 5
    assert ours.chosen_c == (1e-3,) * 5  # all are equal, so the first


def test_predictions_do_not_depend_on_other_test_graphs():
    x, classes = noisy_data(0)
    (train, test), *_ = folds(classes, 0, num_folds=4)
    alone = [score_folds(x, classes, [(train, test[i : i + 1])]).accuracies[0] for i in range(6)]
    assert score_folds(x, classes, [(train, test[:6])]).accuracies[0] == pytest.approx(np.mean(alone))


def test_scores_do_not_depend_on_jobs():
    x, classes = noisy_data(0, num_graphs=60)
    parts = folds(classes, 0, num_folds=5)
    one_by_one = score_folds(x, classes, parts)
    assert score_folds(x, classes, parts, jobs=2) == score_folds(x, classes, parts, jobs=3) == one_by_one


def test_two_folds_run_in_parallel(monkeypatch):
    x, classes = noisy_data(0, num_graphs=60)
    both_are_here = threading.Barrier(2, timeout=60)  # breaks, which is an error, if the second does not come

    def score_fold(*args):
        both_are_here.wait()
        return 1.0, 1.0

    monkeypatch.setattr(svm, "_score_fold", score_fold)
    assert score_folds(x, classes, folds(classes, 0, num_folds=4), jobs=2).accuracies == (1.0,) * 4


def test_cache_size_does_not_change_scores(monkeypatch):
    x, classes = noisy_data(0, num_graphs=450)  # the columns of an inner training part take 0.2 MB
    (fold, *_) = folds(classes, 0, num_folds=3)
    scores = score_folds(x, classes, [fold])
    for size in ("SMALL_C_CACHE", "LARGE_C_CACHE"):
        monkeypatch.setattr(svm, size, 0.01)
    assert score_folds(x, classes, [fold]) == scores


def test_on_fold_is_called_in_order():
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


@pytest.mark.parametrize(("classes", "numbers"), [([0] * 9 + [1] * 3, (2, 1)), ([0] * 12, (1, 10))])
def test_training_part_too_small_to_choose_c_is_rejected(classes, numbers):
    fold = np.arange(10), np.arange(10, 12)
    with refused("svm", *numbers):
        score_folds(np.eye(12), np.array(classes), [fold])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_an_error(value):
    x, classes = noisy_data(0)
    x[[7, 30], 2] = value
    with refused("embeddings", "2 of 120", "graph 7"):
        score_folds(x, classes, folds(classes, 0))


@pytest.mark.parametrize("shape", [(119, 3), (120,), (120, 0)])
def test_embeddings_of_another_shape_are_an_error(shape):
    _, classes = noisy_data(0)
    with refused("embeddings", 120, shape):
        score_folds(np.zeros(shape), classes, folds(classes, 0))


def test_inner_folds_keep_groups_together():
    """As a grid search over folds that do; where equal graphs meet, another C looks best."""
    random = np.random.default_rng(0)
    groups, classes = np.tile(np.arange(40), 3), np.tile(random.integers(2, size=40), 3)
    x = random.normal(size=(40, 5))[groups]
    x[:, 0] += 0.7 * classes
    train, test = np.flatnonzero(groups < 30), np.flatnonzero(groups >= 30)
    chosen = []
    for together, splitter in ((None, StratifiedKFold(5)), (groups, StratifiedGroupKFold(5))):
        inner = list(splitter.split(x[train], classes[train], None if together is None else groups[train]))
        machine = Pipeline([("scaler", StandardScaler()), ("svm", SVC())])
        search = GridSearchCV(machine, {"svm__C": GRID}, cv=inner).fit(x[train], classes[train])
        scores = score_folds(x, classes, [(train, test)], groups=together)
        assert scores.chosen_c == (search.best_params_["svm__C"],)
        assert scores.accuracies == (search.score(x[test], classes[test]),)
        chosen += scores.chosen_c
    assert chosen[0] > chosen[1]  # learning twins by heart pays only where they meet


def test_a_training_part_with_one_group_of_a_class():
    classes, groups = np.repeat([0, 1], 6), np.r_[0:6, [9] * 6]
    with refused("svm", 2, 1):
        score_folds(np.ones((12, 2)), classes, [(np.arange(12), np.arange(12))], groups=groups)
