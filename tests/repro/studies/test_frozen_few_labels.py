"""An SVM on frozen embeddings with few labels. Oracle: scikit-learn's own scaling, kernel and search."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from joao.evaluation.splits import Split
from repro.studies import frozen_few_labels as study


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    classes = np.arange(120) % 3
    return generator.normal(size=(120, 7)) * [1, 1, 5, 1, 1, 1, 0] + 0.8 * classes[:, None], classes


def make_split(first=0):
    order = np.random.default_rng(first).permutation(120)
    return Split(train=order[:27], validation=order[27:30], test=order[90:])


@pytest.mark.parametrize("seed", range(4))
def test_accuracy_is_that_of_a_grid_search_on_the_labelled_graphs(rows, seed):
    x, classes = rows
    split = make_split(seed)
    unlabelled = np.setdiff1d(np.arange(120), split.test)
    scaled = StandardScaler().fit(x[unlabelled]).transform(x)
    train = np.sort(np.r_[split.train, split.validation])
    gamma = 1 / (7 * scaled[unlabelled].var())
    search = GridSearchCV(SVC(gamma=gamma), {"C": list(study.C_VALUES)}, cv=5).fit(scaled[train], classes[train])
    expected = search.score(scaled[split.test], classes[split.test])
    found = study.accuracy(study.embedding_kernel(x, split), classes, split)
    assert found == pytest.approx(expected)
    assert 0.4 < found < 1


def test_test_graphs_do_not_influence_the_scaling(rows):
    x, _ = rows
    split = make_split()
    other = x.copy()
    other[split.test] *= 100
    train = study.labelled(split)
    np.testing.assert_allclose(study.embedding_kernel(x, split)[train], study.embedding_kernel(other, split)[train])


def test_ties_go_to_the_value_of_c_nearest_to_1(rows, monkeypatch):
    _, classes = rows
    tried = []

    def machine(kernel, C):
        tried.append(C)
        return SVC(kernel=kernel, C=C)

    monkeypatch.setattr(study, "SVC", machine)
    split = make_split()
    # Every graph is like itself alone: nothing can be learned, and all values of C score alike.
    study.accuracy(np.eye(120)[:, study.labelled(split)], classes, split)
    assert {*tried} == {*study.C_GRID}
    assert tried[-1] == 1


def test_classes_with_one_labelled_graph_are_accepted(rows):
    x, classes = rows
    split = make_split()
    rare = np.where(np.arange(120) == split.train[0], 3, classes)
    assert study.accuracy(study.embedding_kernel(x, split), rare, split) > 0.4


def test_only_sets_of_the_semi_supervised_protocol_are_scored():
    cells = list(study.cells(["MSRC_9", "reddit10k", "NCI1"], 2))
    assert [(each.dataset, each.seed) for each in cells] == [("MSRC_9", 0), ("MSRC_9", 1), ("NCI1", 0), ("NCI1", 1)]
