"""Claims of the paper: a sentence, the figures that test it, and how they combine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from scipy.stats import rankdata, wilcoxon

from joao.core.pair_table import PairTable
from joao.evaluation.statistics import Estimate
from joao.evaluation.tables import with_interval
from joao.report import scores
from repro.findings.evidence import Signs, Table
from repro.findings.verdicts import UNDECIDED, Combine, Test, above, all_of, not_worse
from repro.intervals import estimate_difference, estimate_mean, estimate_over_sets


@dataclass(frozen=True)
class Member:
    """A figure that tests a claim, or a part of it.

    Attributes:
        name: what it is about, such as a data set or a rival.
        show: the figure as text, with an interval that misses the truth with the given probability.
        test: its p-values; None for a figure that is shown and not counted.
        paper: the paper's figure.
        basis: data sets and further facts.
    """

    name: str
    show: Callable[[float], str]
    test: Test | None
    paper: str = ""
    basis: str = ""


@dataclass(frozen=True)
class Figures:
    """The figures of a claim and how they make one test.

    Attributes:
        members: a claim without any is not tested.
        combine: how the tests of the members make one.
        ways: number of members that share the chance of an error, for "some".
        beside: figures that are shown and not counted.
    """

    members: Sequence[Member]
    combine: Combine = all_of
    ways: int = 1
    beside: Sequence[Member] = ()


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        number: as in the paper; letters where the paper has no number.
        title: a short form of the sentence.
        place: section and table or figure.
        sentence: as printed in the paper.
        rule: what is tested and when it holds.
    """

    number: str
    title: str
    place: str
    sentence: str
    rule: str
    figures: Figures

    @property
    def test(self) -> Test | None:
        tests = [each.test for each in self.figures.members if each.test is not None]
        return self.figures.combine(tests) if tests else None


Tester = Callable[[Estimate], Test]


def over_sets(name: str, table: Table, signs: Signs, tester: Tester = above) -> list[Member]:
    """A signed sum of scores, with the data set as unit. Fewer than three sets decide nothing; none gives no member."""
    gains = table.by_set(signs)
    if not gains:
        return []
    values, of_paper = list(gains.values()), table.paper_mean(signs)
    ahead = f"{len(values)} set{'s' if len(values) > 1 else ''}, above 0 on {sum(value > 0 for value in values)}"
    paper = "" if of_paper is None else f"{of_paper:+.2f}"
    if len(values) < 3:
        return [Member(name, lambda chance: f"{np.mean(values):+.2f}", UNDECIDED, paper, ahead)]
    signed_rank = float(wilcoxon(values, method="exact").pvalue) if all(values) else float("nan")
    basis = f"{ahead}; Wilcoxon p = {signed_rank:.3f}"
    return [Member(name, *_shown(estimate_over_sets(values), tester), paper, basis)]


def on_columns(table: Table, signs: Signs, prefix: str = "") -> list[Member]:
    """A signed sum of scores on every column that has all methods, each with its interval over seeds and folds."""
    members = []
    for column in table.scores:
        if (estimate := table.estimate(column, signs)) is not None:
            found = table.differences(column, signs)
            assert found is not None  # there is an estimate
            of_paper = table.paper.get(column, {})
            known = set(signs) <= set(of_paper)
            paper = f"{sum(sign * of_paper[name] for name, sign in signs.items()):+.2f}" if known else ""
            members.append(Member(f"{prefix}{column}", *_shown(estimate, above), paper, f"{len(found)} seeds"))
    return members


Drawn = Mapping[str, Sequence[PairTable]]
Share = Callable[[PairTable], float]


def on_drawn(
    drawn: Drawn, sets: Sequence[str], share: Share, null: float, *, most: bool = False, against: float | None = None
) -> list[Member]:
    """A share of the draws on each of the sets, in percent, above ``null``, or below it (``most``)."""
    members = []
    for dataset in sets:
        values = np.array([share(table) for table in drawn.get(dataset, ())])
        if len(values) > 1:
            found = estimate_mean(values)
            turned = Estimate(-found.mean, found.variance, found.freedom) if most else found
            limits = [None if each is None else -each if most else each for each in (null, against)]
            test = above(turned, limits[0] or 0.0, against=limits[1])
            members.append(Member(dataset, _percent(found), test, "no numbers", f"{len(values)} seeds"))
    return members


