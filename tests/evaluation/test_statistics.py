from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from joao.evaluation.statistics import chance_level, estimate_mean, mean, paired_gain, sample_std
from tests.messages import refused


def test_deviation_is_that_of_a_sample():
    # mean 4; squared differences 4, 0, 4, 4, 4 sum to 16; 16 / (5 - 1) = 4
    assert mean([2, 4, 6, 2, 6]) == 4
    assert sample_std([2, 4, 6, 2, 6]) == 2


def test_one_value_has_no_deviation():
    assert sample_std([0.8]) is None


def test_variance_between_seeds_is_used_if_larger():
    # seed means 1, 3, 5: B / r = 4 / 3; variances of the folds 2, 0, 2: W / k = 4 / 3 / 2
    found = estimate_mean([[0.0, 2.0], [3.0, 3.0], [4.0, 6.0]])
    assert (found.mean, found.freedom) == (3, 2)
    assert found.variance == pytest.approx(4 / 3)


def test_variance_between_folds_is_used_if_larger():
    # seed means 2, 2, 3.5: B / r = 0.75 / 3; variances of the folds 8, 2, 0.5: W / k = 3.5 / 2
    found = estimate_mean([[0.0, 4.0], [1.0, 3.0], [3.0, 4.0]])
    assert (found.mean, found.freedom) == (2.5, 3)
    assert found.variance == pytest.approx(3.5 / 2)


def test_one_seed_uses_the_variance_of_its_folds():
    gain = paired_gain([[0.9, 0.8, 0.7]], [[0.8, 0.8, 0.5]])
    # d = .1, 0, .2: mean .1, variance (0 + .01 + .01) / 2 = .01; t with 2 degrees of freedom at 97.5 % is 4.302653
    half_width = 4.302653 * math.sqrt(0.01 / 3)
    assert gain.mean == pytest.approx(0.1)
    assert (gain.low, gain.high) == pytest.approx((0.1 - half_width, 0.1 + half_width), abs=1e-6)
    assert gain.level == 0.95


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_one_score_per_seed_gives_students_interval(shape):
    values = np.random.default_rng(0).normal(size=shape)
    low, high = stats.t.interval(0.9, 4, values.mean(), stats.sem(values, axis=None))
    gain = estimate_mean(values).interval(0.9)
    assert (gain.low, gain.high, gain.level) == (pytest.approx(low), pytest.approx(high), 0.9)


def test_repeating_partitions_does_not_shrink_the_interval_to_nothing():
    differences = np.random.default_rng(0).normal(size=10)
    gain = paired_gain(np.tile(differences, (1000, 1)), np.zeros((1000, 10)))
    # the limit: the normal quantile times the standard error of one partition
    assert gain.high - gain.mean == pytest.approx(1.959964 * differences.std(ddof=1) / math.sqrt(10), rel=1e-3)


def test_swapping_sides_mirrors_the_interval():
    a, b = np.random.default_rng(1).random((2, 5, 10))
    forth, back = paired_gain(a, b, level=0.9), paired_gain(b, a, level=0.9)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))
    assert forth.level == 0.9


@pytest.mark.parametrize("gap", [0.0, 0.25])
def test_equal_differences_give_an_interval_without_width(gap):
    baseline = np.array([[0.5, 0.25, 0.75]])
    gain = paired_gain(baseline + gap, baseline)
    assert (gain.mean, gain.low, gain.high) == (gap, gap, gap)


@pytest.mark.parametrize(("a", "b"), [([0.1], [0.2]), ([[0.1, 0.2]], [[0.1, 0.2, 0.3]]), ([], [])])
def test_scores_that_cannot_be_paired_are_an_error(a, b):
    with refused("gain", np.shape(a)):
        paired_gain(a, b)


def test_chance_is_the_share_of_the_largest_class():
    assert chance_level(np.array([3, 3, 3, 0, 1])) == 0.6
