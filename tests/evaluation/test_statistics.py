from __future__ import annotations

import math

import numpy as np
import pytest

from joao.evaluation.statistics import chance_level, mean, paired_gain, sample_std
from tests.messages import refused


def test_deviation_is_that_of_a_sample():
    # mean 4; squared differences 4, 0, 4, 4, 4 sum to 16; 16 / (5 - 1) = 4
    assert mean([2, 4, 6, 2, 6]) == 4
    assert sample_std([2, 4, 6, 2, 6]) == 2


def test_one_value_has_no_deviation():
    assert sample_std([0.8]) is None


def test_gain_matches_a_hand_computation():
    gain = paired_gain([0.9, 0.8, 0.7], [0.8, 0.8, 0.5], num_train_per_test=2)
    # d = .1, 0, .2: mean .1, variance (0 + .01 + .01) / 2 = .01; t with 2 degrees of freedom at 97.5 % is 4.302653
    half_width = 4.302653 * math.sqrt((1 / 3 + 1 / 2) * 0.01)
    assert gain.mean == pytest.approx(0.1)
    assert (gain.low, gain.high) == pytest.approx((0.1 - half_width, 0.1 + half_width), abs=1e-6)
    assert gain.level == 0.95


def test_fifty_folds_use_the_tabled_quantile():
    scores = np.tile([0.0, 1.0], 25).reshape(5, 10)
    gain = paired_gain(scores, np.zeros((5, 10)))
    # variance of 25 zeros and 25 ones: 50 / 49 / 4; t with 49 degrees of freedom at 97.5 % is 2.009575
    assert gain.high - 0.5 == pytest.approx(2.009575 * math.sqrt((1 / 50 + 1 / 9) * 50 / 49 / 4), abs=1e-6)


def test_repeating_partitions_does_not_shrink_the_interval_to_nothing():
    differences = np.random.default_rng(0).normal(size=10)
    gain = paired_gain(np.tile(differences, 1000), np.zeros(10_000))
    # the limit: the normal quantile times sqrt(1 / 9) of the population deviation
    assert gain.high - gain.mean == pytest.approx(1.959964 / 3 * differences.std(), rel=1e-3)


def test_swapping_sides_mirrors_the_interval():
    a, b = np.random.default_rng(1).random((2, 5, 10))
    forth, back = paired_gain(a, b, level=0.9), paired_gain(b, a, level=0.9)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))
    assert forth.level == 0.9


@pytest.mark.parametrize("gap", [0.0, 0.25])
def test_equal_differences_give_an_interval_without_width(gap):
    baseline = np.array([0.5, 0.25, 0.75])
    gain = paired_gain(baseline + gap, baseline)
    assert (gain.mean, gain.low, gain.high) == (gap, gap, gap)


@pytest.mark.parametrize(("a", "b"), [([0.1], [0.2]), ([0.1, 0.2], [0.1, 0.2, 0.3]), ([], [])])
def test_scores_that_cannot_be_paired_are_an_error(a, b):
    with refused("gain", np.shape(a), np.shape(b)):
        paired_gain(a, b)


def test_chance_is_the_share_of_the_largest_class():
    assert chance_level(np.array([3, 3, 3, 0, 1])) == 0.6
