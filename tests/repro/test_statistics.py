from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from repro.statistics import gain_over_seeds, gain_over_sets, table_correlation
from tests.messages import refused


def test_gain_over_seeds_matches_a_hand_computation():
    gain = gain_over_seeds([0.9, 0.8, 0.7], [0.8, 0.8, 0.5])
    # d = .1, 0, .2: mean .1, deviation .1
    half_width = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert gain.mean == pytest.approx(0.1)
    assert (gain.low, gain.high) == pytest.approx((0.1 - half_width, 0.1 + half_width))
    assert gain.level == 0.95


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_gain_over_seeds_is_the_interval_of_a_paired_t_test(level):
    scores, baseline = np.random.default_rng(4).random((2, 5))
    gain = gain_over_seeds(scores, baseline, level=level)
    expected = stats.ttest_rel(scores, baseline).confidence_interval(level)
    assert (gain.low, gain.high) == pytest.approx((expected.low, expected.high))
    assert gain.level == level


@pytest.mark.parametrize(
    ("a", "b"),
    [
        *(([0.1], [0.2]), ([], []), ([0.1, 0.2], [0.1, 0.2, 0.3]), ([0.1, 0.2], [0.1]), ([0.1, 0.2], 0.1)),
        ([[0.1, 0.2], [0.3, 0.4]], [[0.1, 0.2], [0.3, 0.4]]),
    ],
)
def test_scores_must_be_one_per_seed(a, b):
    with refused("gain", "seeds", np.shape(a), np.shape(b)):
        gain_over_seeds(a, b)


@pytest.mark.parametrize("ties", [False, True])
def test_table_correlation_is_spearmans(ties):
    first, second = np.random.default_rng(5).normal(size=(2, 4, 4))
    if ties:
        first, second = first.round(), second.round()
        assert len(set(first.ravel())) < 16
    found = table_correlation(first, second)
    assert found.value == pytest.approx(stats.spearmanr(first.ravel(), second.ravel()).statistic)
    assert table_correlation(np.exp(first), -second).value == pytest.approx(-found.value)


def test_p_value_is_the_share_of_permutations_at_least_as_good():
    first, second = np.random.default_rng(8).normal(size=(2, 3, 3))
    values = []
    for way in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        renamed = [[second[way[i], way[j]] for j in range(3)] for i in range(3)]
        values.append(abs(stats.spearmanr(first.ravel(), np.ravel(renamed)).statistic))
    expected = sum(value >= values[0] - 1e-12 for value in values) / 6
    assert 1 / 6 < expected < 1  # or any share would do
    assert table_correlation(first, second).p_value == pytest.approx(expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_perfect_agreement(sign):
    table = np.random.default_rng(2).normal(size=(5, 5))
    found = table_correlation(table, sign * table**3)
    assert found.value == pytest.approx(sign)
    assert found.p_value == pytest.approx(1 / 120)


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        ((2, 3), (2, 3), ["(2, 3)"]),
        ((2, 2), (3, 3), ["(2, 2)", "(3, 3)"]),
        ((2, 2), None, ["equal", "ranks"]),
    ],
)
def test_table_correlation_rejects_wrong_tables(a, b, values):
    second = np.zeros(a) if b is None else np.random.default_rng(0).normal(size=b)
    with refused("correlation", *values):
        table_correlation(np.random.default_rng(1).normal(size=a), second)


def test_gain_over_sets_matches_a_hand_computation():
    # Means 1 and 2, variances 2 and 2: v = 2 (0.25 * 2 / 2) = 0.5, and 0.5 ** 2 / (2 * 0.25 ** 2) = 2 degrees.
    gain = gain_over_sets([[0, 2], [1, 3]])
    half_width = 4.302653 * math.sqrt(0.5)
    assert (gain.mean, gain.low, gain.high) == pytest.approx((1.5, 1.5 - half_width, 1.5 + half_width), abs=1e-6)


def test_gain_over_one_set_is_that_over_its_seeds():
    scores, baseline = np.array([70.0, 72.0, 75.0]), np.array([69.0, 72.5, 71.0])
    assert gain_over_sets([scores - baseline], level=0.9) == gain_over_seeds(scores, baseline, level=0.9)


def test_difference_of_gains_is_welchs():
    one, other = [1.0, 2.0, 4.0, 4.5], [0.5, 0.0, 3.0]
    gain = gain_over_sets([one, other], [1, -1])
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (gain.low, gain.high) == pytest.approx((expected.low, expected.high))


def test_constant_scores_have_an_interval_without_width():
    gain = gain_over_sets([[1.0, 1.0], [2.0, 2.0]])
    assert (gain.mean, gain.low, gain.high) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("differences", [[], [[1.0, 2.0], [1.0]], [[[1.0, 2.0]]]])
def test_data_set_with_one_seed_is_rejected(differences):
    with refused("gain", "sets", [np.size(each) for each in differences]):
        gain_over_sets(differences)
