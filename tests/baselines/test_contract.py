"""Contract of baselines."""

import importlib.util
import inspect
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import issparse
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from joao.baselines import LDP, WL
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from repro.baselines import BASELINES
from tests.messages import refused

SEE_ALL_GRAPHS = {"node2vec", "sub2vec"}  # draw walks on all graphs together


@pytest.fixture(params=BASELINES)
def method(request):
    needed = BASELINES[request.param].needs
    if needed:
        pytest.importorskip(needed)
    return BASELINES[request.param]


@pytest.fixture(params=["labels", "plain"])
def graphs(request):
    """The first is a single node and the second has no edges."""
    return random_graphs(12, mean_nodes=6, num_node_labels=3 if request.param == "labels" else 0, seed=1)


def dense(rows):
    return rows.toarray() if issparse(rows) else rows


def test_one_finite_row_per_graph_reproducibly(method, graphs, numpy_state):
    states = torch.get_rng_state(), numpy_state()
    fitted = method()
    assert fitted.fit(graphs) is fitted
    rows, again = fitted.transform(graphs), method().fit_transform(graphs)
    assert issparse(rows) or isinstance(rows, np.ndarray)
    assert rows.dtype == np.float64
    assert rows.shape[0] == len(graphs)
    assert np.isfinite(dense(rows)).all()
    np.testing.assert_array_equal(dense(rows), dense(again))
    np.testing.assert_array_equal(dense(rows), dense(fitted.transform(graphs)))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert numpy_state() == states[1]


def test_titles_differ():
    assert len({kind.title for kind in BASELINES.values()}) == len(BASELINES)


def test_classes_are_ignored(method, graphs):
    others = replace(graphs, classes=graphs.classes[::-1].copy(), targets=np.ones((len(graphs), 2), dtype=np.float32))
    without = replace(graphs, classes=None, class_names=())
    rows = dense(method().fit_transform(graphs, graphs.classes))
    for same in (others, without):
        np.testing.assert_array_equal(dense(method().fit_transform(same)), rows)


def test_another_seed_gives_other_rows(method, graphs):
    if "seed" not in inspect.signature(method).parameters:
        pytest.skip("deterministic")
    assert not np.array_equal(dense(method(seed=1).fit_transform(graphs)), dense(method().fit_transform(graphs)))


def test_new_graphs_get_the_same_columns_in_their_order(method, graphs, request):
    new = random_graphs(9, mean_nodes=8, num_node_labels=5 if graphs.node_labels is not None else 0, seed=2)
    fitted = method().fit(graphs)
    rows = dense(fitted.transform(new))
    assert rows.shape == (len(new), dense(fitted.transform(graphs)).shape[1])
    assert np.isfinite(rows).all()
    if not SEE_ALL_GRAPHS & {request.node.callspec.params["method"]}:
        order = np.array([4, 0, 8, 1])
        np.testing.assert_array_equal(dense(fitted.transform(new[order])), rows[order])


def renumbered(graphs):
    """The same graphs with their nodes in another order."""
    order = np.concatenate(
        [
            first + np.random.default_rng(first).permutation(last - first)
            for first, last in pairwise(graphs.first_node.tolist())
        ]
    )  # the old number of each
    new_number, first = np.argsort(order), np.repeat(graphs.first_node[:-1], np.diff(graphs.first_edge))
    labels = None if graphs.node_labels is None else graphs.node_labels[order]
    edges = new_number[graphs.source + first], new_number[graphs.target + first]
    return make_dataset("renumbered", np.diff(graphs.first_node), edges, node_labels=labels)


def test_order_of_nodes_does_not_matter(method, graphs):
    if "seed" in inspect.signature(method).parameters and not method.kernel:
        pytest.skip("draws random numbers node by node")
    other = renumbered(graphs)
    assert not np.array_equal(other.source, graphs.source)
    rows = dense(method().fit_transform(graphs))
    np.testing.assert_allclose(dense(method().fit_transform(other)), rows, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dense(method().fit(graphs).transform(other)), rows, rtol=1e-12, atol=1e-12)


def test_graphs_without_edges_and_single_nodes_are_graphs(method):
    graphs = make_dataset("no edges", np.array([1, 5, 1, 1]), ([], []))
    rows = dense(method().fit_transform(graphs))
    assert rows.shape[0] == 4
    assert np.isfinite(rows).all()
    assert dense(method().fit(graphs).transform(graphs[0])).shape == (1, rows.shape[1])


def test_options_are_checked(method):
    for name, parameter in inspect.signature(method).parameters.items():
        assert parameter.kind is parameter.KEYWORD_ONLY
        if name != "seed" and isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
            with refused(method.__name__, name, -1):
                method(**{name: -1})


@pytest.mark.parametrize("wrong", ["3", 1.5, True, None])
def test_options_of_another_type_are_rejected(method, wrong):
    for name, default in method.settings().items():
        if isinstance(default, int) and not isinstance(default, bool):
            with refused(method.__name__, name, wrong):
                method(**{name: wrong}).fit("MUTAG")


