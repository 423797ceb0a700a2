"""JOAOClassifier behaves like any scikit-learn classifier, on lists of graphs."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch-geometric warns about torch.jit when it is loaded
    from torch_geometric.data import Data

import joao
from joao.config.recipe import make_recipe
from joao.data.synthetic import random_graphs
from joao.runs.finetuning import finetune, load_finetuned
from joao.runs.trained import make_untrained
from joao.training.finetune import Finetune
from tests.messages import assert_mentions, notice, refused

OPTIONS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "device": "cpu"}
HOW = Finetune(epochs=2, batch_size=8, learning_rate=0.01, patience=20, balanced=True, standardise=True)


def data_list(num_graphs=24, seed=0):
    """Labelled graphs as torch-geometric has them, with two classes that their attributes tell apart."""
    dataset = random_graphs(num_graphs, mean_nodes=6, num_node_labels=0, num_attributes=3, seed=seed)
    graphs = []
    for number in range(num_graphs):
        nodes = slice(*dataset.first_node[number : number + 2])
        edges = slice(*dataset.first_edge[number : number + 2])
        index = np.stack([dataset.source[edges], dataset.target[edges]]).astype(np.int64)
        x = torch.from_numpy(dataset.node_attributes[nodes])
        graphs.append(Data(x=x, edge_index=torch.from_numpy(index), y=int(dataset.classes[number])))
    return graphs


GRAPHS, UNSEEN = data_list(), data_list(9, seed=3)
CLASSES = np.array([graph.y for graph in GRAPHS])
DATASET = joao.read(GRAPHS)


@pytest.fixture(scope="module")
def pretrained():
    return joao.JOAO(epochs=1, batch_size=8, encoder={"name": "gin", "width": 8}, device="cpu").fit(GRAPHS)


@pytest.fixture(scope="module")
def fitted(pretrained):
    return joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, CLASSES)


def test_fit_equals_finetune(pretrained, fitted):
    expected = finetune(pretrained.trained_, DATASET, HOW, device="cpu")
    np.testing.assert_array_equal(fitted.predict_proba(UNSEEN), expected.predict(joao.read(UNSEEN)))
    assert fitted.history_ == expected.fit.epochs
    assert fitted.chosen_epoch_ == expected.fit.chosen
    assert fitted.encoder_ is fitted.finetuned_.trained.encoder


def test_predictions_are_the_most_probable_classes(fitted):
    probabilities = fitted.predict_proba(UNSEEN)
    assert probabilities.shape == (9, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    predicted = fitted.predict(UNSEEN)
    assert [int(row[1] > row[0]) for row in probabilities] == predicted.tolist()
    truth = [graph.y for graph in UNSEEN]
    assert fitted.score(UNSEEN, truth) == accuracy_score(truth, predicted)
    assert is_classifier(fitted)


def test_accuracy_on_new_graphs_is_above_chance(pretrained):
    """Attributes of the two classes are three deviations of a graph's mean apart."""
    model = joao.JOAOClassifier(pretrained, **{**OPTIONS, "epochs": 30}).fit(GRAPHS, CLASSES)
    many = data_list(60, seed=5)
    assert model.score(many, [graph.y for graph in many]) > 0.75


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        (["no", "yes"], "U"),
        (["0", "1"], "U"),  # text stays text
        ([-1, 1], "i"),
        ([10, 9], "i"),  # ascending as numbers, not as text
        ([False, True], "b"),
        ([2.0, 1.0], "f"),
    ],
)
def test_labels_of_any_kind(pretrained, fitted, words, dtype, tmp_path):
    y = np.array(words)[CLASSES]
    model = joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, y)
    assert model.classes_.tolist() == sorted(words)
    assert model.classes_.dtype.kind == dtype
    assert set(model.predict(UNSEEN).tolist()) <= set(words)
    order = np.argsort(np.array(words))  # the same network, its outputs in another order
    if order.tolist() == [0, 1]:
        np.testing.assert_array_equal(model.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))
        assert [words[number] for number in fitted.predict(UNSEEN)] == model.predict(UNSEEN).tolist()
    model.save(tmp_path / "tuned")
    loaded = joao.JOAOClassifier.load(tmp_path / "tuned", device="cpu")
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.predict(UNSEEN).tolist() == model.predict(UNSEEN).tolist()


