"""The rules by which a claim of the paper holds here, or does not, or cannot be told."""

from __future__ import annotations

import pytest

from joao.evaluation.statistics import Gain
from repro.findings.evidence import Table
from repro.findings.verdicts import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    PARTLY,
    Contrast,
    ahead_somewhere,
    as_well,
    better,
    contrast,
    correlated,
    favoured,
    gains_on_sets,
    overall,
    rank_lead,
    share_gains,
)
from repro.statistics import TableCorrelation, gain_over_seeds


def of(low, high, paper=None, **facts):
    return Contrast(Gain((low + high) / 2, low, high), paper, **facts)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (of(0.1, 2), HOLDS),
        (of(0.1, 0.2, paper=5.0), HOLDS),  # less than the paper's, and yet better
        (of(-0.1, 2, paper=1.0), INCONCLUSIVE),
        (of(-0.1, 0.9, paper=1.0), FAILS),
        (of(-0.1, 0.9), INCONCLUSIVE),  # the paper prints no figure
        (of(-0.1, 0.9, paper=-2.0), INCONCLUSIVE),
        (of(-2, -0.1), FAILS),
        (of(-2, -0.1, paper=-3.0), FAILS),
        (of(0.9, 2, one_pretraining=True), INCONCLUSIVE),
        (of(1.1, 2, one_pretraining=True), HOLDS),
        (of(-2, -1.1, one_pretraining=True), FAILS),
        (of(3, 4, stands_in=True), INCONCLUSIVE),
        (Contrast(None, 1.0), INCONCLUSIVE),
    ],
)
def test_better(found, verdict):
    assert better(found) == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (of(-0.9, 0.1), HOLDS),
        (of(0.5, 3), HOLDS),
        (of(-1.1, 0.1), INCONCLUSIVE),
        (of(-0.9, -0.1), FAILS),  # a little worse is worse
        (of(-3, -2), FAILS),
        (of(0.5, 3, stands_in=True), INCONCLUSIVE),
        (Contrast(None, None), INCONCLUSIVE),
    ],
)
def test_as_well(found, verdict):
    assert as_well(found) == verdict


def test_favoured_asks_for_more_than_the_uniform_law_and_than_elsewhere():
    above, across, below = Gain(2, 1, 3), Gain(0, -1, 1), Gain(-2, -3, -1)
    assert favoured(above, above) == HOLDS
    assert favoured(above, below) == favoured(below, above) == favoured(across, below) == FAILS
    assert favoured(above, across) == favoured(across, above) == favoured(above, None) == INCONCLUSIVE


def test_correlated_asks_for_every_set():
    clear, weak, against = TableCorrelation(0.8, 0.01), TableCorrelation(0.2, 0.3), TableCorrelation(-0.3, 0.01)
    assert correlated([clear, clear]) == HOLDS
    assert correlated([clear, weak]) == correlated([clear, against]) == correlated([]) == INCONCLUSIVE
    assert correlated([weak, against]) == FAILS


def test_ahead_somewhere_asks_for_one_set():
    assert ahead_somewhere([Gain(-2, -3, -1), Gain(2, 1, 3)]) == HOLDS
    assert ahead_somewhere([Gain(-2, -3, -1), Gain(0, -1, 1)]) == ahead_somewhere([]) == INCONCLUSIVE
    assert ahead_somewhere([Gain(-2, -3, -1), Gain(-2, -3, -1)]) == FAILS


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, FAILS, INCONCLUSIVE], PARTLY),
        ([FAILS, INCONCLUSIVE], FAILS),
        ([INCONCLUSIVE, INCONCLUSIVE], INCONCLUSIVE),
        ([], INCONCLUSIVE),
    ],
)
def test_overall(parts, verdict):
    assert overall(parts) == verdict


PAPER = {"a": {"one": 80.0, "two": 79.0}, "b": {"one": 60.0, "two": 63.0}, "c": {"one": 50.0}}


