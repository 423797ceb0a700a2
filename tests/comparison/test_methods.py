"""What is compared, and that labels stay out of it."""

import dataclasses

import numpy as np
import pytest

from joao.baselines import BASELINES, Baseline
from joao.comparison import methods
from joao.comparison.methods import choose_methods, has_seed, make_rows, method_settings, missing_package
from joao.config.methods import CHEAP_BASELINES, COMBINATIONS, COMPARED_METHODS
from joao.config.recipe import METHODS, make_recipe
from joao.data.features import Features
from joao.data.synthetic import random_graphs
from joao.runs.pretraining import pretrain
from joao.runs.trained import make_untrained
from tests.messages import assert_mentions, refused


@pytest.fixture(scope="module")
def graphs():
    return random_graphs(24, mean_nodes=6, seed=5)


class Absent(Baseline):
    needs = "a_package_that_nobody_has"

    def rows(self, graphs):
        raise AssertionError("was not to be used")


def test_the_cheap_baselines_are_always_among_them(graphs):
    assert choose_methods(graphs, None) == ((*COMPARED_METHODS, *COMBINATIONS, *CHEAP_BASELINES), (), {})
    names, notices, _ = choose_methods(graphs, ["wl", "joaov2", "wl", "graph2vec"])
    assert names == ("wl", "joaov2", "graph2vec", "untrained", "ldp", "histogram")
    assert len(notices) == 1
    assert_mentions(notices[0], "untrained, ldp, histogram")
    assert choose_methods(graphs, CHEAP_BASELINES).notices == ()


def test_of_very_many_graphs_fewer_are_compared(graphs, monkeypatch):
    monkeypatch.setattr(methods, "LARGE_GRAPHS", 23)
    names, (notice,), _ = choose_methods(graphs, None)
    assert names == ("joao", *CHEAP_BASELINES)
    assert_mentions(notice, 24, f"{graphs.num_nodes:,}", "joao", f"--methods {','.join(COMPARED_METHODS)}")
    assert choose_methods(graphs, ["joao", "graphcl", *CHEAP_BASELINES]).notices == ()


def test_unknown_and_missing(graphs, monkeypatch):
    with refused("compare", "'graph2vek'", "'graph2vec'"):
        choose_methods(graphs, ["graph2vek"])
    for name, part in (("joao+", ""), ("joao+graph2vek", "graph2vek")):
        with refused("compare", repr(name), repr(part)):
            choose_methods(graphs, [name])
    with refused("compare", "joao", "wl"):
        choose_methods(graphs, [])
    monkeypatch.setitem(BASELINES, "wl", Absent)
    assert missing_package("wl") == "a_package_that_nobody_has"
    assert missing_package("joao") is None
    with refused("compare", "wl", "pip install a_package_that_nobody_has"):
        choose_methods(graphs, ["joao", "wl"])
    for wanted in (None, ["joao"]):
        names, notices, _ = choose_methods(graphs, wanted)
        assert "wl" not in names
        assert_mentions(notices[0], "wl", "a_package_that_nobody_has")


def test_rows_are_those_of_the_method_itself(graphs):
    recipe = make_recipe({"method": "joaov2", "training": {"seed": 3, "epochs": 1}})
    trained = pretrain(recipe, graphs, device="cpu")
    found = make_rows("joaov2", graphs, seed=3, epochs=1, device="cpu")
    np.testing.assert_array_equal(found, trained.embed(graphs).numpy())
    recipe = make_recipe({"training": {"seed": 3}})
    features = Features.from_dataset(graphs, "random_walks")
    expected = make_untrained(recipe, graphs, features, device="cpu").embed(graphs).numpy()
    np.testing.assert_array_equal(make_rows("untrained", graphs, seed=3, device="cpu"), expected)
    histogram = BASELINES["histogram"]().fit_transform(graphs)
    np.testing.assert_array_equal(make_rows("histogram", graphs, seed=3), histogram)


@pytest.mark.parametrize("name", ["joao", "untrained", "ldp"])
def test_labels_do_not_matter(graphs, name):
    shuffled = dataclasses.replace(graphs, classes=1 - graphs.classes)
    first, second = (make_rows(name, each, seed=0, epochs=1, device="cpu") for each in (graphs, shuffled))
    np.testing.assert_array_equal(first, second)


def test_a_baseline_sees_no_labels(graphs, monkeypatch):
    seen = []

    class Looking(Baseline):
        def learn(self, graphs):
            seen.append((graphs.classes, graphs.class_names, graphs.targets))

        def rows(self, graphs):
            return np.zeros((len(graphs), 1))

    monkeypatch.setitem(BASELINES, "looking", Looking)
    make_rows("looking", graphs, seed=0)
    assert seen == [(None, (), None)]


def test_has_seed():
    assert all(has_seed(name) for name in (*METHODS, "untrained"))
    assert not any(has_seed(name) for name in ("wl", "ldp", "histogram"))
    assert all(has_seed(name) for name, each in BASELINES.items() if each.needs == "gensim")


def test_settings():
    assert method_settings("graphcl", "graphs", epochs=7)["training"]["epochs"] == 7
    assert method_settings("graphcl", "graphs")["policy"]["name"] == "rule_pool"
    assert method_settings("untrained", "molecules")["encoder"]["name"] == "molecule_gin"
    assert method_settings("histogram", "graphs") == {"max_degree": 64}
