"""Tests of claims, how they combine, and the verdicts, corrected for the number of claims (Holm)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from joao.evaluation.statistics import Estimate
from repro.intervals import holm, holm_levels, p_above, p_value

HOLDS, CONTRADICTED, INCONCLUSIVE, NOT_TESTED = "holds", "contradicted", "inconclusive", "not tested"
MARGIN = 1.0  # points; "comparable" is at most this much worse
CHANCE = 0.05


@dataclass(frozen=True)
class Test:
    """The p-values of a claim: for rejecting that it is wrong (``p_for``), and that it is right (``p_against``).

    ``Test(1, 1)`` decides nothing, for example because there are fewer than three data sets.
    """

    __test__ = False  # not a class of tests for pytest

    p_for: float
    p_against: float

    @property
    def p(self) -> float:
        return min(self.p_for, self.p_against)


UNDECIDED = Test(1.0, 1.0)


def above(estimate: Estimate, null: float = 0.0, *, against: float | None = None) -> Test:
    """Claim that the truth is above ``null``; a truth below ``against`` contradicts it. Both p-values are two-sided."""
    against = null if against is None else against
    return Test(
        p_value(estimate, null) if estimate.mean > null else 1.0,
        p_value(estimate, against) if estimate.mean < against else 1.0,
    )


def not_worse(estimate: Estimate) -> Test:
    """Claim that the truth is not below -:data:`MARGIN` (one-sided); a truth below 0 contradicts it (two-sided)."""
    return Test(p_above(estimate, -MARGIN), p_value(estimate) if estimate.mean < 0 else 1.0)


def all_of(tests: Sequence[Test]) -> Test:
    """Claim that all members hold (intersection-union). One that is contradicted, by Bonferroni, contradicts it."""
    return Test(max(each.p_for for each in tests), min(1.0, len(tests) * min(each.p_against for each in tests)))


def some_of(tests: Sequence[Test]) -> Test:
    """Claim that at least one member holds, by Bonferroni. It is contradicted if all of them are."""
    return Test(min(1.0, len(tests) * min(each.p_for for each in tests)), max(each.p_against for each in tests))


def agreed(tests: Sequence[Test]) -> Test:
    """One claim tested in several ways, which must agree."""
    return Test(max(each.p_for for each in tests), max(each.p_against for each in tests))


Combine = Callable[[Sequence[Test]], Test]


@dataclass(frozen=True)
class Verdict:
    """The verdict of a claim, its corrected p-value and the level of the interval that agrees with it."""

    word: str
    p: float | None = None
    adjusted: float | None = None
    level: float = 1 - CHANCE


def judge(tests: Sequence[Test | None]) -> list[Verdict]:
    """Judge all claims of a page together with Holm's method at :data:`CHANCE`. None: not tested, not counted."""
    counted = [each for each in tests if each is not None]
    p_values = [each.p for each in counted]
    verdicts = iter(
        [_verdict(*each) for each in zip(counted, holm(p_values), holm_levels(p_values, CHANCE), strict=True)]
    )
    return [Verdict(NOT_TESTED) if each is None else next(verdicts) for each in tests]


def _verdict(test: Test, adjusted: float, level: float) -> Verdict:
    word = INCONCLUSIVE
    if adjusted <= CHANCE:
        # Both may be significant: a little worse, by less than the margin. That is worse.
        word = CONTRADICTED if test.p_against <= 1 - level + 1e-12 else HOLDS
    return Verdict(word, test.p, adjusted, level)