def test_a_contrast_by_hand():
    scores = {
        "a": {"one": {0: 70.0, 1: 74.0, 2: 0.0}, "two": {0: 69.0, 1: 71.0}},  # 1 and 3; seed 2 has no partner
        "b": {"one": {0: 50.0, 1: 50.0}, "two": {0: 52.0, 1: 52.0}},  # -2 and -2
        "c": {"one": {0: 90.0, 1: 90.0}, "two": {0: 10.0}},  # one seed of both: left out
        "d": {"one": {0: 90.0, 1: 90.0}, "two": {0: 10.0, 1: 10.0}},  # not in the paper: left out
    }
    found = contrast(Table(scores, PAPER), {"one": 1, "two": -1})
    assert found.gain.mean == pytest.approx(0)
    # Half the difference on a, with the variance of a alone: t with one degree of freedom.
    assert found.gain.high == pytest.approx(12.7062047 * 0.5, rel=1e-6)
    assert found.paper == pytest.approx((1 - 3) / 2)
    assert (found.num_sets, found.seeds, found.num_ahead, found.stands_in) == (2, (2, 2), 1, False)
    turned = contrast(Table(scores, PAPER), {"two": 1, "one": -1})
    assert (turned.gain.low, turned.paper) == (-found.gain.high, -found.paper)


def test_sets_that_the_paper_has_not_stand_in_where_there_are_no_others():
    scores = {"d": {"one": {0: 90.0, 1: 91.0}, "two": {0: 10.0, 1: 10.0}}}
    found = contrast(Table(scores, PAPER, one_pretraining=True), {"one": 1, "two": -1})
    assert (found.stands_in, found.num_sets, found.gain.mean, found.paper) == (True, 1, 80.5, -1)
    assert found.judged is None
    nothing = contrast(Table({}, PAPER), {"one": 1, "two": -1})
    assert (nothing.gain, nothing.num_sets, better(nothing)) == (None, 0, INCONCLUSIVE)


def test_a_lead_in_ranks_by_hand():
    ranks = {"one": 1.5, "two": 2.0, "three": 2.5}
    scores = {
        "a": {"one": {0: 9.0, 1: 9.0}, "two": {0: 8.0, 1: 8.0}, "three": {0: 7.0, 1: 7.0}},
        "b": {"one": {0: 9.0, 1: 8.0}, "two": {0: 8.0, 1: 9.0}, "unranked": {0: 99.0, 1: 99.0}},
    }
    found = rank_lead(Table(scores, {}, ranks), "one", ["two", "three"])
    # Seed 0: one 1 and 1, two 2 and 2; seed 1: one 1 and 2, two 2 and 1; three is third on a alone.
    assert (found.rival, found.own, found.best) == ("two", 1.25, 1.75)
    assert found.lead.gain == gain_over_seeds([2.0, 1.5], [1.0, 1.5])
    assert (found.paper_own, found.paper_best, found.lead.paper) == (1.5, 2.0, 0.5)
    assert (found.lead.num_sets, found.lead.seeds) == (2, (2, 2))
    assert rank_lead(Table({"a": {"one": {0: 1.0}, "two": {0: 2.0}}}, {}, ranks), "one", ["two"]) is None


def test_shares_by_hand():
    def share(first):
        return {"x": first, "y": 1 - first}

    shares = {"a": [share(0.7), share(0.8)], "b": [share(0.4), share(0.4)], "c": [share(0.9)]}  # c has one seed
    over_uniform, over_others = share_gains(shares, ["x"], ["a", "c"], ["b", "absent"])
    assert over_uniform.mean == pytest.approx(100 * (0.75 - 0.5))
    assert over_others.mean == pytest.approx(100 * (0.75 - 0.4))
    assert over_uniform.high - over_uniform.mean == pytest.approx(12.7062047 * 5, rel=1e-6)
    assert share_gains(shares, ["x"], ["c"], ["b"]) == (None, None)
    assert share_gains(shares, ["x"], ["a"], ["c"])[1] is None


def test_gains_on_sets_hold_together_and_allow_for_another_pretraining():
    scores = {name: {"one": {0: 75.0, 1: 76.0}, "two": {0: 70.0, 1: 70.0}} for name in ("a", "b", "d")}
    table = Table(scores, PAPER, one_pretraining=True)
    gains = gains_on_sets(table, ["one", "absent"], "two")
    assert set(gains) == {("one", "a"), ("one", "b")}
    plain = gain_over_seeds([75.0, 76.0], [70.0, 70.0], level=0.975)
    assert (gains["one", "a"].low, gains["one", "a"].high) == pytest.approx((plain.low - 1, plain.high + 1))
