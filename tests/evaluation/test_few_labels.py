from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from joao.evaluation.folds import folds
from joao.evaluation.splits import Split, hold_out, sample_stratified
from repro.splits import few_label_splits, split_hash
from tests.messages import refused

CLASSES = np.array([0] * 400 + [1] * 250 + [2] * 130)

sizes = st.lists(st.integers(1, 60), min_size=2, max_size=6)
seeds = st.integers(0, 2**32)


def shuffled(sizes, seed):
    """Classes of these sizes, mixed; numbers are left out, as class 1 may have no graph among those at hand."""
    classes = np.repeat(2 * np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(classes)


def counts_of(classes, chosen):
    return [int((classes[chosen] == value).sum()) for value in np.unique(classes)]


def parts(split):
    return split.train.tolist(), split.validation.tolist(), split.test.tolist()


@given(sizes, st.floats(0, 1), seeds)
def test_stratified_sample_is_ascending_and_has_every_class(sizes, share, seed):
    classes = shuffled(sizes, seed)
    number = round(len(sizes) + share * (len(classes) - len(sizes)))
    chosen = sample_stratified(classes, number, np.random.default_rng(seed))
    assert chosen.dtype == np.int64
    assert len(chosen) == number
    assert (np.diff(chosen) > 0).all()
    assert set(chosen.tolist()) <= set(range(len(classes)))
    assert min(counts_of(classes, chosen)) >= 1


@given(sizes, st.floats(0, 1), seeds)
def test_class_counts_are_within_one_of_their_shares(sizes, share, seed):
    classes = shuffled(sizes, seed)
    number = round(len(sizes) + share * (len(classes) - len(sizes)))
    exact = [number * size / len(classes) for size in sizes]
    assume(min(exact) >= 1)
    counts = counts_of(classes, sample_stratified(classes, number, np.random.default_rng(seed)))
    assert all(abs(count - share) < 1 for count, share in zip(counts, exact, strict=True))
    # By largest remainder: who was rounded up was nearer to the next number than who was not.
    up = [share % 1 for count, share in zip(counts, exact, strict=True) if count > share]
    down = [share % 1 for count, share in zip(counts, exact, strict=True) if count < share]
    assert min(up, default=1) >= max(down, default=0) - 1e-9


def test_stratified_counts_by_hand():
    classes = np.repeat([0, 1, 2, 3], [50, 30, 15, 5])
    draw = np.random.default_rng(0)
    assert counts_of(classes, sample_stratified(classes, 20, draw)) == [10, 6, 3, 1]
    assert counts_of(classes, sample_stratified(classes, 22, draw)) == [11, 7, 3, 1]  # 11, 6.6, 3.3, 1.1
    assert counts_of(classes, sample_stratified(classes, 10, draw)) == [
        5,
        3,
        1,
        1,
    ]  # 5, 3, 1.5, 0.5: the last gets its one
    assert counts_of(classes, sample_stratified(classes, 4, draw)) == [1, 1, 1, 1]
    assert counts_of(classes, sample_stratified(classes, 100, draw)) == [50, 30, 15, 5]
    # 2.5 and 1.5: of equal remainders, the first class is rounded up.
    assert counts_of(np.repeat([0, 1], [5, 3]), sample_stratified(np.repeat([0, 1], [5, 3]), 4, draw)) == [3, 1]
    # 6, 3.1 and three times 0.3: the ones of the rare classes are taken from where they are missed least.
    rare = np.repeat([0, 1, 2, 3, 4], [60, 31, 3, 3, 3])
    assert counts_of(rare, sample_stratified(rare, 10, draw)) == [5, 2, 1, 1, 1]
    # 2, 2 and three times 1/3: both of the large classes give one away.
    rarer = np.repeat([0, 1, 2, 3, 4], [6, 6, 1, 1, 1])
    assert counts_of(rarer, sample_stratified(rarer, 5, draw)) == [1, 1, 1, 1, 1]


def test_graphs_of_a_class_are_equally_likely(assert_law):
    classes = np.array([0, 1, 0, 1, 0, 0])
    draw = np.random.default_rng(3)
    chosen = [sample_stratified(classes, 3, draw) for _ in range(600)]
    assert {tuple(counts_of(classes, each)) for each in chosen} == {(2, 1)}
    assert_law([k for each in chosen for k in each if classes[k] == 0], {0: 1 / 4, 2: 1 / 4, 4: 1 / 4, 5: 1 / 4})
    assert_law([k for each in chosen for k in each if classes[k] == 1], {1: 1 / 2, 3: 1 / 2})


@given(sizes, st.floats(0.01, 0.99), seeds)
def test_hold_out_takes_its_share_and_every_class_keeps_a_graph(sizes, share, seed):
    classes = shuffled(sizes, seed)
    assume(len(classes) > len(sizes))
    learn, choose = hold_out(classes, share, np.random.default_rng(seed))
    assert sorted([*learn, *choose]) == list(range(len(classes)))
    assert len(np.unique(classes[learn])) == len(sizes)
    assert 1 <= len(choose) <= len(classes) - len(sizes)
    if 1 <= round(share * len(classes)) <= len(classes) - len(sizes):
        assert len(choose) == round(share * len(classes))


@given(st.integers(0, 1000), st.floats(0.03, 1), st.floats(0.05, 0.5))
def test_label_rate_sets_the_number_of_labelled_graphs(partition, rate, share):
    splits = few_label_splits(CLASSES, partition, rate, validation_share=share)
    for (train, test), split in zip(folds(CLASSES, partition), splits, strict=True):
        labelled = np.union1d(split.train, split.validation)
        budget = round(rate * len(train))
        assert len(split.train) + len(split.validation) == len(labelled) == budget
        assert split.test.tolist() == test.tolist()
        assert set(labelled) <= set(train)
        assert not set(labelled) & set(test)
        exact = [budget * (CLASSES[train] == value).sum() / len(train) for value in range(3)]
        counts = counts_of(CLASSES, labelled)
        assert all(abs(count - share) < 1 for count, share in zip(counts, exact, strict=True))
        assert min(counts) >= 1
        assert len(np.unique(CLASSES[split.train])) == 3


def test_the_published_budgets_of_nci1():
    classes = np.array([0] * 2053 + [1] * 2057)
    for rate, budget in ((0.01, 37), (0.1, 370)):
        for split in few_label_splits(classes, 0, rate, validation_share=0.2):
            assert len(split.train) + len(split.validation) == budget
            assert len(split.validation) == round(0.2 * budget)


def test_label_rate_of_one_labels_the_whole_training_part():
    for (train, _), split in zip(folds(CLASSES, 4, 5), few_label_splits(CLASSES, 4, 1.0, num_folds=5), strict=True):
        assert np.union1d(split.train, split.validation).tolist() == train.tolist()


def test_splits_depend_on_the_arguments_only():
    again = CLASSES.copy()
    np.random.default_rng(9).random(5)
    for one, other in zip(few_label_splits(CLASSES, 3, 0.1), few_label_splits(again, 3, 0.1), strict=True):
        assert parts(one) == parts(other)


def test_partitions_and_folds_draw_different_labels():
    chosen = [str(parts(split)) for partition in range(5) for split in few_label_splits(CLASSES, partition, 0.1)]
    assert len(set(chosen)) == 50
    # Every training part begins with 360 graphs of the first class: equal draws would be equal places among them.
    places = set()
    for partition in range(5):
        for (train, _), split in zip(folds(CLASSES, partition), few_label_splits(CLASSES, partition, 0.1), strict=True):
            found = np.searchsorted(train, np.union1d(split.train, split.validation))
            places.add(tuple(found[found < 360].tolist()))
    assert {len(each) for each in places} == {36}
    assert len(places) == 50


@pytest.mark.parametrize("rate", [0, 0.0, 2, 1.01, -0.1, float("nan")])
def test_invalid_label_rate_is_rejected(rate):
    with refused("labels", "rate", rate):
        few_label_splits(CLASSES, 0, rate)


@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0, -0.5, 1.5, float("nan")])
def test_invalid_validation_share_is_rejected(share):
    with refused("labels", "validation", share):
        few_label_splits(CLASSES, 0, 0.5, validation_share=share)