@pytest.mark.parametrize(
    ("words", "gap", "make"),
    [
        ([0.0, 1.0], np.nan, np.array),
        ([0, 1], None, list),
        (["no", "yes"], np.nan, list),  # numpy alone would make text of it
        (["no", "yes"], "", np.array),
        ([0, 1], pd.NA, lambda y: pd.Series(y, dtype=object, index=range(7, 31))),
    ],
)
def test_graphs_without_a_label_are_left_out(pretrained, words, gap, make):
    without = np.arange(24) % 5 == 1
    y = make([gap if out else words[number] for number, out in zip(CLASSES, without, strict=True)])
    model = joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, y)
    labelled = [GRAPHS[number] for number in np.flatnonzero(~without)]
    expected = joao.JOAOClassifier(pretrained, **OPTIONS).fit(labelled, np.array(words)[CLASSES[~without]])
    np.testing.assert_array_equal(model.predict_proba(UNSEEN), expected.predict_proba(UNSEEN))
    assert model.classes_.tolist() == words
    assert model.classes_.dtype == np.array(words).dtype
    assert model.score(GRAPHS, y) == np.mean(model.predict(labelled) == np.array(words)[CLASSES[~without]])
    with refused("graphs", "NaN"):
        model.score(GRAPHS, [gap] * 24)


@pytest.mark.parametrize("kind", [joao.JOAO, joao.JOAOClassifier, joao.JOAORegressor])
def test_an_attribute_set_by_the_user_does_not_count_as_fitted(kind):
    estimator = kind()
    estimator.seen_ = 1
    with pytest.raises(NotFittedError):
        estimator.transform(GRAPHS) if kind is joao.JOAO else estimator.predict(GRAPHS)


def test_score_rejects_labels_of_another_type(fitted):
    with refused("graphs", "'a'", 0):
        fitted.score(UNSEEN, ["a"] * 9)


def test_a_score_weighs_graphs_as_asked(fitted):
    y, weights = np.where(np.arange(24) == 3, np.nan, CLASSES), np.arange(24.0)
    known = np.arange(24) != 3
    expected = accuracy_score(CLASSES[known], fitted.predict(GRAPHS)[known], sample_weight=weights[known])
    assert fitted.score(GRAPHS, y, sample_weight=weights) == pytest.approx(expected)
    with refused(24, "sample_weight", "(5,)"):
        fitted.score(GRAPHS, y, sample_weight=weights[:5])


def test_no_graphs_have_no_predictions(fitted):
    assert fitted.predict_proba([]).shape == (0, 2)
    assert fitted.predict([]).shape == (0,)


def test_notices_point_at_the_line_of_the_user():
    model = joao.JOAOClassifier(**OPTIONS).fit(random_graphs(8, mean_nodes=6, num_node_labels=2))
    unseen = random_graphs(6, mean_nodes=6, num_node_labels=5, num_classes=1)
    for use in (model.predict, model.predict_proba):
        with pytest.warns(joao.JoaoNotice) as told:
            use(unseen)
        assert_mentions(told[0].message, "synthetic", int((unseen.node_labels > 1).sum()))
        assert [each.filename for each in told] == [__file__]


def test_without_y_the_graphs_bring_their_labels(pretrained, fitted):
    own = joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS)
    np.testing.assert_array_equal(own.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))
    assert own.classes_.tolist() == [0, 1]
    other = joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, 1 - CLASSES)  # y is what counts
    assert (other.predict_proba(UNSEEN) != own.predict_proba(UNSEEN)).any()
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in GRAPHS]
    given = joao.JOAOClassifier(pretrained, **OPTIONS).fit(bare, CLASSES)
    np.testing.assert_array_equal(given.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))


