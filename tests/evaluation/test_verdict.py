"""Whether pre-training helps. Oracles: loops over all pairs, the plain interval, and simulated truth."""

from dataclasses import astuple

import numpy as np
import pytest

from joao.evaluation.statistics import INCONCLUSIVE, NO, YES, best_over_best, make_verdict, paired_gain
from tests.messages import assert_mentions


def scores(random, number, shape=(5, 10)):
    return [0.7 + 0.05 * random.standard_normal(shape) for _ in range(number)]


def test_one_against_one_is_the_plain_interval():
    (one,), (other,) = (scores(np.random.default_rng(seed), 1) for seed in (0, 1))
    assert astuple(best_over_best([one], [other])) == pytest.approx(astuple(paired_gain(one, other)))


def test_against_loops_over_all_pairs():
    random = np.random.default_rng(2)
    methods, baselines = scores(random, 3), scores(random, 4)
    lows = [[paired_gain(one, other, level=1 - 0.05 / 3).low for other in baselines] for one in methods]
    highs = [[paired_gain(one, other, level=1 - 0.05 / 4).high for other in baselines] for one in methods]
    gain = best_over_best(methods, baselines)
    assert gain.low == max(min(row) for row in lows)
    assert gain.high == min(max(row[place] for row in highs) for place in range(4))
    assert gain.mean == pytest.approx(max(m.mean() for m in methods) - max(b.mean() for b in baselines))
    assert gain.low < gain.mean < gain.high


def test_picking_the_best_of_equals_claims_nothing_too_often():
    """Ten methods and one baseline that are all the same: the naive interval of the best finds a gain far too often."""
    random = np.random.default_rng(3)
    # One score per seed, so that the plain interval is Student's, which independent scores deserve.
    wrong, naive = 0, 0
    for _ in range(400):
        methods, (baseline,) = scores(random, 10, (50,)), scores(random, 1, (50,))
        best = max(methods, key=np.mean)
        naive += paired_gain(best, baseline).low > 0
        gain = best_over_best(methods, [baseline])
        wrong += gain.low > 0 or gain.high < 0
    assert naive > 40
    assert wrong <= 28  # 5 % of 400 is 20; more than 28 have a chance of 3 %


def test_the_three_verdicts_and_their_sentences():
    random = np.random.default_rng(4)
    noise = 0.01 * random.standard_normal((5, 10))
    base = np.full((5, 10), 0.7)
    yes = make_verdict("rings", {"joao": base + 0.1 + noise, "graphcl": base + noise}, {"wl": base, "ldp": base - 0.2})
    low, high = 100 * yes.gain.low, 100 * yes.gain.high
    mean = 100 * (0.1 + noise.mean())
    assert (yes.helps, yes.method, yes.baseline, yes.tried) == (YES, "joao", "wl", (2, 2))
    assert_mentions(yes, "rings", 2, "joao", f"{mean:.2f}", "wl", "95 %", f"{low:.2f}", f"{high:.2f}")
    assert yes.over["ldp"] == paired_gain(base + 0.1 + noise, base - 0.2)
    equal = make_verdict("rings", {"joao": base + noise - noise.mean()}, {"wl": base})  # inconclusive is not "as good"
    assert equal.helps == INCONCLUSIVE
    assert_mentions(equal, "joao", "+0.00", "wl")
    assert not {"better", "worse"} & set(str(equal).split())
    no = make_verdict("rings", {"joao": base - 0.1 + noise}, {"wl": base})
    low, high = 100 * no.gain.low, 100 * no.gain.high
    assert no.helps == NO
    lost = 10 - 100 * noise.mean()
    assert_mentions(no, "rings", "joao", f"{-lost:.2f}", "wl", "95 %", f"{high:.2f}", f"{low:.2f}")
    untold = make_verdict("rings", {"joao": base + noise - noise.mean() - 1e-4}, {"wl": base})
    assert untold.helps == INCONCLUSIVE
    low, high = 100 * untold.gain.low, 100 * untold.gain.high
    assert_mentions(untold, "rings", "joao", "-0.01", "wl", "95 %", f"{low:+.2f}", f"{high:+.2f}")
    assert not {"better", "worse"} & set(str(untold).split())


def test_verdict_needs_a_gain_over_every_baseline():
    noise = 0.05 * np.random.default_rng(5).standard_normal((5, 10))
    base = np.full((5, 10), 0.7)
    verdict = make_verdict("rings", {"joao": base + noise}, {"histogram": base - 0.2, "wl": base})
    assert verdict.over["histogram"].low > 0
    assert verdict.helps == INCONCLUSIVE


def test_nothing_to_judge():
    base = np.full((5, 10), 0.7)
    assert make_verdict("rings", {}, {"wl": base}) is None
    assert make_verdict("rings", {"joao": base}, {}) is None