def test_too_few_labels_are_rejected_with_a_sufficient_rate():
    # 0.4 % of 702 graphs are three; four of 702 are 0.57 %.
    with refused("labels", "0.4 %", 3, "0.6 %"):
        few_label_splits(CLASSES, 0, 0.004)
    assert all(len(split.train) == 3 for split in few_label_splits(CLASSES, 0, 0.006))


def test_suggested_label_rate_is_minimal():
    with refused("0.5 %"):  # three graphs of 600
        few_label_splits(np.repeat([0, 1], 600), 0, 0.001, num_folds=2)
    few_label_splits(np.repeat([0, 1], 600), 0, 0.005, num_folds=2)


def test_two_labelled_graphs_of_two_classes_leave_no_validation_graph():
    with refused("labels", "2 labelled", "2 classes"):
        hold_out(np.array([0, 1]), 0.2, np.random.default_rng(0))


def test_default_validation_share_is_a_tenth():
    for split in few_label_splits(CLASSES, 0, 0.5):
        assert len(split.validation) == round(0.1 * (len(split.train) + len(split.validation)))


def test_split_hash_depends_on_all_parts_in_order():
    a, b, c = np.arange(3), np.arange(3, 6), np.arange(6, 9)
    one, other = Split(a, b, c), Split(b, c, a)
    hashes = [split_hash(each) for each in ([one], [Split(b, a, c)], [Split(a, c, b)], [one, other], [other, one])]
    assert len(set(hashes)) == 5
    assert split_hash([Split(np.arange(2), np.arange(2, 6), c)]) != hashes[0]  # where a part ends counts, too
    assert split_hash([Split(*(part.astype(np.int32) for part in (a, b, c)))]) == hashes[0]
    assert {len(each) for each in hashes} == {16}
    int(hashes[0], 16)


def test_splits_are_those_of_the_records():
    """Scores of one version may be paired with those of another."""
    assert split_hash(few_label_splits(CLASSES, 0, 0.1)) == "38f97ff6c646bf01"
    assert split_hash(few_label_splits(CLASSES, 1, 0.01)) == "01790259871a3a9e"


def test_class_names_are_passed_to_folds():
    with refused("'rare'", 4, 10):
        few_label_splits(np.array([0] * 50 + [1] * 4), 0, 0.5, class_names=("usual", "rare"))