def test_a_folder_of_a_run_equals_the_saved_model(pretrained, fitted, tmp_path):
    pretrained.save(tmp_path / "run")
    for path in (tmp_path / "run", str(tmp_path / "run")):
        model = joao.JOAOClassifier(path, **OPTIONS).fit(GRAPHS, CLASSES)
        np.testing.assert_array_equal(model.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))


def test_pretrained_none_trains_the_default_encoder_from_scratch():
    model = joao.JOAOClassifier(None, **OPTIONS, random_state=4).fit(GRAPHS, CLASSES)
    start = make_untrained(make_recipe({"training": {"seed": 4}}), DATASET, device="cpu")
    expected = finetune(start, DATASET, HOW, seed=4, device="cpu")
    np.testing.assert_array_equal(model.predict_proba(UNSEEN), expected.predict(joao.read(UNSEEN)))
    assert model.finetuned_.info.from_scratch
    assert joao.JOAO()._recipe().encoder == start.recipe.encoder


def test_the_pre_trained_model_is_left_as_it_is(pretrained):
    before = pretrained.transform(UNSEEN)
    joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, CLASSES)
    np.testing.assert_array_equal(pretrained.transform(UNSEEN), before)


def test_params_reach_the_fine_tuning(pretrained):
    options = {"epochs": 3, "batch_size": np.int64(5), "learning_rate": 0.02, "patience": 7, "frozen": True}
    model = joao.JOAOClassifier(
        pretrained, **options, class_weight=None, validation_share=0.25, random_state=5, device="cpu"
    ).fit(GRAPHS)
    assert model.finetuned_.settings == Finetune(3, 5, 0.02, 7, frozen=True, balanced=False, standardise=True)
    assert (model.finetuned_.info.num_validation, model.finetuned_.info.seed) == (6, 5)
    first, second = (joao.JOAOClassifier(pretrained, **OPTIONS, random_state=None).fit(GRAPHS) for _ in range(2))
    assert (first.predict_proba(UNSEEN) != second.predict_proba(UNSEEN)).any()


@pytest.mark.parametrize("weight", ["balanced", None])
def test_load_restores_the_parameters(pretrained, tmp_path, weight):
    saved = joao.JOAOClassifier(pretrained, **OPTIONS, class_weight=weight, random_state=3).fit(GRAPHS)
    saved.save(tmp_path / "saved")
    loaded = joao.JOAOClassifier.load(tmp_path / "saved", device="cpu")
    found, expected = (each.get_params(deep=False) for each in (loaded, saved))
    assert found | {"pretrained": pretrained} == expected | {"fast": loaded.fast}


def test_clone_keeps_the_pre_trained_model_and_is_not_fitted(pretrained, fitted):
    copied = clone(fitted)
    assert copied.pretrained is pretrained
    with pytest.raises(NotFittedError):
        copied.predict(UNSEEN)
    np.testing.assert_array_equal(copied.fit(GRAPHS, CLASSES).predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))


def test_in_cross_validation_and_a_grid_search(pretrained):
    model = joao.JOAOClassifier(pretrained, **OPTIONS)
    folds = StratifiedKFold(2)
    scores = cross_val_score(model, GRAPHS, CLASSES, cv=folds)
    for score, (train, test) in zip(scores, folds.split(GRAPHS, CLASSES), strict=True):
        by_hand = clone(model).fit([GRAPHS[i] for i in train], CLASSES[train])
        assert score == by_hand.score([GRAPHS[i] for i in test], CLASSES[test])
    search = GridSearchCV(model, {"frozen": [True, False], "epochs": [1, 2]}, cv=folds).fit(GRAPHS, CLASSES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert len(best.history_) == search.best_params_["epochs"]
    assert best.pretrained is pretrained


def test_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "tuned")
    loaded = joao.JOAOClassifier.load(tmp_path / "tuned", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))
    assert (loaded.history_, loaded.chosen_epoch_) == (fitted.history_, fitted.chosen_epoch_)
    params = loaded.get_params(deep=False)
    assert isinstance(params.pop("pretrained"), str)  # which is no run that could be opened
    assert params == {name: value for name, value in fitted.get_params(deep=False).items() if name != "pretrained"}
    with refused("JOAOClassifier", "set_params(pretrained=...)"):
        loaded.fit(GRAPHS, CLASSES)
    # The folder is a run, too.
    embeddings = joao.JOAO.load(tmp_path / "tuned", device="cpu").transform(UNSEEN)
    np.testing.assert_array_equal(embeddings, fitted.finetuned_.trained.embed(joao.read(UNSEEN)).numpy())


