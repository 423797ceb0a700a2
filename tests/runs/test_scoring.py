"""The record of a score has everything needed to make it again, and three scores on the same folds."""

import json

import numpy as np
import pytest
from torch import nn

from joao.baselines import LDP, WL, Histogram
from joao.config.builder import CustomParts
from joao.config.recipe import make_recipe
from joao.data import read
from joao.data.names import BUNDLED
from joao.data.synthetic import random_graphs
from joao.evaluation import svm
from joao.evaluation.embeddings import evaluate_embeddings, permute_classes
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.statistics import paired_gain
from joao.runs.finetuning import finetune
from joao.runs.pretraining import pretrain
from joao.runs.scoring import REFERENCES, evaluate
from joao.runs.trained import make_untrained
from joao.training.finetune import Finetune
from tests.messages import refused

GRAPHS = random_graphs(24, mean_nodes=6, num_classes=2, seed=1)
RECIPE = make_recipe({"data": "synthetic", "features": "auto", "training": {"epochs": 1, "batch_size": 12}})
SETTINGS = {"partitions": [0, 3], "num_folds": 3}


@pytest.fixture(scope="module", autouse=True)
def two_values_of_c():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svm, "C_GRID", (0.1, 1.0))
        yield


@pytest.fixture(scope="module")
def trained():
    return pretrain(RECIPE, GRAPHS, device="cpu")


@pytest.fixture(scope="module")
def record(trained):
    return evaluate(trained, GRAPHS, **SETTINGS, device="cpu")


def accuracies(scores):
    return [part["accuracies"] for part in scores["partitions"]]


def test_keys_and_json(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert set(record) == {
        *("protocol", "data", "chance", "features", "recipe", "seconds", "command", "versions", "machine"),
        *("run", *REFERENCES, *(f"gain over {name}" for name in REFERENCES)),
    }
    assert record["data"] == {"name": "synthetic", "fingerprint": GRAPHS.fingerprint, "graphs": 24, "classes": 2}
    assert record["chance"] == 0.5
    assert make_recipe(record["recipe"]) == RECIPE
    assert record["features"] == "labels"  # as it was settled, not "auto"
    assert {"joao", "python", "torch", "numpy", "scikit-learn"} <= set(record["versions"])
    assert record["machine"]["device"] == "cpu"


def test_record_contains_the_protocol(record):
    given = {key: value for key, value in record["protocol"].items() if key != "pre-training"}
    assert given == {"name": "unsupervised", "encoders": 1, "labels": "true"}
    assert "transductive" in record["protocol"]["pre-training"]


def test_all_methods_are_scored_on_the_same_folds(record):
    expected = [fold_hash(folds(GRAPHS.classes, partition, 3)) for partition in (0, 3)]
    for name in ("run", *REFERENCES):
        parts = record[name]["partitions"]
        assert [part["fold_hash"] for part in parts] == expected
        assert [part["partition"] for part in parts] == [0, 3]


def test_each_score_comes_from_its_own_embeddings(trained, record):
    vectors = {
        "run": trained.embed(GRAPHS).numpy(),
        "untrained": make_untrained(RECIPE, GRAPHS, trained.info.features, device="cpu").embed(GRAPHS).numpy(),
        "histogram": Histogram().fit_transform(GRAPHS),
        "ldp": LDP().fit_transform(GRAPHS),
        "wl": WL().fit_transform(GRAPHS),
    }
    for name, embeddings in vectors.items():
        kernel = "linear" if name == "wl" else "rbf"
        assert record[name] == evaluate_embeddings(embeddings, GRAPHS.classes, **SETTINGS, kernel=kernel).to_json()


def test_gains_are_paired(record):
    for baseline in ("untrained", "histogram", "wl", "ldp"):
        ours, theirs = accuracies(record["run"]), accuracies(record[baseline])
        gain = paired_gain(ours, theirs)
        assert record[f"gain over {baseline}"] == {"mean": gain.mean, "low": gain.low, "high": gain.high, "level": 0.95}
        assert gain.mean == pytest.approx(np.mean(ours) - np.mean(theirs))


def test_progress_names_what_is_embedded_and_scored(trained):
    names, embedded, scored = [*REFERENCES, "run"], [], []
    callbacks = {"on_rows": embedded.append, "on_fold": lambda *fold: scored.append(fold)}
    record = evaluate(trained, GRAPHS, **SETTINGS, device="cpu", **callbacks)
    assert embedded == names
    assert scored == [
        (name, part["partition"], accuracy)
        for number in range(2)
        for name in names
        for part in record[name]["partitions"][number : number + 1]
        for accuracy in part["accuracies"]
    ]


def test_record_states_other_graphs_and_unscaled_features(trained):
    other = random_graphs(24, mean_nodes=6, seed=2)
    record = evaluate(trained, other, **SETTINGS, device="cpu", standardise=False)
    assert "transductive" not in record["protocol"]["pre-training"]
    assert record["data"]["fingerprint"] == other.fingerprint
    assert not any(record[name]["standardise"] for name in ("run", *REFERENCES))


def test_unlabelled_graphs_are_rejected(trained):
    with refused("synthetic", "labels", "joao embed"):
        evaluate(trained, random_graphs(24, mean_nodes=6, num_classes=0), device="cpu")


def test_custom_encoder_has_no_untrained_form():
    class Sum(nn.Module):
        def forward(self, x, batch, batch_size):
            return x.new_zeros(batch_size, x.shape[1]).index_add(0, batch, x)

    own = pretrain(RECIPE, GRAPHS, device="cpu", custom=CustomParts(encoder=Sum()))
    with refused("evaluate", "encoder"):
        evaluate(own, GRAPHS, **SETTINGS, device="cpu")


def test_fine_tuned_encoders_are_not_evaluated(trained):
    tuned = finetune(trained, GRAPHS, Finetune(epochs=1), device="cpu").trained
    with refused("evaluate", "joao predict"):
        evaluate(tuned, GRAPHS, **SETTINGS, device="cpu")


def test_shuffled_labels_score_like_chance():
    mutag = read(BUNDLED / "MUTAG.zip")
    trained = pretrain(make_recipe({"training": {"epochs": 2}}), mutag, device="cpu")
    record = evaluate(trained, mutag, partitions=[0, 1], num_folds=5, shuffle_labels=True, device="cpu")
    assert record["protocol"]["labels"] == "shuffled"
    assert record["chance"] == pytest.approx(125 / 188)
    # The deviation of an accuracy on 188 graphs by chance is 3.4 points; 4 of them.
    for name in ("run", *REFERENCES):
        assert record[name]["mean"] < record["chance"] + 0.14
        expected = [fold_hash(folds(permute_classes(mutag.classes, 0), partition, 5)) for partition in (0, 1)]
        assert [part["fold_hash"] for part in record[name]["partitions"]] == expected
    assert np.bincount(permute_classes(mutag.classes, 0)).tolist() == np.bincount(mutag.classes).tolist()


def test_twins_together(trained):
    twice, together = GRAPHS[np.r_[0:24, 0:24]], np.r_[0:24, 0:24]
    record = evaluate(trained, twice, **SETTINGS, twins_together=True, device="cpu")
    for name, rows in (("histogram", Histogram().fit_transform(twice)), ("run", trained.embed(twice).numpy())):
        assert record[name] == evaluate_embeddings(rows, twice.classes, **SETTINGS, groups=together).to_json()
