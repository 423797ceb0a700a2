from __future__ import annotations

import numpy as np
import pytest

from joao.data.names import BUNDLED
from joao.data.sources import read
from joao.evaluation.folds import fold_hash, folds, grouped_folds
from repro.protocols.unsupervised.run import record_file
from repro.record_files import RECORDS
from tests.messages import refused

CLASSES = np.array([0] * 40 + [1] * 25 + [2] * 13)


def test_every_graph_is_tested_once_and_trained_on_otherwise():
    parts = folds(CLASSES, partition=3)
    assert len(parts) == 10
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(len(CLASSES)))
    for train, test in parts:
        assert set(train) == set(range(len(CLASSES))) - set(test)


def test_folds_are_stratified():
    for _, test in folds(CLASSES, partition=0):
        counts = np.bincount(CLASSES[test], minlength=3)
        assert ((counts == [4, 2, 1]) | (counts == [4, 3, 2])).all()


def test_partition_depends_on_classes_and_number_only():
    assert fold_hash(folds(CLASSES, 0)) == fold_hash(folds(CLASSES.copy(), 0))
    assert len({fold_hash(folds(CLASSES, partition)) for partition in range(20)}) == 20


def test_the_partitions_are_those_of_the_records():
    classes = read(BUNDLED / "MUTAG.zip").classes
    for seed in range(3):
        record = record_file(RECORDS)[f"MUTAG/joao-{seed}"]
        for part in record["scores"]["partitions"]:
            assert fold_hash(folds(classes, part["partition"])) == part["fold_hash"]


def test_fold_hash_depends_on_test_parts_in_order():
    first, second = folds(CLASSES, 0, num_folds=2)
    assert fold_hash([first, second]) != fold_hash([second, first])
    narrow = [(train.astype(np.int32), test.astype(np.int32)) for train, test in (first, second)]
    assert fold_hash(narrow) == fold_hash([first, second])
    assert len(fold_hash([first])) == 16
    int(fold_hash([first]), 16)


def test_fold_hash_depends_on_fold_boundaries():
    a, b = np.arange(3), np.arange(3, 6)
    assert fold_hash([(b, a), (a, b)]) != fold_hash([(b, a[:2]), (a, np.arange(2, 6))])


@pytest.mark.parametrize(
    ("classes", "names", "values"),
    [
        ([0] * 20 + [1] * 9, ("no", "yes"), ["'yes'", 9, 10]),
        ([0] * 20 + [1] * 9, (), ["'1'", 9, 10]),
        ([0] * 20 + [1], (), ["'1'", 1, 10]),
        ([0] * 20, (), [1, 20]),
        ([], (), [0]),
    ],
)
def test_classes_that_cannot_be_split_are_rejected_by_name(classes, names, values):
    with refused("folds", *values):
        folds(np.array(classes, dtype=np.int64), 0, class_names=names)


def test_one_fold_is_rejected():
    with refused("folds:", "num_folds", 2, 1):
        folds(CLASSES, 0, num_folds=1)


GROUPS = np.random.default_rng(0).integers(60, size=len(CLASSES))


def test_groups_stay_together_and_every_graph_is_tested_once():
    assert len(np.unique(GROUPS)) < 50  # many have company
    parts = folds(CLASSES, 0, 5, groups=GROUPS)
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(len(CLASSES)))
    for train, test in parts:
        assert set(train) == set(range(len(CLASSES))) - set(test)
        assert not set(GROUPS[train]) & set(GROUPS[test])
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()
        counts = np.bincount(CLASSES[test], minlength=3)
        assert (np.abs(counts - [8, 5, 2.6]) <= 2).all()


def test_groups_of_one_graph_are_stratified():
    for _, test in folds(CLASSES, 0, groups=np.arange(len(CLASSES))):
        counts = np.bincount(CLASSES[test], minlength=3)
        assert (np.abs(counts - [4, 2.5, 1.3]) < 1).all()


def test_grouped_partition_depends_on_number_and_groups_only():
    hashes = [fold_hash(folds(CLASSES, number, 5, groups=GROUPS)) for number in range(20)]
    assert hashes[3] == fold_hash(folds(CLASSES, 3, 5, groups=1000 + 7 * GROUPS))
    assert len(set(hashes)) == 20


def test_grouped_partitions_are_those_of_the_records():
    """Scores of one version may be paired with those of another."""
    assert fold_hash(folds(CLASSES, 0, 5, groups=GROUPS)) == "303332f3235cb9e2"


def test_class_with_too_few_groups_is_rejected_by_name():
    classes, groups = np.repeat([0, 1], 20), np.r_[0:20, [50, 51, 52, 53] * 5]
    with refused("'yes'", 4, 10):
        folds(classes, 0, class_names=("no", "yes"), groups=groups)
    for train, _ in folds(classes, 0, 4, groups=groups):
        assert len(np.unique(classes[train])) == 2


def test_groups_that_leave_one_training_class_are_rejected():
    with refused("groups", "2 folds"):
        grouped_folds(np.repeat([0, 1], 10), np.repeat([0, 1], 10), 2)
