from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from joao.evaluation.statistics import Estimate
from repro.intervals import (
    Parts,
    estimate_difference,
    estimate_gain,
    estimate_mean,
    estimate_over_sets,
    holm,
    holm_levels,
    p_above,
    p_value,
)
from tests.messages import refused


def test_runs_of_a_pretraining_count_by_their_mean_alone():
    values = np.random.default_rng(1).normal(size=(3, 10))
    of_runs, of_means = estimate_mean(values, parts="runs"), estimate_mean(values.mean(axis=1))
    assert (of_runs.mean, of_runs.variance) == (pytest.approx(of_means.mean), pytest.approx(of_means.variance))
    assert of_runs.freedom == of_means.freedom == 2
    assert estimate_mean(values - values.mean(axis=1)[:, None], parts="folds").variance > 0


def test_gain_is_the_mean_of_paired_differences():
    ours, theirs = np.random.default_rng(2).random((2, 5, 10))
    assert estimate_gain(ours, theirs) == estimate_mean(ours - theirs)
    forth, back = estimate_gain(ours, theirs).interval(), estimate_gain(theirs, ours).interval()
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))


def test_difference_of_single_scores_is_welchs():
    rng = np.random.default_rng(3)
    ours, theirs = rng.normal(size=3), rng.normal(1, 3, size=10)
    welch = stats.ttest_ind(ours, theirs, equal_var=False)
    found = estimate_difference(ours, theirs)
    assert p_value(found) == pytest.approx(welch.pvalue)
    interval, expected = found.interval(), welch.confidence_interval()
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_data_sets_are_the_unit_of_a_gain_over_sets():
    gains = np.random.default_rng(4).normal(1, 2, size=8)
    expected = stats.ttest_1samp(gains, 0)
    found = estimate_over_sets(gains)
    assert p_value(found) == pytest.approx(expected.pvalue)
    assert found.interval().low == pytest.approx(expected.confidence_interval().low)


def test_p_value_belongs_to_the_interval():
    found = Estimate(mean=1.5, variance=0.7, freedom=6.3)
    assert found.interval(1 - p_value(found)).low == pytest.approx(0, abs=1e-9)
    assert p_value(found, 4.0) == pytest.approx(2 * (1 - p_above(found, 4.0)))
    assert p_above(found) == pytest.approx(p_value(found) / 2)


@pytest.mark.parametrize(("mean", "p"), [(0.0, 1.0), (0.25, 0.0), (-0.25, 0.0)])
def test_equal_differences_have_an_interval_without_width(mean, p):
    found = estimate_gain(np.full((4, 10), 0.5 + mean), np.full((4, 10), 0.5))
    assert (found.interval().low, found.interval().high, p_value(found)) == (mean, mean, p)


def test_one_pretraining_is_refused():
    with refused("two seeds", (1, 10)):
        estimate_mean(np.zeros((1, 10)))
    with refused((2, 10), (2, 9), "estimate_difference"):
        estimate_gain(np.zeros((2, 10)), np.zeros((2, 9)))
    with refused((1,)):
        estimate_over_sets([1.0])


def naive_holm(p_values: list[float], chance: float) -> set[int]:
    """Step down: reject the smallest as long as it is small enough for those that are left."""
    rejected: set[int] = set()
    for claim in sorted(range(len(p_values)), key=lambda number: p_values[number]):
        if p_values[claim] > chance / (len(p_values) - len(rejected)):
            break
        rejected.add(claim)
    return rejected


@pytest.mark.parametrize("seed", range(20))
def test_holm_rejects_what_the_step_down_procedure_does(seed):
    rng = np.random.default_rng(seed)
    p_values = list(rng.random(rng.integers(1, 12)) ** 4)
    rejected = naive_holm(p_values, 0.05)
    assert {number for number, each in enumerate(holm(p_values)) if each <= 0.05} == rejected
    levels = holm_levels(p_values)
    assert {number for number, each in enumerate(p_values) if each <= 1 - levels[number] + 1e-15} == rejected


def test_holm_needs_probabilities():
    assert holm([]) == holm_levels([]) == []
    with refused(1.5):
        holm([0.5, 1.5])


REPLICATES = 1500
ERROR = math.sqrt(0.05 * 0.95 / REPLICATES)


def simulated_misses(*, seed: float, graph: float, noise: float, parts: Parts = "folds") -> float:
    """Share of 95 % intervals without 0, the truth, for effects of seeds and graphs with known deviations.

    Each of five seeds has its own partition of the same 200 graphs into ten folds, as in the protocols. The mean of all
    has the variance seed^2 / 5 + graph^2 / 200 + noise^2 / 1000.
    """
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(REPLICATES):
        graphs = rng.normal(0, graph, 200)
        values = [
            (graphs + rng.normal(0, noise, 200))[rng.permutation(200)].reshape(10, 20).mean(axis=1)
            + rng.normal(0, seed)
            for _ in range(5)
        ]
        interval = estimate_mean(values, parts=parts).interval()
        missed += interval.low > 0 or interval.high < 0
    return missed / REPLICATES


def test_graph_effect_alone_is_covered_exactly():
    # No seed averages it out: the variance is that of a mean of 200 graphs.
    assert simulated_misses(seed=0, graph=1, noise=0) == pytest.approx(0.05, abs=3 * ERROR)


def test_seed_effect_alone_is_covered_exactly():
    assert simulated_misses(seed=5, graph=0, noise=0.1) == pytest.approx(0.05, abs=3 * ERROR)


@pytest.mark.parametrize(("seed", "graph", "noise"), [(0, 1, 1), (0, 0, 1), (0.1, 1, 1), (0.5, 1, 1), (0.5, 0, 1)])
def test_interval_covers_known_variance_components(seed, graph, noise):
    assert simulated_misses(seed=seed, graph=graph, noise=noise) < 0.05 + 3 * ERROR


def test_worst_case_is_bounded():
    # Seeds and graphs matter equally and nothing else does: the true variance is twice each of the two terms.
    seed = 1 / math.sqrt(40)
    assert 0.05 + 3 * ERROR < simulated_misses(seed=seed, graph=1, noise=0) < 0.15


def test_seeds_alone_do_not_cover_a_graph_effect():
    # The reason for the second term: without it the same simulation misses far too often.
    assert simulated_misses(seed=0, graph=1, noise=1, parts="runs") > 0.2
