"""Own methods in a comparison. Oracles: the scorer on rows that are computed by hand, and what a method has seen."""

import os
import signal
import threading
from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import joao
from joao.comparison.methods import Task, run_here, run_in_processes
from joao.comparison.own import describe_own, name_methods, own_kernel, own_rows, seed_parameters
from joao.data.synthetic import random_graphs
from joao.evaluation import svm
from joao.evaluation.embeddings import evaluate_embeddings
from tests.messages import notice, refused


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (1.0,))
    monkeypatch.setattr(Projection, "seen", [])


@pytest.fixture(scope="module")
def graphs():
    return random_graphs(24, mean_nodes=6, seed=5)


def sizes(graphs):
    return [[graph.num_nodes, graph.num_edges] for graph in graphs]


class Projection(TransformerMixin, BaseEstimator):
    """Random directions of node counts; remembers the seeds and labels it was fitted with."""

    seen: ClassVar = []

    def __init__(self, random_state=7, width=2):
        self.random_state, self.width = random_state, width

    def fit(self, X, y=None):
        self.seen.append((self.random_state, y, X.classes, X.class_names, X.targets, X.graph_names))
        self.weights_ = np.random.default_rng(self.random_state).normal(size=(2, self.width))
        return self

    def transform(self, X):
        return np.array(sizes(X)) @ self.weights_


def scores(tasks):
    return {(done.method, done.score["seed"]): done.score["accuracies"] for done in tasks if done.score}


def test_estimators_get_the_seed_and_no_labels(graphs):
    mine = Projection()
    found = scores(run_here([Task("mine", [0, 1], graphs, num_folds=3, own=mine)]))
    assert Projection.seen == [(seed, None, None, (), None, ()) for seed in (0, 1)]
    assert not hasattr(mine, "weights_")  # the object of the user stays as it is
    for seed in (0, 1):
        rows = np.array(sizes(graphs)) @ np.random.default_rng(seed).normal(size=(2, 2))
        alone = evaluate_embeddings(rows, graphs.classes, partitions=[seed], num_folds=3)
        assert found["mine", seed] == alone.accuracies[0]


def test_methods_without_a_seed_are_computed_once_if_they_repeat_themselves(graphs):
    calls = []

    def constant(graphs):
        calls.append("constant")
        return sizes(graphs)

    def drifting(graphs):
        calls.append("drifting")
        return np.random.default_rng(len(calls)).normal(size=(len(graphs), 2))

    def seeded(graphs, seed):
        calls.append(seed)
        return sizes(graphs)

    for name, method in (("constant", constant), ("drifting", drifting), ("seeded", seeded)):
        assert len(scores(run_here([Task(name, range(4), graphs, num_folds=3, own=method)]))) == 4
    # twice to find out whether it is random
    assert calls == ["constant"] * 2 + ["drifting"] * 4 + [0, 1, 2, 3]


def test_names():
    class Object:
        def __call__(self, graphs):
            return sizes(graphs)

    wanted = ["joao + wl", sizes, sizes, lambda graphs: 0, Object(), make_pipeline(joao.LDP(), PCA(2)), {"mine": sizes}]
    names = ["joao+wl", "sizes", "sizes-2", "function", "Object", "LDP-PCA", "mine"]
    assert list(name_methods(wanted, ["joao", "wl"])) == names
    assert name_methods("joao, wl", [])["wl"] is None
    assert list(name_methods({"a": sizes, "b": Projection()}, [])) == ["a", "b"]
    assert list(name_methods(sizes, [])) == ["sizes"]
    for wrong, values in (
        ({"wl": sizes}, ["'wl'"]),
        ({"a+b": sizes}, ["'a+b'"]),
        ({3: sizes}, ["3"]),
        ({"mine": 4}, ["'mine'", "fit and transform", "4"]),
        ([4], ["fit and transform", "4"]),
        ([Projection], ["Projection()"]),
        ({"mine": "joao"}, ["'mine'", "'joao'"]),
    ):
        with refused("compare", *values):
            name_methods(wrong, ["joao", "wl"])


