"""Fine-tuning on several tasks with missing labels, and on numbers: what is predicted, scored, kept and refused."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from joao.config.recipe import make_recipe
from joao.data.synthetic import random_graphs
from joao.evaluation.splits import split_graphs
from joao.runs.finetuning import FILE, finetune, load_finetuned
from joao.runs.pretraining import pretrain
from joao.training.finetune import Finetune
from tests.messages import refused

NAN = np.nan
RECIPE = make_recipe(
    {"features": "auto", "encoder": {"width": 8}, "training": {"epochs": 2, "batch_size": 20, "seed": 3}}
)
HOW = Finetune(epochs=6, batch_size=20, learning_rate=0.01, balanced=True, standardise=True)


def made(num_graphs=80, seed=1):
    """Graphs with two tasks of 0 and 1 and two of numbers, of which some are missing."""
    dataset = random_graphs(num_graphs, mean_nodes=6, num_classes=2, seed=seed)
    random = np.random.default_rng(seed)
    sizes = np.diff(dataset.first_node).astype(np.float32)
    values = np.stack([dataset.classes, sizes > 6, 100 * sizes + 5000, random.normal(size=num_graphs)], axis=1)
    values = values.astype(np.float32)
    values[random.random(values.shape) < 0.2] = NAN
    values[3] = NAN
    names = ("odd", "large", "size", "noise")
    return dataclasses.replace(dataset, classes=None, class_names=(), targets=values, target_names=names)


GRAPHS, UNSEEN = made(), made(15, seed=2)
TASKS = {"binary": ("odd", "large"), "numbers": ("size", "noise")}


@pytest.fixture(scope="module")
def trained():
    return pretrain(RECIPE, GRAPHS, device="cpu")


def tuned(trained, kind="binary", dataset=GRAPHS, how=HOW, **options):
    return finetune(trained, dataset, how, tasks=TASKS[kind], test_share=0.2, device="cpu", **options)


@pytest.fixture(scope="module", params=TASKS)
def found(request, trained):
    return tuned(trained, request.param)


def by_hand(dataset, kind):
    """The labelled graphs, their labels, and the three parts of the random split."""
    columns = [dataset.target_names.index(name) for name in TASKS[kind]]
    labelled = np.flatnonzero(~np.isnan(dataset.targets[:, columns]).all(axis=1))
    graphs = dataset.subset(labelled)
    return graphs, graphs.targets[:, columns], split_graphs(graphs, "random", 0.2, 0.2, seed=0)


def test_predictions_are_probabilities_or_numbers_in_their_units(found):
    embeddings = found.trained.embed(UNSEEN, pooled=True).double()
    weights = {name: value.double() for name, value in found.classifier.state_dict().items()}
    outputs = (embeddings - weights["shift"]) / weights["scale"] @ weights["linear.weight"].T + weights["linear.bias"]
    if found.kind == "binary":
        outputs = 1 / (1 + (-outputs).exp())
    np.testing.assert_allclose(found.predict(UNSEEN).numpy(), outputs, rtol=1e-4, atol=1e-4)
    assert found.predict(UNSEEN).shape == (15, 2)
    assert (found.tasks, found.classes) == (TASKS[found.kind], ())


def test_scores_are_computed_on_held_out_graphs(found):
    graphs, labels, split = by_hand(GRAPHS, found.kind)
    for name, part in (("validation", split.validation), ("test", split.test)):
        predicted, truth = found.predict(graphs.subset(part)).numpy(), labels[part]
        mean = np.nanmean(labels[split.train], axis=0)
        for task, column in zip(found.tasks, range(2), strict=True):
            measured = ~np.isnan(truth[:, column])
            figures = found.scores[name]["tasks"][task]
            if found.kind == "binary":
                expected = {"roc_auc": roc_auc_score(truth[measured, column], predicted[measured, column])}
            else:
                errors = predicted[measured, column] - truth[measured, column]
                of_mean = np.sqrt(((truth[measured, column] - mean[column]) ** 2).mean())
                expected = {"rmse": np.sqrt((errors**2).mean()), "mae": np.abs(errors).mean(), "rmse_of_mean": of_mean}
                expected["spearman"] = spearmanr(predicted[measured, column], truth[measured, column]).statistic
            assert figures == pytest.approx({**expected, "labels": int(measured.sum())}, rel=1e-4)
    info = found.info
    assert (info.num_train, info.num_validation, info.num_test) == tuple(map(len, split))
    assert (info.split, info.validation_share, info.test_share) == ("random", 0.2, 0.2)


def test_selected_epoch_has_the_best_validation_score(found):
    scores = [epoch.validation_score for epoch in found.fit.epochs]
    assert found.fit.chosen == len(scores) - scores[::-1].index(max(scores))
    if found.kind == "binary":
        assert found.chosen_epoch.validation_score == pytest.approx(found.scores["validation"]["roc_auc"])
    else:
        _, labels, split = by_hand(GRAPHS, "numbers")
        deviation = np.nanstd(labels[split.train], axis=0)
        errors = [found.scores["validation"]["tasks"][name]["rmse"] for name in found.tasks]
        assert found.chosen_epoch.validation_score == pytest.approx(-np.mean(errors / deviation), rel=1e-4)


def test_scores_use_outputs_before_rounding(trained):
    """Of outputs so large that most probabilities above one half are 1."""
    how = Finetune(epochs=3, batch_size=20, learning_rate=30.0, frozen=True, standardise=True)
    found = tuned(trained, how=how)
    graphs, labels, split = by_hand(GRAPHS, "binary")
    for name, part in (("validation", split.validation), ("test", split.test)):
        held_out, truth = graphs.subset(part), labels[part]
        by_kind = {}
        for kind, values in (("outputs", found.predict_logits(held_out)), ("rounded", found.predict(held_out))):
            columns = ((truth[:, n], values[:, n], ~np.isnan(truth[:, n])) for n in range(2))
            by_kind[kind] = np.mean([roc_auc_score(y[measured], s[measured]) for y, s, measured in columns])
        assert found.scores[name]["roc_auc"] == pytest.approx(by_kind["outputs"], abs=1e-9)
        assert by_kind["outputs"] != by_kind["rounded"]
    assert found.chosen_epoch.validation_score == pytest.approx(found.scores["validation"]["roc_auc"], abs=1e-9)


def test_labels_are_counted(found):
    _, labels, _ = by_hand(GRAPHS, found.kind)
    for name, column in zip(found.tasks, labels.T, strict=True):
        counted = [(column == 0).sum(), (column == 1).sum()] if found.kind == "binary" else [(~np.isnan(column)).sum()]
        assert list(found.info.labels_per_task[name]) == counted
    assert found.info.graphs_per_class == {}


def test_regression_is_in_the_units_of_the_labels(trained):
    """A linear function of the embeddings, which a linear layer can learn."""
    embeddings = trained.embed(GRAPHS, pooled=True).numpy()
    values = 5000 + 100 * embeddings @ np.cos(np.arange(embeddings.shape[1]))[:, None] / embeddings.std()
    known = dataclasses.replace(GRAPHS, targets=values.astype(np.float32), target_names=("known",))
    how = Finetune(epochs=200, batch_size=20, learning_rate=0.03, frozen=True, standardise=True)
    found = finetune(trained, known, how, test_share=0.2, device="cpu")
    assert found.scores["test"]["rmse"] < 0.3 * values.std()
    assert abs(found.predict(GRAPHS).mean() - values.mean()) < 0.1 * values.std()


@pytest.mark.parametrize("kind", TASKS)
def test_test_labels_affect_only_the_test_score(trained, kind):
    _, _, split = by_hand(GRAPHS, kind)
    labelled = np.flatnonzero(~np.isnan(GRAPHS.targets[:, [GRAPHS.target_names.index(n) for n in TASKS[kind]]]).all(1))
    values = GRAPHS.targets.copy()
    of_test = labelled[split.test]
    values[of_test] = np.where(values[of_test] <= 1, 1 - values[of_test], values[of_test] + 1000)
    first, second = (tuned(trained, kind, each) for each in (GRAPHS, dataclasses.replace(GRAPHS, targets=values)))
    assert first.fit == second.fit
    assert torch.equal(first.predict(UNSEEN), second.predict(UNSEEN))
    assert first.scores["validation"] == second.scores["validation"]
    assert first.scores["test"] != second.scores["test"]


def test_training_from_scratch_does_not_see_test_graphs(trained):
    """Nor of what they look like: the normalisation is calibrated on the others."""
    _, _, split = by_hand(GRAPHS, "binary")
    labelled = np.flatnonzero(~np.isnan(GRAPHS.targets[:, :2]).all(axis=1))
    nodes = np.isin(GRAPHS.graph_of_node, labelled[split.test])
    labels = np.where(nodes[:, None], GRAPHS.node_labels[::-1], GRAPHS.node_labels)
    other = dataclasses.replace(GRAPHS, node_labels=labels)
    first, second = (tuned(trained, dataset=each, from_scratch=True) for each in (GRAPHS, other))
    assert first.info.fingerprint != second.info.fingerprint
    assert torch.equal(first.predict(UNSEEN), second.predict(UNSEEN))


def test_save_and_load(found, tmp_path):
    found.save(tmp_path / "tuned")
    loaded = load_finetuned(tmp_path / "tuned", device="cpu")
    assert torch.equal(loaded.predict(UNSEEN), found.predict(UNSEEN))
    for name in ("kind", "tasks", "classes", "settings", "fit", "scores"):
        assert getattr(loaded, name) == getattr(found, name)
    assert loaded.info == found.info
    assert loaded.score(loaded.predict(UNSEEN), UNSEEN) == found.score(found.predict(UNSEEN), UNSEEN)


def test_other_data_are_scored_on_shared_tasks(trained):
    found = tuned(trained)
    predicted = found.predict(UNSEEN)
    whole = found.score(predicted, UNSEEN)
    swapped = dataclasses.replace(UNSEEN, targets=UNSEEN.targets[:, [2, 1]], target_names=("unheard of", "large"))
    assert found.score(predicted, swapped)["tasks"] == {"large": whole["tasks"]["large"]}
    for other in (
        {"target_names": tuple("abcd")},
        {"targets": None, "target_names": ()},
        {"targets": UNSEEN.targets * NAN},
    ):
        assert found.score(predicted, dataclasses.replace(UNSEEN, **other)) is None


def test_classes_can_have_a_test_part(trained):
    dataset = random_graphs(60, mean_nodes=6, num_classes=3, seed=1)
    found = finetune(trained, dataset, HOW, test_share=0.3, device="cpu")
    split = split_graphs(dataset, "random", 0.2, 0.3, seed=0)
    predicted = found.predict(dataset.subset(split.test)).argmax(1).numpy()
    assert found.scores["test"] == {"accuracy": (predicted == dataset.classes[split.test]).mean()}
    assert (found.kind, found.info.num_test, set(found.scores)) == ("classes", 18, {"validation", "test"})


def test_named_tasks_take_precedence_over_classes(trained):
    both = dataclasses.replace(GRAPHS, classes=np.arange(80) % 2, class_names=("a", "b"))
    assert finetune(trained, both, HOW, device="cpu").kind == "classes"
    assert finetune(trained, both, HOW, tasks=["odd"], device="cpu").tasks == ("odd",)


def test_folder_of_an_earlier_version_loads(trained, tmp_path):
    """It says neither kind nor tasks nor split, and calls the score of classes accuracy."""
    dataset = random_graphs(40, mean_nodes=6, num_classes=2, seed=1)
    found = finetune(trained, dataset, HOW, device="cpu")
    found.save(tmp_path / "tuned")
    path = tmp_path / "tuned" / FILE
    fields = json.loads(path.read_text())
    for epoch in fields["fit"]["epochs"]:
        epoch["validation_accuracy"] = epoch.pop("validation_score")
    for key in ("kind", "tasks", "scores"):
        del fields[key]
    for key in ("split", "test_share", "num_test", "labels_per_task"):
        del fields["info"][key]
    fields["settings"]["choose_by"] = "accuracy"
    path.write_text(json.dumps(fields))
    loaded = load_finetuned(tmp_path / "tuned", device="cpu")
    assert (loaded.kind, loaded.tasks, loaded.scores) == ("classes", (), {})
    assert (loaded.fit, loaded.info, loaded.classes) == (found.fit, found.info, found.classes)
    assert torch.equal(loaded.predict(UNSEEN), found.predict(UNSEEN))


def test_unknown_kind_of_labels_is_rejected(trained, tmp_path):
    tuned(trained).save(tmp_path / "tuned")
    path = tmp_path / "tuned" / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": "sonnets"}))
    with refused(path, "sonnets"):
        load_finetuned(tmp_path / "tuned", device="cpu")


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"tasks": ["od"]}, ["'od'", "'odd'", "noise"]),
        ({"tasks": ["odd"], "dataset": dataclasses.replace(GRAPHS, targets=GRAPHS.targets * 0)}, [52, "(odd)"]),
        ({"tasks": ["odd"], "dataset": dataclasses.replace(GRAPHS, targets=GRAPHS.targets * NAN)}, ["label", "odd"]),
        ({"dataset": dataclasses.replace(GRAPHS, targets=None, target_names=())}, ["synthetic", "label"]),
        ({"tasks": ["odd"], "split": "scaffold"}, ["scaffold", "molecules"]),
        ({"tasks": ["odd"], "dataset": GRAPHS.subset(np.arange(2))}, ["synthetic", "labelled"]),
        (
            {"tasks": ["odd"], "settings": dataclasses.replace(HOW, choose_by="accuracy")},
            ["accuracy", "'score'", "'loss'"],
        ),
    ],
)
def test_unlearnable_labels_are_rejected(trained, options, values):
    given = {"dataset": GRAPHS, "settings": HOW, **options}
    with refused(*values):
        finetune(trained, device="cpu", **given)
