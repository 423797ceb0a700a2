"""JOAORegressor, and JOAOClassifier with several tasks, behave as scikit-learn's estimators do."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score

import joao
from joao.config.recipe import make_recipe
from joao.data.synthetic import random_graphs
from joao.runs.finetuning import finetune
from joao.runs.trained import make_untrained
from joao.training.finetune import Finetune
from tests.messages import assert_mentions, notice, refused

NAN = np.nan
OPTIONS = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "device": "cpu"}
BARE = {"classes": None, "class_names": ()}
GRAPHS = dataclasses.replace(random_graphs(40, mean_nodes=6, seed=1), **BARE)
UNSEEN = dataclasses.replace(random_graphs(9, mean_nodes=6, seed=2), **BARE)
SIZES = np.diff(GRAPHS.first_node) * 10.0
TASKS = np.stack([np.arange(40) % 2, SIZES > 60, np.arange(40) % 3 == 0], axis=1).astype(float)
TASKS[::5, 0] = NAN


def how(balanced):
    return Finetune(epochs=3, batch_size=16, learning_rate=0.01, patience=20, balanced=balanced, standardise=True)


def by_the_library(values, names, kind, balanced):
    start = make_untrained(make_recipe({"training": {"seed": 0}}), GRAPHS, device="cpu")
    labelled = dataclasses.replace(GRAPHS, targets=np.asarray(values, dtype=np.float32), target_names=names)
    return finetune(start, labelled, how(balanced), kind=kind, split="random", device="cpu").predict(UNSEEN).numpy()


def test_numbers_are_those_of_the_library():
    model = joao.JOAORegressor(**OPTIONS).fit(GRAPHS, SIZES)
    predicted = model.predict(UNSEEN)
    assert predicted.shape == (9,)
    np.testing.assert_array_equal(predicted, by_the_library(SIZES[:, None], ("0",), "numbers", False)[:, 0])
    truth = np.diff(UNSEEN.first_node) * 10.0
    assert model.score(UNSEEN, truth) == pytest.approx(r2_score(truth, predicted))
    assert is_regressor(model)
    assert len(model.history_) == 3
    assert model.encoder_ is model.finetuned_.trained.encoder


def test_several_numbers_with_gaps():
    values = np.stack([SIZES, np.where(np.arange(40) % 4, SIZES**2, NAN)], axis=1)
    model = joao.JOAORegressor(**OPTIONS).fit(GRAPHS, values)
    assert model.predict(UNSEEN).shape == (9, 2)
    np.testing.assert_array_equal(model.predict(UNSEEN), by_the_library(values, ("0", "1"), "numbers", False))


def test_zeros_and_ones_are_numbers_to_a_regressor():
    model = joao.JOAORegressor(**OPTIONS).fit(GRAPHS, TASKS[:, 2])
    assert model.finetuned_.kind == "numbers"


@pytest.mark.parametrize("weight", ["balanced", None])
def test_several_tasks_are_those_of_the_library(weight):
    model = joao.JOAOClassifier(**OPTIONS, class_weight=weight).fit(GRAPHS, TASKS)
    probabilities = model.predict_proba(UNSEEN)
    expected = by_the_library(TASKS, ("0", "1", "2"), "binary", weight == "balanced")
    np.testing.assert_array_equal(probabilities, expected)
    np.testing.assert_array_equal(model.predict(UNSEEN), probabilities > 0.5)
    assert model.classes_.tolist() == [0, 1]
    assert model.finetuned_.tasks == ("0", "1", "2")


def test_the_score_of_tasks_is_the_share_of_measured_labels_that_are_right():
    model = joao.JOAOClassifier(**OPTIONS).fit(GRAPHS, TASKS)
    right, labels = 0, 0
    for truth, predicted in zip(TASKS, model.predict(GRAPHS), strict=True):
        for label, guess in zip(truth, predicted, strict=True):
            labels += not np.isnan(label)
            right += label == guess
    assert 0 < right < labels == 112
    assert model.score(GRAPHS, TASKS) == pytest.approx(right / labels)
    with refused("synthetic", "3 columns", 2):
        model.score(GRAPHS, TASKS[:, :2])


@pytest.mark.parametrize(("kind", "y"), [(joao.JOAORegressor, SIZES), (joao.JOAOClassifier, TASKS[:, 1])])
def test_a_single_task_is_predicted_in_the_shape_it_was_given_in(kind, y, tmp_path):
    model = kind(**OPTIONS).fit(GRAPHS, y[:, None])
    assert model.predict(UNSEEN).shape == (9, 1)
    assert model.score(GRAPHS, y[:, None]) == model.score(GRAPHS, y)
    # A folder does not tell: it may be of the command line, whose labels are a column of a table.
    model.save(tmp_path / "tuned")
    loaded = kind.load(tmp_path / "tuned", device="cpu")
    np.testing.assert_array_equal(loaded.predict(UNSEEN), model.predict(UNSEEN)[:, 0])
    assert loaded.score(GRAPHS, y) == model.score(GRAPHS, y)


@pytest.mark.parametrize("gap", [NAN, None, ""])
def test_numbers_that_were_not_measured_are_left_out(gap):
    without = np.arange(40) % 7 == 2
    y = [gap if out else size for size, out in zip(SIZES, without, strict=True)]
    model = joao.JOAORegressor(**OPTIONS).fit(GRAPHS, y)
    expected = by_the_library(np.where(without, NAN, SIZES)[:, None], ("0",), "numbers", False)[:, 0]
    np.testing.assert_array_equal(model.predict(UNSEEN), expected)
    truth = r2_score(SIZES[~without], model.predict(GRAPHS)[~without])
    assert model.score(GRAPHS, y) == pytest.approx(truth)


def test_the_score_of_several_numbers_is_their_mean():
    values = np.stack([SIZES, np.where(np.arange(40) % 4, SIZES**2, NAN), np.where(np.arange(40), NAN, 1)], axis=1)
    model = joao.JOAORegressor(**OPTIONS).fit(GRAPHS, values)
    predicted, weights = model.predict(GRAPHS), np.arange(40.0)
    known = np.arange(40) % 4 > 0
    of_task = [
        r2_score(SIZES, predicted[:, 0], sample_weight=weights),
        r2_score(SIZES[known] ** 2, predicted[known, 1], sample_weight=weights[known]),
    ]  # a single label has no R2
    assert model.score(GRAPHS, values, sample_weight=weights) == pytest.approx(np.mean(of_task))
    with refused("synthetic", "task"):
        model.score(GRAPHS[:1], values[:1])


def test_cross_validation_with_smiles_that_are_no_molecules():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "C1CC(", "CCCC", "c1ccncc1", "CCCl", "CCCCCO", "CO"] * 4
    numbers = np.array([len(each) if each != "CO" else NAN for each in smiles])
    start = joao.JOAO(encoder={"name": "molecule_gin", "width": 8, "layers": 2}, epochs=1, device="cpu").fit(smiles[:3])
    for model, y in (
        (joao.JOAORegressor(start, **OPTIONS), numbers),
        (joao.JOAOClassifier(start, **OPTIONS), np.where(np.isnan(numbers), NAN, numbers > 4)),
    ):
        with pytest.warns(joao.JoaoNotice) as told:
            scores = cross_val_score(model, smiles, y, cv=KFold(2), error_score="raise")
        for each in told:
            assert_mentions(each.message, "2 of 18", "row 3", "'C1CC('")
        assert {each.filename for each in told} == {__file__}
        half, rest = range(18), range(18, 36)
        with notice("2 of 18", "row 3", "'C1CC('"):
            fitted = clone(model).fit([smiles[i] for i in rest], y[rest])
        known = [i for i in half if smiles[i] not in ("C1CC(", "CO")]
        assert scores[0] == fitted.score([smiles[i] for i in known], y[known])


def test_columns_of_a_table_name_the_tasks():
    table = pd.DataFrame(TASKS, columns=["x", "y", "z"])
    model = joao.JOAOClassifier(**OPTIONS).fit(GRAPHS, table)
    assert model.finetuned_.tasks == ("x", "y", "z")
    twice = joao.JOAOClassifier(**OPTIONS).fit(GRAPHS, pd.DataFrame(TASKS, columns=["x", "x", "z"]))
    assert twice.finetuned_.tasks == ("0", "1", "2")
    np.testing.assert_array_equal(model.predict_proba(UNSEEN), twice.predict_proba(UNSEEN))


def test_without_y_the_graphs_bring_their_labels():
    tasks = dataclasses.replace(GRAPHS, targets=TASKS.astype(np.float32), target_names=("a", "b", "c"))
    given = joao.JOAOClassifier(**OPTIONS).fit(GRAPHS, TASKS).predict_proba(UNSEEN)
    np.testing.assert_array_equal(joao.JOAOClassifier(**OPTIONS).fit(tasks).predict_proba(UNSEEN), given)
    assert joao.JOAORegressor(**OPTIONS).fit(tasks).predict(UNSEEN).shape == (9, 3)


@pytest.mark.parametrize(("kind", "y"), [(joao.JOAORegressor, SIZES), (joao.JOAOClassifier, TASKS)])
def test_saved_loaded_and_cloned(kind, y, tmp_path):
    model = kind(**OPTIONS, random_state=4).fit(GRAPHS, y)
    model.save(tmp_path / "tuned")
    loaded = kind.load(tmp_path / "tuned", device="cpu")
    np.testing.assert_array_equal(loaded.predict(UNSEEN), model.predict(UNSEEN))
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(clone(loaded).fit(GRAPHS, y).predict(UNSEEN), model.predict(UNSEEN))
    other = joao.JOAOClassifier if kind is joao.JOAORegressor else joao.JOAORegressor
    with refused(tmp_path / "tuned", f"{kind.__name__}.load"):
        other.load(tmp_path / "tuned")


def test_smiles_that_are_no_molecules():
    """Labels go with the rows they stand in; a row without a molecule has no prediction."""
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "CCCC", "c1ccncc1", "CCCl", "CCCCCO"] * 3
    with_gaps = [*smiles[:5], "C1CC(", *smiles[5:], None]
    values = np.array([len(each) for each in smiles], dtype=float)
    of_rows = [*values[:5], 1e6, *values[5:], NAN]
    small = joao.JOAO(encoder={"name": "molecule_gin", "width": 8, "layers": 2}, epochs=1, device="cpu").fit(smiles)
    clean = joao.JOAORegressor(small, **OPTIONS).fit(smiles, values)
    assert clean.finetuned_.info.split == "random"
    for y in (of_rows, np.array(of_rows), pd.Series(of_rows)):
        with notice("2 of 26", "row 5", "'C1CC('"):
            model = joao.JOAORegressor(small, **OPTIONS).fit(with_gaps, y)
        np.testing.assert_array_equal(model.predict(smiles), clean.predict(smiles))
    with notice("1 of 3", "NaN", "row 1", "'nonsense'"):
        predicted = model.predict(["CCO", "nonsense", "CCN"])
    np.testing.assert_array_equal(predicted[[0, 2]], model.predict(["CCO", "CCN"]))
    assert np.isnan(predicted[1])
    classifier = joao.JOAOClassifier(small, **OPTIONS).fit(smiles, values > 4)
    with notice("1 of 2", "NaN", "row 1", "'nonsense'"):
        assert np.isnan(classifier.predict_proba(["CCO", "nonsense"])).any(axis=1).tolist() == [False, True]
    with notice("1 of 2", "NaN", "row 1", "'nonsense'"), refused("JOAOClassifier", "row 1", "predict_proba"):
        classifier.predict(["CCO", "nonsense"])


@pytest.mark.parametrize(
    ("kind", "y", "values"),
    [
        (joao.JOAORegressor, SIZES[:-1], ["40 graphs", "(39,)"]),
        (joao.JOAORegressor, np.zeros((40, 2, 2)), ["40 graphs", "(40, 2, 2)"]),
        (joao.JOAORegressor, ["heavy"] * 40, ["NaN", "'heavy'"]),
        (joao.JOAORegressor, np.full(40, NAN), ["NaN", "None"]),
        (joao.JOAORegressor, np.ones(40), ["task", "32 training graphs"]),
        (joao.JOAORegressor, np.where(np.arange(40) == 7, np.inf, 1), ["y[7]", "task 0"]),
        (joao.JOAORegressor, None, ["synthetic", "label"]),
        (joao.JOAOClassifier, TASKS + 0.5, ["graph 0", 0.5, "task 1", "NaN", "JOAORegressor"]),
        (joao.JOAOClassifier, TASKS[:-1], ["40 graphs", "(39, 3)"]),
        (joao.JOAOClassifier, TASKS * 0, ["task", "32 training graphs", "(0, 1, 2)"]),
        (joao.JOAOClassifier, np.full((40, 2), "yes"), ["NaN", "'yes'"]),
    ],
)
def test_unlearnable_labels_are_rejected(kind, y, values):
    with refused(*values):
        kind(**OPTIONS).fit(GRAPHS, y)


def test_wrong_params_and_what_is_not_fitted():
    with refused("JOAORegressor", "epochs", 2.5):
        joao.JOAORegressor(epochs=2.5).fit(GRAPHS, SIZES)
    with refused("JOAORegressor", "pretrained", 3):
        joao.JOAORegressor(3).fit(GRAPHS, SIZES)
    for use in ("history_", "chosen_epoch_", "encoder_"):
        with pytest.raises(NotFittedError):
            getattr(joao.JOAORegressor(), use)
    with pytest.raises(NotFittedError):
        joao.JOAORegressor().predict(GRAPHS)