def between_sets(
    drawn: Drawn, sets: Sequence[str], others: Sequence[str], share: Share, named: Sequence[str] = ()
) -> list[Member]:
    """A share of the draws on some data sets less that on others, with the data set as unit (Welch).

    The basis says how many of the ``named`` sets are above all ``named`` others.
    """
    means = _means(drawn, share)
    ours, theirs = ([means[name] for name in names if name in means] for names in (sets, others))
    if min(len(ours), len(theirs)) < 2:
        return []
    found = estimate_difference(ours, theirs)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in means.items() if name in (*sets, *others))
    basis = f"{len(ours)} and {len(theirs)} sets: {shown}"
    first, second = ([name for name in names if name in named and name in means] for names in (sets, others))
    if first and second:
        ahead = sum(means[name] > max(means[other] for other in second) for name in first)
        basis += f". In the figure: {' and '.join(first)}, of which {ahead} are above both {' and '.join(second)}"
    return [Member("difference", *_shown(found, above), "no numbers", basis)]


def with_order(drawn: Drawn, order: Mapping[str, float], share: Share) -> list[Member]:
    """Spearman's correlation over data sets between a share of the draws and another figure of the set.

    The p-value is exact: the share of all orders of the sets with at least this correlation on either side.
    """
    means = {name: value for name, value in _means(drawn, share).items() if name in order}
    if len(means) < 3:
        return []
    first, second = (rankdata(each) for each in ([order[name] for name in means], list(means.values())))
    centred = [each - each.mean() for each in (first, second)]
    scale = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    found = np.array([centred[0] @ np.array(each) for each in permutations(centred[1])]) / scale
    value = float(centred[0] @ centred[1]) / scale
    p = float((np.abs(found) >= abs(value) - 1e-12).mean())
    test = Test(p if value > 0 else 1.0, p if value < 0 else 1.0)
    shown = ", ".join(f"{name} {each:.1f}" for name, each in means.items())
    return [
        Member("rank correlation", lambda chance: f"{value:+.2f}", test, "no numbers", f"{len(means)} sets: {shown}")
    ]


def over_values(name: str, values: Mapping[str, float]) -> list[Member]:
    """The mean of one figure for each data set, above 0; fewer than three sets decide nothing."""
    if not values:
        return []
    basis = ", ".join(f"{each} {value:+.2f}" for each, value in values.items())
    if len(values) < 3:
        shown = float(np.mean(list(values.values())))
        return [Member(name, lambda chance: f"{shown:+.2f}", UNDECIDED, "no numbers", f"{len(values)} sets: {basis}")]
    found = estimate_over_sets(list(values.values()))
    return [Member(name, *_shown(found, above), "no numbers", f"{len(values)} sets: {basis}")]


def uncounted(members: Sequence[Member], prefix: str = "") -> list[Member]:
    """Show members beside a claim; the intervals have 95 %."""
    return [
        Member(f"{prefix}{each.name}", lambda chance, each=each: each.show(0.05), None, each.paper, each.basis)  # type: ignore[misc]
        for each in members
    ]


def _means(drawn: Drawn, share: Share) -> dict[str, float]:
    return {name: float(np.mean([share(each) for each in tables])) for name, tables in drawn.items()}


def _shown(estimate: Estimate, tester: Tester) -> tuple[Callable[[float], str], Test]:
    # A one-sided test of level a belongs to the interval of level 1 - 2 a.
    sides = 2 if tester is not_worse else 1
    return lambda chance: with_interval(estimate.interval(1 - sides * chance)), tester(estimate)


def _percent(estimate: Estimate) -> Callable[[float], str]:
    def show(chance: float) -> str:
        gain = estimate.interval(1 - chance)
        return f"{gain.mean:.2f} % ({gain.low:.2f} to {gain.high:.2f})"

    return show


def containing(name: str) -> Share:
    """The share of pairs that contain an augmentation, in percent."""
    return lambda table: (
        100
        * sum(table[first, second] for first, second in product(table.names, table.names) if name in (first, second))
    )


def views_of(*names: str) -> Share:
    """The share of views that the augmentations make, in percent."""
    return lambda table: 100 * sum(table.by_augmentation()[name] for name in names)


def pair_share(*pair: str) -> Share:
    """The share of one pair, in percent."""
    first, second = pair
    return lambda table: 100 * table[first, second]


def different(table: PairTable) -> float:
    """The share of pairs of two different augmentations, in percent."""
    return 100 * float(1 - np.trace(table.values))


def effective_pairs(table: PairTable) -> float:
    """The exponential of the entropy of the draws: K^2 for uniform pairs, 1 for a single one."""
    return scores.effective_pairs(table.values)
