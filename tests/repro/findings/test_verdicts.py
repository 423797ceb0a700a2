"""Tests of claims. Oracles: closed forms, simulated truth, and Holm's step-down procedure by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from joao.evaluation.statistics import Estimate
from repro.findings.verdicts import (
    CONTRADICTED,
    HOLDS,
    INCONCLUSIVE,
    NOT_TESTED,
    UNDECIDED,
    Test,
    above,
    agreed,
    all_of,
    judge,
    not_worse,
    some_of,
)


def estimate(mean, error=1.0, freedom=7):
    return Estimate(mean, error**2, freedom)


@pytest.mark.parametrize("mean", [-3.0, -0.5, 0.5, 3.0])
def test_above_is_a_t_test_on_the_side_of_the_mean(mean):
    two_sided = 2 * stats.t.sf(abs(mean), 7)
    found = above(estimate(mean))
    assert (found.p_for, found.p_against) == pytest.approx((two_sided, 1.0) if mean > 0 else (1.0, two_sided))


def test_a_claim_and_its_contradiction_may_have_different_limits():
    # between both limits neither has a chance
    assert above(estimate(2.0), 3.0, against=1.0) == UNDECIDED
    assert above(estimate(0.0), 3.0, against=1.0).p_against == pytest.approx(2 * stats.t.sf(1, 7))


def test_not_worse_allows_one_point():
    found = not_worse(estimate(-0.5, error=0.2))
    assert found.p_for == pytest.approx(stats.t.sf(0.5 / 0.2, 7))
    assert found.p_against == pytest.approx(2 * stats.t.sf(0.5 / 0.2, 7))
    assert not_worse(estimate(0.5)).p_against == 1


def test_groups():
    good, weak, bad = Test(0.001, 1.0), Test(0.2, 1.0), Test(1.0, 0.01)
    assert all_of([good, weak]) == Test(0.2, 1.0)
    assert all_of([good, bad, weak]) == Test(1.0, 0.03)
    assert some_of([good, bad]) == Test(0.002, 1.0)
    assert some_of([bad, Test(1.0, 0.02)]) == Test(1.0, 0.02)
    assert agreed([good, weak]) == Test(0.2, 1.0)
    assert agreed([good, bad]) == UNDECIDED


def test_verdicts_by_hand():
    # m = 4: 0.01 <= 0.05 / 4 and 0.012 <= 0.05 / 3; 0.04 > 0.05 / 2 stops, and so the last fails, too.
    tests = [Test(0.01, 1.0), None, Test(1.0, 0.012), Test(0.04, 1.0), Test(0.045, 1.0)]
    found = judge(tests)
    assert [each.word for each in found] == [HOLDS, NOT_TESTED, CONTRADICTED, INCONCLUSIVE, INCONCLUSIVE]
    assert [each.adjusted for each in found if each.adjusted] == pytest.approx([0.04, 0.04, 0.08, 0.08])
    assert [each.level for each in found if each.p] == pytest.approx([1 - 0.05 / 4, 1 - 0.05 / 3, 0.975, 0.975])


def test_contradiction_takes_precedence_over_support():
    (found,) = judge([Test(0.001, 0.01)])
    assert found.word == CONTRADICTED
    (found,) = judge([Test(0.001, 0.2)])
    assert found.word == HOLDS


@pytest.mark.parametrize("seed", range(10))
def test_interval_and_verdict_agree(seed):
    rng = np.random.default_rng(seed)
    estimates = [estimate(mean) for mean in rng.normal(0, 4, size=6)]
    for found, each in zip(judge([above(each) for each in estimates]), estimates, strict=True):
        interval = each.interval(found.level)
        expected = HOLDS if interval.low > 0 else CONTRADICTED if interval.high < 0 else INCONCLUSIVE
        assert found.word == expected


def test_false_verdicts_are_rare_without_true_effects():
    """Twenty claims of which none is true or false: at most 5 % of the pages have a verdict."""
    rng, pages, wrong = np.random.default_rng(0), 400, 0
    for _ in range(pages):
        gains = rng.normal(size=(20, 8))
        tests = [above(Estimate(each.mean(), each.var(ddof=1) / 8, 7)) for each in gains]
        wrong += any(found.word != INCONCLUSIVE for found in judge(tests))
    assert wrong <= 32  # 5 % of 400 is 20; more than 32 have a chance of 0.4 %
