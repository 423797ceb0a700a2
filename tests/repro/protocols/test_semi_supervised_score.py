"""Few labels: what a fold scores, and that nothing of its test graphs is known before."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.core.randomness import derive_seed, temporary_seed
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import ResGcn
from joao.evaluation.targets import ClassTargets
from joao.training.finetune import Finetune, Finetuning
from joao.training.metrics import Fit, FitEpoch
from repro.protocols.semi_supervised.score import FewLabelsScore, FewLabelsScores, score_splits
from repro.splits import few_label_splits

DATA = random_graphs(60, 8, 2.5, seed=3, num_classes=3)
CLASSES = DATA.classes
SPLITS = few_label_splits(CLASSES, 0, 0.6, num_folds=3, validation_share=0.3)
EPOCHS = 5


def finetuning(classes=CLASSES, fast=False):
    """Always from the same start."""
    store = make_store(DATA, Features.from_dataset(DATA))
    with temporary_seed(1, "weights"):
        encoder = ResGcn(store.num_features, width=8, layers=1)
    how = Finetune(epochs=EPOCHS, batch_size=8, learning_rate=0.01)
    return Finetuning(store, ClassTargets(torch.from_numpy(classes), 3), encoder, how, fast=fast)


def share_right(fit_power_law, graphs, classes=CLASSES):
    """One graph after the other."""
    right = 0
    for graph in graphs.tolist():
        logits = fit_power_law.logits(torch.tensor([graph]))[0].tolist()
        right += logits.index(max(logits)) == classes[graph]
    return right / len(graphs)


def test_scores_match_a_fit_by_hand():
    scores = score_splits(finetuning(), CLASSES, SPLITS, seed=7)
    assert len(scores.folds) == 3
    for number, (split, score) in enumerate(zip(SPLITS, scores.folds, strict=True)):
        fitting = finetuning()
        train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
        fit = fitting.fit(train, validation, derive_seed(7, f"fold {number}"))
        assert score.accuracy == pytest.approx(share_right(fitting, split.test))
        assert score.validation_accuracy == pytest.approx(share_right(fitting, split.validation))
        assert score.epoch == fit.chosen
        # The best by validation, and of equally good ones the last.
        of_epochs = [epoch.validation_score for epoch in fit.epochs]
        assert score.epoch == EPOCHS - of_epochs[::-1].index(max(of_epochs))
    assert len({score.accuracy for score in scores.folds}) > 1


def test_every_fold_is_fitted_and_tested_once(monkeypatch):
    fitting, asked = finetuning(), []

    def fit(train, validation, seed, start):
        assert start is None
        asked.append(("fit", train.tolist(), validation.tolist(), seed))
        return Fit(tuple(FitEpoch(1.0, 1.0, accuracy) for accuracy in (0.25, 0.75, 0.5)), chosen=2)

    def logits(graphs):
        asked.append(("logits", graphs.tolist()))
        return torch.tensor([[0.0, 2.0, 1.0]]).expand(len(graphs), 3)  # class 1 for all

    monkeypatch.setattr(fitting, "fit", fit)
    monkeypatch.setattr(fitting, "logits", logits)
    scores = score_splits(fitting, CLASSES, SPLITS, seed=5)
    expected = []
    for number, split in enumerate(SPLITS):
        seed = derive_seed(5, f"fold {number}")
        expected += [("fit", split.train.tolist(), split.validation.tolist(), seed), ("logits", split.test.tolist())]
    assert asked == expected
    for split, score in zip(SPLITS, scores.folds, strict=True):
        ones = sum(CLASSES[graph] == 1 for graph in split.test)
        assert score == FewLabelsScore(ones / len(split.test), epoch=2, validation_accuracy=0.75)


def test_folds_do_not_influence_each_other():
    fitting = finetuning()
    all_three = score_splits(fitting, CLASSES, SPLITS, seed=7)
    assert score_splits(fitting, CLASSES, SPLITS[:1], seed=7).folds == all_three.folds[:1]
    assert score_splits(fitting, CLASSES, SPLITS, seed=8) != all_three


def after_relabelling(split, fast=False):
    """The score of a fold, and that where the test graphs of the first fold have other classes."""
    other = CLASSES.copy()
    other[SPLITS[0].test] = (other[SPLITS[0].test] + 1) % 3
    return [score_splits(finetuning(each, fast), each, [split], seed=7).folds[0] for each in (CLASSES, other)]


@pytest.mark.parametrize("fast", [False, True])
def test_test_classes_affect_only_the_accuracy(fast):
    score, other = after_relabelling(SPLITS[0], fast)
    assert replace(other, accuracy=score.accuracy) == score


def test_test_graphs_are_scored_with_the_given_classes():
    score, other = after_relabelling(SPLITS[0])
    fitting = finetuning()
    fitting.fit(*(torch.from_numpy(part) for part in (SPLITS[0].train, SPLITS[0].validation)), derive_seed(7, "fold 0"))
    shifted = (CLASSES + 1) % 3
    assert other.accuracy == pytest.approx(share_right(fitting, SPLITS[0].test, shifted))
    assert other.accuracy != score.accuracy


@pytest.mark.parametrize("part", ["train", "validation"])
def test_leaked_labels_would_be_visible(part):
    """The same comparison sees a split that has test graphs among those to learn from or to choose with."""
    split = SPLITS[0]
    leaking = split._replace(**{part: np.union1d(getattr(split, part), split.test)})
    score, other = after_relabelling(leaking)
    assert other.validation_accuracy != score.validation_accuracy


def test_json_has_one_list_for_each_figure():
    scores = FewLabelsScores((FewLabelsScore(0.5, 3, 1.0), FewLabelsScore(0.75, 1, 0.5)))
    assert scores.mean == 0.625
    assert json.loads(json.dumps(scores.to_json())) == {
        "mean": 0.625,
        "accuracy": [0.5, 0.75],
        "epoch": [3, 1],
        "validation_accuracy": [1.0, 0.5],
    }


def test_scores_of_real_fits_are_plain_numbers():
    json.dumps(score_splits(finetuning(), CLASSES, SPLITS[:1], seed=0).to_json(), allow_nan=False)
