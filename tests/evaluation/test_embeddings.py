from __future__ import annotations

import json

import numpy as np
import pytest

from joao.evaluation.embeddings import PartitionScores, Scores, evaluate_embeddings, permute_classes
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.statistics import chance_level, paired_gain
from joao.evaluation.svm import FoldScores, score_folds
from tests.messages import refused


def informative(num_graphs=120):
    rng = np.random.default_rng(0)
    classes = rng.integers(2, size=num_graphs)
    return rng.normal(size=(num_graphs, 4)) + 2.0 * classes[:, None], classes


def made_up(*rows, hashes=("a", "b")):
    parts = [
        PartitionScores(number, fold_hash, FoldScores(row, (1.0,) * len(row)))
        for number, (row, fold_hash) in enumerate(zip(rows, hashes, strict=True))
    ]
    return Scores(tuple(parts))


def test_each_partition_is_scored_on_its_own_folds():
    x, classes = informative(60)
    scores = evaluate_embeddings(x, classes, partitions=[4, 1], num_folds=3)
    for part, number in zip(scores.partitions, [4, 1], strict=True):
        parts = folds(classes, number, 3)
        assert part == PartitionScores(number, fold_hash(parts), score_folds(x, classes, parts))


def test_the_published_form_is_passed_on():
    x, classes = informative(60)
    x *= [1, 10, 100, 1000]
    scores = evaluate_embeddings(x, classes, partitions=[0], num_folds=3, standardise=False)
    assert scores.partitions[0].folds == score_folds(x, classes, folds(classes, 0, 3), standardise=False)
    assert scores.to_json()["standardise"] is False


def test_the_default_is_five_partitions_of_ten_folds(one_c):
    x, classes = informative(40)
    told = []
    scores = evaluate_embeddings(x, classes, on_fold=lambda *call: told.append(call))
    assert [part.partition for part in scores.partitions] == [0, 1, 2, 3, 4]
    assert told == list(enumerate(np.array(scores.accuracies).ravel()))
    assert len(told) == 50


def test_mean_and_deviation_are_over_partitions():
    scores = made_up((0.5, 0.75), (0.75, 1.0))
    # partition means 0.625 and 0.875; deviation 0.25 / sqrt(2)
    assert scores.mean == 0.75
    assert scores.std == pytest.approx(0.25 / 2**0.5)


def test_json_contains_all_scores():
    scores = made_up((0.5, 0.75), hashes=("a",))
    assert json.loads(json.dumps(scores.to_json())) == {
        "mean": 0.625,
        "std": None,
        "standardise": True,
        "partitions": [
            {"partition": 0, "fold_hash": "a", "mean": 0.625, "accuracies": [0.5, 0.75], "chosen_c": [1.0, 1.0]}
        ],
    }


def test_scores_of_real_runs_are_plain_numbers():
    x, classes = informative(40)
    json.dumps(evaluate_embeddings(x, classes, partitions=range(1), num_folds=2).to_json())


def test_gain_is_paired_fold_by_fold():
    ours, theirs = made_up((0.9, 0.8), (0.7, 0.9)), made_up((0.8, 0.8), (0.5, 0.8))
    assert ours.gain_over(theirs) == paired_gain([[0.9, 0.8], [0.7, 0.9]], [[0.8, 0.8], [0.5, 0.8]])


def test_gain_over_other_folds_is_an_error():
    with refused("folds", "a, b", "a, c"):
        made_up((0.9,), (0.7,)).gain_over(made_up((0.9,), (0.7,), hashes=("a", "c")))


def test_shuffled_classes_score_chance_on_informative_embeddings():
    x, classes = informative()
    told = evaluate_embeddings(x, classes, num_folds=5, partitions=range(2)).mean
    labels = permute_classes(classes, seed=0)
    untold = evaluate_embeddings(x, labels, num_folds=5, partitions=range(2)).mean
    assert told > 0.95
    assert untold == pytest.approx(chance_level(classes), abs=0.06)


def test_shuffling_keeps_the_counts_and_is_a_function_of_the_seed():
    classes = np.repeat([0, 1, 2], [30, 20, 10])
    labels = permute_classes(classes, seed=1)
    np.testing.assert_array_equal(np.bincount(labels), [30, 20, 10])
    np.testing.assert_array_equal(labels, permute_classes(classes, seed=1))
    assert (labels != permute_classes(classes, seed=2)).any()
    np.testing.assert_array_equal(classes, np.repeat([0, 1, 2], [30, 20, 10]))


def test_messages_name_the_class():
    with refused("'mutagenic'", 5, 10):
        evaluate_embeddings(np.eye(25), np.repeat([0, 1], [20, 5]), class_names=("harmless", "mutagenic"))


def test_no_partitions_is_an_error():
    with refused("evaluation", "partitions"):
        evaluate_embeddings(np.eye(20), np.repeat([0, 1], 10), partitions=[])