def test_loaded_model_from_scratch_can_be_fitted_again(tmp_path):
    model = joao.JOAOClassifier(**OPTIONS, random_state=2).fit(GRAPHS, CLASSES)
    model.save(tmp_path / "tuned")
    again = clone(joao.JOAOClassifier.load(tmp_path / "tuned", device="cpu")).fit(GRAPHS, CLASSES)
    np.testing.assert_array_equal(again.predict_proba(UNSEEN), model.predict_proba(UNSEEN))


@pytest.mark.slow
def test_another_process_predicts_the_same(tmp_path, monkeypatch):
    monkeypatch.delenv("JOAO_DATA", raising=False)
    model = joao.JOAOClassifier(**{**OPTIONS, "epochs": 1, "batch_size": 64}).fit("MUTAG")
    model.save(tmp_path / "tuned")
    program = (
        "import joao, numpy, sys; model = joao.JOAOClassifier.load(sys.argv[1], device='cpu');"
        "numpy.save(sys.argv[2], model.predict_proba('MUTAG')); print(model.classes_.tolist())"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "tuned"), str(tmp_path / "there.npy")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    np.testing.assert_array_equal(np.load(tmp_path / "there.npy"), model.predict_proba("MUTAG"))
    assert json.loads(done.stdout) == [-1, 1]


def test_an_encoder_of_ones_own(tmp_path):
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 5)

        def forward(self, x, batch, batch_size):
            return torch.zeros(batch_size, 5).index_add(0, batch, torch.relu(self.linear(x)))

    start = joao.JOAO(epochs=1, batch_size=8, encoder=Mine(), device="cpu").fit(GRAPHS)
    model = joao.JOAOClassifier(start, **OPTIONS).fit(GRAPHS, CLASSES)
    model.save(tmp_path / "tuned")
    with refused(tmp_path / "tuned", "JOAOClassifier.load", "encoder="):
        joao.JOAOClassifier.load(tmp_path / "tuned")
    loaded = joao.JOAOClassifier.load(tmp_path / "tuned", encoder=Mine(), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(UNSEEN), model.predict_proba(UNSEEN))


def test_it_is_pickled_with_all_it_learned(fitted):
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN))


def test_fitting_the_same_labels_twice_warns(fitted, tmp_path):
    fitted.save(tmp_path / "tuned")
    with notice("graphs", "labels"):
        joao.JOAOClassifier(tmp_path / "tuned", **OPTIONS).fit(GRAPHS, CLASSES)


def test_unknown_node_labels_warn():
    model = joao.JOAOClassifier(**OPTIONS).fit(random_graphs(8, mean_nodes=6, num_node_labels=2))
    unseen = random_graphs(6, mean_nodes=6, num_node_labels=5, num_classes=1)
    with notice("synthetic", int((unseen.node_labels > 1).sum())):
        model.predict(unseen)