def test_rows(graphs):
    table = np.array(sizes(graphs), dtype=float)
    for given in (table, table.tolist(), csr_array(table)):
        found = own_rows(lambda graphs, given=given: given, graphs, 0)
        np.testing.assert_array_equal(found.toarray() if isinstance(given, csr_array) else found, table)
    assert own_kernel(sizes, csr_array(table)) == own_kernel(joao.WL(), table) == "linear"
    assert own_kernel(sizes, table) == "rbf"
    for wrong, values in (
        (table[:-1], [24, "(23, 2)"]),
        (table[:, 0], [24, "(24,)"]),
        (None, ["()"]),
        ([["text"]] * 24, ["text"]),
        (table * np.nan, [48, "NaN"]),
    ):
        with refused(*values):
            own_rows(lambda graphs, wrong=wrong: wrong, graphs, 0)
    with refused("ZeroDivisionError", "test_own.py"):
        own_rows(lambda graphs: 1 / 0, graphs, 0)
    with pytest.raises(KeyboardInterrupt):
        own_rows(interrupt, graphs, 0)


def interrupt(graphs):
    raise KeyboardInterrupt


def test_settings_tell_methods_apart():
    pipeline = make_pipeline(joao.LDP(), PCA(2, random_state=3))
    assert seed_parameters(pipeline) == ["pca__random_state"]
    assert describe_own(pipeline)["parameters"]["pca__n_components"] == "2"
    assert describe_own(Projection(width=3)) != describe_own(Projection(width=2))
    assert describe_own(Projection(random_state=1)) == describe_own(Projection(random_state=2))
    assert describe_own(sizes)["source"] != describe_own(interrupt)["source"]


@pytest.mark.slow
def test_compare(graphs, tmp_path):
    with notice("untrained, wl, ldp"):
        found = joao.compare(
            graphs,
            ["histogram", joao.JOAO(epochs=1), joao.WL(iterations=1), {"mine": sizes, "broken": lambda graphs: 1 / 0}],
            partitions=2,
            folds=3,
            device="cpu",
            out=tmp_path / "record.json",
        )
    kinds = {row.method: row.kind for row in found.rows}
    assert [kinds[name] for name in ("JOAO", "WL", "mine")] == ["pre-trained", "baseline", "own"]
    assert found.verdict.method == "JOAO"
    failures = {row.method: row.failure for row in found.rows if row.failure}
    assert list(failures) == ["broken"]
    assert "ZeroDivisionError" in failures["broken"]
    rows = {row.method: row for row in found.rows}
    assert found.gain("mine", "untrained") == rows["mine"].gain
    with refused("'nine'", "'mine'"):
        found.gain("nine", "untrained")
    with refused("broken"):
        found.gain("broken", "untrained")
    with pytest.warns(joao.JoaoNotice), refused("mine"):  # other code under the same name
        joao.compare(graphs, {"mine": interrupt}, partitions=2, folds=3, out=tmp_path / "record.json")


@pytest.mark.slow
def test_other_processes(graphs):
    """Functions of this test cannot be imported there; a lock cannot be sent at all."""
    lock = threading.Lock()

    def local(graphs):
        return sizes(graphs)

    def held(graphs):
        with lock:
            return sizes(graphs)

    options = {"seeds": [0, 1], "dataset": graphs, "num_folds": 3}
    tasks = [Task("local", own=local, **options), Task("held", own=held, **options), Task("ldp", **options)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svm, "C_GRID", WHOLE_GRID)
        found = list(run_in_processes(tasks, 1))
        assert scores(found) == scores(run_here(tasks))
    order = [done.score["seed"] for done in found]
    assert order == sorted(order)  # one partition after the other


WHOLE_GRID = svm.C_GRID


def test_interrupted_training_of_an_own_estimator_is_not_scored():
    """Ctrl-C inside ``JOAO.fit``, which otherwise returns a partly trained encoder."""
    graphs = joao.read("MUTAG")[::4]

    class Interrupting(joao.JOAO):
        def fit(self, X, y=None):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            return super().fit(X, y)

    with pytest.raises(KeyboardInterrupt):
        own_rows(Interrupting(epochs=100_000, device="cpu"), graphs, 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loaded_encoder_is_compared_as_it_is(tmp_path):
    graphs = joao.read("MUTAG")[::4]
    joao.JOAO(epochs=1, device="cpu").fit(graphs).save(tmp_path / "run")
    loaded = joao.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(own_rows(loaded, graphs, 3), loaded.transform(graphs))