def test_column_names_exist_right_after_fit(method, graphs):
    fitted = method()
    with pytest.raises(NotFittedError):
        fitted.get_feature_names_out()
    names = fitted.fit(graphs).get_feature_names_out()
    assert len(names) == len(set(names)) == fitted.transform(graphs).shape[1]


def test_no_graphs_have_no_rows(method, graphs):
    fitted = method().fit(graphs)
    rows, none = fitted.transform(graphs), fitted.transform([])
    assert (none.shape, none.dtype, issparse(none)) == ((0, rows.shape[1]), np.float64, issparse(rows))


def test_options_changed_after_fit_are_rejected(method, graphs):
    fitted = method().fit(graphs)
    name, default = next(((name, each) for name, each in method.settings().items() if type(each) is int), (None, 0))
    if name is None:
        pytest.skip("no options")
    fitted.set_params(**{name: default + 1})
    with refused(method.__name__, name, default, default + 1):
        fitted.transform(graphs)
    assert fitted.fit(graphs).transform(graphs).shape[0] == len(graphs)


def test_methods_that_use_labels_refuse_graphs_without_them_and_the_reverse(method, graphs):
    labelled = graphs.node_labels is not None
    others = random_graphs(5, mean_nodes=6, num_node_labels=0 if labelled else 3, seed=3)
    fitted, plain = method().fit(graphs), replace(graphs, node_labels=None)
    ignores = np.array_equal(dense(method().fit_transform(graphs)), dense(method().fit_transform(plain)))
    if labelled:
        assert ignores != method.uses_labels
    if method.uses_labels:
        with refused(others.name, 0, 1, method.__name__):
            fitted.transform(others)
    else:
        assert fitted.transform(others).shape[0] == 5


@pytest.mark.parametrize("kind", [WL, LDP])
def test_smiles_that_cannot_be_parsed_get_a_row_of_nan_of_the_same_kind(kind):
    pytest.importorskip("rdkit")
    fitted = kind().fit(["CCO", "CCN", "c1ccccc1"])
    rows = fitted.transform(["CCO", "c1ccccc1"])
    with pytest.warns(UserWarning, match="nonsense"):
        mixed = fitted.transform(["nonsense", "CCO", "nonsense", "c1ccccc1"])
    assert issparse(mixed) == issparse(rows)
    np.testing.assert_array_equal(dense(mixed)[[1, 3]], dense(rows))
    assert np.isnan(dense(mixed)[[0, 2]]).all()
    with pytest.warns(UserWarning, match="nonsense"):
        assert np.isnan(dense(fitted.transform(["nonsense"]))).all()


def in_another_process(names):
    """A line for each method: sums of the rows of graphs it was fitted on and of others."""
    old, new = (random_graphs(12, mean_nodes=6, seed=seed) for seed in (1, 2))
    kinds = [BASELINES[name] for name in names]
    fitted = [kind(**({"epochs": 1} if "epochs" in kind.settings() else {})).fit(old) for kind in kinds]
    return [f"{method.transform(old).sum()} {method.transform(new).sum()}" for method in fitted]


@pytest.mark.slow
def test_rows_are_equal_in_another_process():
    """Hashes of strings differ between processes."""
    names = [name for name, method in BASELINES.items() if not method.needs or importlib.util.find_spec(method.needs)]
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from tests.baselines.test_contract import *; print(*in_another_process({names}), sep='\\n')",
        ],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == in_another_process(names)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_position_of_a_graph(method):
    """Data sets are often sorted by class, so rows that depend on the order would leak classes."""
    if "seed" not in inspect.signature(method).parameters:
        pytest.skip("deterministic: computes each row by itself")
    graphs = random_graphs(1000, mean_nodes=20, seed=3)
    less_work = {"node2vec": {"walks_per_node": 1}, "dgk": {"epochs": 2}}
    rows = method(**less_work.get(method.__name__.lower(), {})).fit_transform(graphs)
    in_second_half = np.arange(1000) >= 500
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    right = cross_val_score(make_pipeline(StandardScaler(), SVC()), rows, in_second_half, cv=folds).mean()
    assert right < 0.56  # chance is 0.5, with a deviation of 0.016; 0.63 for sub2vec that reads graphs in their order


@pytest.mark.parametrize(
    ("name", "options", "values"),
    [
        ("dgk", {"window": 0}, ["DGK", "window", 1, 0]),
        ("graph2vec", {"min_count": 0}, ["Graph2vec", "min_count", 1, 0]),
        ("graph2vec", {"iterations": -1}, ["Graph2vec", "iterations", 0, -1]),
        ("histogram", {"max_degree": -1}, ["Histogram", "max_degree", 0, -1]),
        ("ldp", {"bins": 0}, ["LDP", "bins", 1, 0]),
        ("node2vec", {"walk_length": 0}, ["Node2vec", "walk_length", 1, 0]),
        ("node2vec", {"epochs": 0}, ["Node2vec", "epochs", 1, 0]),
        ("sub2vec", {"dimensions": 0}, ["Sub2vec", "dimensions", 1, 0]),
    ],
)
def test_option_below_its_minimum_is_rejected(name, options, values):
    with refused(*values):
        BASELINES[name](**options)
