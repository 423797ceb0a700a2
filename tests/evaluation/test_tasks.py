"""Tasks with missing labels: which graphs count, what kind of labels they are, and figures beside scikit-learn's."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import mean_absolute_error, mean_squared_error, roc_auc_score

from joao.data.synthetic import random_graphs
from joao.evaluation.targets import check_learnable, infer_label_kind, integer_labels_notice, select_tasks, task_figures
from tests.messages import assert_mentions, refused

NAN = np.nan
NAMES = ("toxic", "active", "weight")
VALUES = np.array(
    [[0, 1, 2.5], [1, NAN, 0], [NAN, NAN, NAN], [NAN, 0, NAN], [1, NAN, 1], [NAN, NAN, -3]], dtype=np.float32
)


def with_targets(values=VALUES, names=NAMES):
    values = np.asarray(values, dtype=np.float32)
    return dataclasses.replace(random_graphs(len(values), seed=1), targets=values, target_names=tuple(names))


def test_graphs_with_a_label_of_the_named_tasks_are_kept():
    dataset = with_targets()
    some = select_tasks(dataset, ["weight", "toxic"])
    assert some.target_names == ("weight", "toxic")
    np.testing.assert_array_equal(some.targets, [[2.5, 0], [0, 1], [1, 1], [-3, NAN]])
    assert some.fingerprint == dataset.subset(np.array([0, 1, 4, 5])).fingerprint
    everything = select_tasks(dataset)
    assert everything.target_names == NAMES
    assert len(everything) == 5


@pytest.mark.parametrize(
    ("dataset", "tasks", "values"),
    [
        (random_graphs(3), [], ["tasks"]),
        (with_targets(), ["toxix"], ["'toxix'", "'toxic'"]),
        (with_targets(np.full((4, 3), NAN)), ["active"], ["active"]),
        (with_targets(np.full((4, 7), NAN), "abcdefg"), [], ["a, b, c, d, e", 2]),
    ],
)
def test_missing_tasks_are_rejected(dataset, tasks, values):
    with refused("synthetic", *values):
        select_tasks(dataset, tasks)


def test_label_kind_is_binary_for_zeros_and_ones_only():
    dataset = with_targets()
    assert infer_label_kind(select_tasks(dataset, ["toxic", "active"])) == "binary"
    assert infer_label_kind(select_tasks(dataset, ["weight"])) == "numbers"
    assert infer_label_kind(select_tasks(dataset, ["toxic"]), "numbers") == "numbers"
    assert infer_label_kind(select_tasks(dataset, ["toxic"]), "binary") == "binary"
    with refused("synthetic", "toxic, active", "weight", "--tasks"):
        infer_label_kind(dataset)
    with refused("synthetic", "graph 0", 2.5, "weight", "NaN", "JOAORegressor"):
        infer_label_kind(dataset, "binary")


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ([-1, 1, NAN, 1, -1], ["-1", "1"]),
        ([2, 1, 3, 1, 2], ["1", "2", "3"]),
        ([-1, 1, 0.5, 1, 1], None),
        ([100, 200, 300, 100, 200], None),
        ([7, 7, NAN, 7, 7], None),
    ],
)
def test_numbers_that_look_like_classes_give_a_notice(column, shown):
    other = [2.5, 0, 1, 3, 4]
    for values, names in (([column], "a"), ([other, column], "ba")):
        found = integer_labels_notice(with_targets(np.array(values).T, names))
        assert (found is None) == (shown is None)
        if shown is not None:
            assert_mentions(found, "synthetic: a ", *shown)
    if shown is not None:
        assert_mentions(integer_labels_notice(with_targets(np.array([column, column]).T, "ab")), "1 more")


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        ("binary", [[0, 1], [0, 1], [NAN, 0], [1, 0]], ["0", "1", "2 training graphs", "a, b"]),
        ("numbers", [[2.5, NAN], [2.5, 7], [1, 1], [0, 0]], ["2 training graphs", "a, b"]),
    ],
)
def test_labels_that_are_all_the_same_cannot_be_learned(kind, values, named):
    dataset = with_targets(values, "ab")
    with refused("synthetic", *named):
        check_learnable(dataset, kind, np.array([0, 1]))
    check_learnable(dataset, kind, np.array([0, 2, 3]))  # one task of two will do


@pytest.mark.parametrize("kind", ["binary", "numbers"])
def test_task_figures_agree_with_scikit_learn(kind):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (30, 4)).astype(np.float32)
    labels[random.random(labels.shape) < 0.3] = NAN
    labels[:, 2] = NAN  # never measured
    labels[:, 3] *= 0  # always the same
    predicted = random.normal(size=(30, 4)).round(1).astype(np.float32)
    found = task_figures(kind, predicted, labels, "abcd")
    measured = {
        name: (labels[~np.isnan(labels[:, n]), n], predicted[~np.isnan(labels[:, n]), n])
        for n, name in enumerate("abcd")
    }
    figures = {
        "roc_auc": lambda y, s: roc_auc_score(y, s) if len(set(y)) == 2 else None,
        "rmse": lambda y, s: mean_squared_error(y, s) ** 0.5 if len(y) else None,
        "mae": lambda y, s: mean_absolute_error(y, s) if len(y) else None,
        "spearman": lambda y, s: spearmanr(y, s).statistic if len(set(y)) > 1 else None,
    }
    names = ["roc_auc"] if kind == "binary" else ["rmse", "mae", "spearman"]
    assert set(found) == {*names, "labels", "tasks"}
    for name in names:
        expected = {task: figures[name](*each) for task, each in measured.items()}
        for task, value in expected.items():
            assert found["tasks"][task][name] == (None if value is None else pytest.approx(value))
        assert found[name] == pytest.approx(np.mean([each for each in expected.values() if each is not None]))
    assert {task: each["labels"] for task, each in found["tasks"].items()} == {
        task: len(each[0]) for task, each in measured.items()
    }
    assert found["labels"] == sum(len(each[0]) for each in measured.values())
    json.dumps(found, allow_nan=False)


def test_regression_figures_include_those_of_the_training_mean():
    labels = np.array([[1, 100], [3, NAN], [5, 300]], dtype=np.float32)
    predicted = np.array([[2, 100], [3, 0], [5, 340]], dtype=np.float32)
    found = task_figures("numbers", predicted, labels, "ab", [(2, 4), (150, 50)])
    errors = {"a": np.sqrt(1 / 3), "b": np.sqrt(1600 / 2)}
    of_mean = {"a": np.sqrt((1 + 1 + 9) / 3), "b": np.sqrt((50**2 + 150**2) / 2)}
    for task in "ab":
        assert found["tasks"][task]["rmse"] == pytest.approx(errors[task])
        assert found["tasks"][task]["rmse_of_mean"] == pytest.approx(of_mean[task])
    assert found["rmse_in_deviations"] == pytest.approx((errors["a"] / 4 + errors["b"] / 50) / 2)
    assert found["rmse_of_mean_in_deviations"] == pytest.approx((of_mean["a"] / 4 + of_mean["b"] / 50) / 2)
    json.dumps(found, allow_nan=False)


def test_undefined_metrics_are_none():
    ones = np.ones((3, 1), dtype=np.float32)
    assert task_figures("binary", ones, ones, ["a"]) == {
        "roc_auc": None,
        "labels": 3,
        "tasks": {"a": {"roc_auc": None, "labels": 3}},
    }
    assert task_figures("numbers", ones, ones * NAN, ["a"])["rmse"] is None
