"""A loaded encoder keeps its weights wherever scikit-learn fits or clones it."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import joao
from tests.messages import refused

GRAPHS = joao.read("MUTAG")[::3]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen") / "run"
    joao.JOAO(epochs=1, device="cpu").fit(GRAPHS).save(folder)
    return folder


@pytest.fixture
def loaded(run):
    return joao.load(run, device="cpu")


@pytest.mark.parametrize("copied", [lambda model: model, clone, lambda model: pickle.loads(pickle.dumps(model))])
def test_fit_keeps_the_weights(loaded, copied):
    before = loaded.transform(GRAPHS)
    model = copied(loaded)
    assert model.fit(GRAPHS[:9]) is model
    np.testing.assert_array_equal(model.transform(GRAPHS), before)


def test_pipeline_and_grid_search_use_the_loaded_weights(loaded):
    labels, embeddings = GRAPHS.classes, loaded.transform(GRAPHS)
    forest = RandomForestClassifier(10, random_state=0)
    pipeline = make_pipeline(loaded, forest).fit(GRAPHS, labels)
    expected = clone(forest).fit(embeddings, labels).predict_proba(embeddings)
    np.testing.assert_array_equal(pipeline.predict_proba(GRAPHS), expected)
    by_pipeline = cross_val_score(make_pipeline(loaded, forest), list(GRAPHS), labels, cv=3)
    assert by_pipeline.tolist() == cross_val_score(forest, embeddings, labels, cv=3).tolist()
    search = make_pipeline(loaded, LogisticRegression(max_iter=5000))
    found = GridSearchCV(search, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(list(GRAPHS), labels)
    np.testing.assert_array_equal(found.best_estimator_[0].transform(GRAPHS), embeddings)


def test_retrain_trains_from_scratch(loaded):
    before = loaded.transform(GRAPHS)
    model = clone(loaded).set_params(epochs=2).fit(GRAPHS, retrain=True)
    assert len(model.history_) == 2
    assert not np.array_equal(model.transform(GRAPHS), before)
    np.testing.assert_array_equal(loaded.transform(GRAPHS), before)
    assert not hasattr(clone(model), "trained_")


def test_parameters_without_effect_are_refused(loaded):
    loaded.set_params(epochs=3, device="cpu", verbose=0)
    with refused("epochs = 3", "retrain=True"):
        loaded.fit(GRAPHS)


def test_a_fitted_estimator_is_cloned_without_its_weights():
    model = joao.JOAO(epochs=1, device="cpu").fit(GRAPHS[:20])
    assert not hasattr(clone(model), "trained_")