@pytest.mark.parametrize(
    ("y", "values"),
    [
        (CLASSES[:-1], [24, 23]),
        (0, [24, "()"]),
        (np.full(24, np.nan), ["NaN"]),
        ([None, ""] * 12, ["NaN"]),
        ([None, 0.5, *CLASSES[2:]], ["y[1]", 0.5]),
        (["a", *CLASSES[1:]], ["numbers", "text"]),
        (CLASSES + 0.5, ["y[0]", 0.5]),
        (np.array(["a", *CLASSES[1:]], dtype=object), ["numbers", "text"]),
        (np.zeros(24), ["classes", 24]),
        (np.arange(24), ["classes", 24, "validation"]),
    ],
)
def test_unlearnable_labels_are_rejected(pretrained, y, values):
    with refused(*values):
        joao.JOAOClassifier(pretrained, **OPTIONS).fit(GRAPHS, y)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"epochs": 0}, ["epochs", 1, 0]),
        ({"epochs": 2.5}, ["JOAOClassifier", "epochs", 2.5]),
        ({"frozen": "no"}, ["JOAOClassifier", "frozen", "'no'"]),
        ({"learning_rate": -1.0}, ["learning_rate", -1.0]),
        ({"class_weight": {0: 1}}, ["class_weight", "'balanced'", "{0: 1}"]),
        ({"validation_share": 1.5}, ["validation", 1.5]),
        ({"validation_share": "half"}, ["JOAOClassifier", "validation_share", "'half'"]),
        ({"random_state": "x"}, ["JOAOClassifier", "random_state", "'x'"]),
        ({"device": "tpu"}, ["device", "auto", "cpu", "cuda", "'tpu'"]),
        ({"precision": "half"}, ["precision", "32-true", "bf16-mixed", "'half'"]),
        ({"pretrained": joao.JOAO()}, ["JOAOClassifier", "pretrained"]),
        ({"pretrained": "nowhere"}, ["nowhere", "joao pretrain"]),
        ({"pretrained": 3}, ["JOAOClassifier", "pretrained", "None", 3]),
    ],
)
def test_fit_rejects_wrong_parameters(options, values):
    with refused(*values):
        joao.JOAOClassifier(**{**OPTIONS, **options}).fit(GRAPHS, CLASSES)


def test_fit_rejects_graphs_without_labels(pretrained):
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in GRAPHS]
    with refused("graphs", "label"):
        joao.JOAOClassifier(pretrained, **OPTIONS).fit(bare)


def test_graphs_with_other_columns_are_rejected(pretrained, fitted):
    two_columns = [Data(x=graph.x[:, :2], edge_index=graph.edge_index) for graph in GRAPHS]
    with refused("graphs", 2, "attributes", 3):
        joao.JOAOClassifier(pretrained, **OPTIONS).fit(two_columns, CLASSES)
    with refused("graphs", 2, "attributes", 3):
        fitted.predict(two_columns)


@pytest.mark.parametrize("use", ["history_", "chosen_epoch_", "encoder_", "save", "predict", "predict_proba"])
def test_not_fitted(use, tmp_path):
    model = joao.JOAOClassifier()
    uses = {
        "save": lambda: model.save(tmp_path / "tuned"),
        "predict": lambda: model.predict(GRAPHS),
        "predict_proba": lambda: model.predict_proba(GRAPHS),
    }
    with pytest.raises(NotFittedError):
        uses.get(use, lambda: getattr(model, use))()
    assert list(tmp_path.iterdir()) == []


def test_loading_what_is_not_fine_tuned(pretrained, tmp_path):
    pretrained.save(tmp_path / "run")
    with refused(tmp_path / "run", "joao finetune"):
        joao.JOAOClassifier.load(tmp_path / "run")


def test_saved_folder_is_read_by_load_finetuned(fitted, tmp_path):
    fitted.save(tmp_path / "tuned")
    loaded = load_finetuned(tmp_path / "tuned", device="cpu")
    assert loaded.classes == (0, 1)
    np.testing.assert_array_equal(loaded.predict(joao.read(UNSEEN)), fitted.predict_proba(UNSEEN))


def test_the_folds_of_scikit_learn_cut_what_joao_reads():
    graphs = random_graphs(12, mean_nodes=5)
    labels = graphs.labels
    folds = StratifiedKFold(3)
    scores = cross_val_score(joao.JOAOClassifier(**OPTIONS), graphs, labels, cv=folds)
    expected = []
    for train, test in folds.split(labels, labels):
        model = joao.JOAOClassifier(**OPTIONS).fit(graphs[train], labels[train])
        expected.append(accuracy_score(labels[test], model.predict(graphs[test])))
    assert scores.tolist() == expected
