from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from joao.evaluation.folds import folds
from joao.evaluation.svm import FoldScores
from repro.benchmarks import svm
from repro.benchmarks.plan import Plan
from tests.messages import refused

RNG = np.random.default_rng(0)
CLASSES = np.arange(60) % 2
X = RNG.normal(size=(60, 3)) + CLASSES[:, None]


@pytest.mark.slow
def test_record_has_every_repeat_and_identical_scores():
    record = json.loads(json.dumps(svm.svm_protocol(X, CLASSES, num_folds_measured=3, jobs=2)))
    assert record["identical"]
    assert (record["graphs"], record["dimensions"], record["classes"], record["folds"]) == (60, 3, 2, 3)
    seconds = record["seconds of each turn"]
    assert {name: len(turns) for name, turns in seconds.items()} == dict.fromkeys(seconds, 2)  # 2 folds, then 1
    plain, ours = seconds["plain, 2 jobs"], seconds["ours, 2 jobs"]
    ratio = (plain[0] / ours[0] + plain[1] / ours[1]) / 2
    assert record["times faster"]["plain, 2 jobs / ours, 2 jobs"] == pytest.approx(ratio)
    for scores in record["scores"].values():
        assert len(scores["accuracies"]) == len(scores["chosen_c"]) == 3


def test_more_than_ten_folds_use_the_next_partition(monkeypatch):
    seen = []

    def score(x, classes, part, *, jobs):
        seen.extend(test.tolist() for _, test in part)
        return FoldScores((1.0,) * len(part), (1.0,) * len(part))

    monkeypatch.setattr(svm, "score_folds", score)
    monkeypatch.setattr(svm, "plain_scores", lambda x, classes, part, jobs: score(x, classes, [], jobs=jobs))
    svm.svm_protocol(X, CLASSES, num_folds_measured=11, jobs=11)
    assert seen[:11] == [test.tolist() for _, test in [*folds(CLASSES, 0), folds(CLASSES, 1)[0]]]


@pytest.mark.parametrize("other", [FoldScores((0.5,), (1.0,)), FoldScores((1.0,), (10.0,))])
def test_different_scores_or_choices_are_reported(monkeypatch, other):
    monkeypatch.setattr(svm.time, "process_time", itertools.count().__next__)  # doing nothing takes no time else
    monkeypatch.setattr(svm, "plain_scores", lambda *args, **kwargs: FoldScores((1.0,), (1.0,)))
    monkeypatch.setattr(svm, "score_folds", lambda *args, **kwargs: other)
    assert not svm.svm_protocol(X, CLASSES, num_folds_measured=1)["identical"]


@pytest.mark.parametrize(("num_folds", "jobs"), [(0, 2), (2, 1)])
def test_too_few_folds_or_jobs_are_rejected(num_folds, jobs):
    with refused("svm", num_folds, jobs):
        svm.svm_protocol(X, CLASSES, num_folds_measured=num_folds, jobs=jobs)


@pytest.mark.slow
def test_embeddings_of_a_trained_encoder_are_measured():
    record = svm.measure_svm(Plan(quick=True))
    assert record["data"] == "MUTAG"
    assert record["graphs"] == 188
    assert record["dimensions"] == 96
    assert record["identical"]
