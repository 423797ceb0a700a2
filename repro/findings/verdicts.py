"""Rules that turn figures with intervals into verdicts on the claims of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joao.evaluation.statistics import Gain
from repro.findings.evidence import Shares, Table
from repro.statistics import TableCorrelation, average_ranks, gain_over_seeds, gain_over_sets

HOLDS, FAILS, INCONCLUSIVE, PARTLY = "holds", "does not hold", "inconclusive", "holds in part"
MARGIN = 1.0  # points; smaller differences do not matter for choosing a method
CHANCE = 0.05


@dataclass(frozen=True)
class Contrast:
    """A signed sum of the scores of methods, such as the difference of two, averaged over data sets.

    Attributes:
        gain: in points (or ranks), with its interval over seeds; None if no data set has two seeds of all methods.
        paper: the same for the paper's figures on the same data sets; None if the paper has none.
        num_sets: number of data sets.
        seeds: smallest and largest number of seeds of a data set.
        num_ahead: number of data sets on which the sum is above 0.
        stands_in: whether no data set is in the paper's table; ``paper`` is then that of the paper's data sets.
        one_pretraining: whether the seeds share one pre-training.
    """

    gain: Gain | None
    paper: float | None
    num_sets: int = 0
    seeds: tuple[int, int] = (0, 0)
    num_ahead: int = 0
    stands_in: bool = False
    one_pretraining: bool = False

    @property
    def judged(self) -> Gain | None:
        """The interval for verdicts: None for stand-ins, wider by :data:`MARGIN` with a single pre-training."""
        if self.gain is None or self.stands_in:
            return None
        more = MARGIN if self.one_pretraining else 0.0
        return Gain(self.gain.mean, self.gain.low - more, self.gain.high + more, self.gain.level)


def better(contrast: Contrast) -> str:
    """Hold if the interval is above 0. Fail if it reaches 0 and lies below the paper's figure (or 0, if higher)."""
    gain = contrast.judged
    if gain is None:
        return INCONCLUSIVE
    if gain.low > 0:
        return HOLDS
    return FAILS if gain.high < max(contrast.paper or 0.0, 0.0) else INCONCLUSIVE


def as_well(contrast: Contrast) -> str:
    """Hold if the interval is above -MARGIN and not entirely below 0. Fail if it is entirely below 0."""
    gain = contrast.judged
    if gain is None:
        return INCONCLUSIVE
    if gain.high < 0:
        return FAILS
    return HOLDS if gain.low > -MARGIN else INCONCLUSIVE


def favoured(over_uniform: Gain | None, over_others: Gain | None) -> str:
    """Hold if both intervals are above 0. Fail if one is entirely below."""
    if over_uniform is None or over_others is None:
        return INCONCLUSIVE
    if min(over_uniform.high, over_others.high) < 0:
        return FAILS
    return HOLDS if min(over_uniform.low, over_others.low) > 0 else INCONCLUSIVE


def correlated(found: Sequence[TableCorrelation]) -> str:
    """Hold if the correlation is above 0 with p <= 0.05 on every data set. Fail if the mean is not above 0."""
    if not found:
        return INCONCLUSIVE
    if sum(each.value for each in found) <= 0:
        return FAILS
    return HOLDS if all(each.value > 0 and each.p_value <= CHANCE for each in found) else INCONCLUSIVE


def ahead_somewhere(gains: Sequence[Gain]) -> str:
    """Hold if one of the intervals is above 0. Fail if all are entirely below."""
    if any(gain.low > 0 for gain in gains):
        return HOLDS
    return FAILS if gains and all(gain.high < 0 for gain in gains) else INCONCLUSIVE


def overall(verdicts: Sequence[str]) -> str:
    """Combine verdicts: hold if all do, in part if some do, fail if none holds and one fails.

    >>> overall(["holds", "inconclusive"])
    'holds in part'
    >>> overall(["does not hold", "inconclusive"])
    'does not hold'
    """
    if HOLDS in verdicts:
        return HOLDS if set(verdicts) == {HOLDS} else PARTLY
    return FAILS if FAILS in verdicts else INCONCLUSIVE


def contrast(table: Table, signs: Mapping[str, int]) -> Contrast:
    """Return the signed sum of scores by seed. Data sets without two seeds of all methods are omitted."""
    differences = {}
    for column, scores in table.scores.items():
        groups = [scores.get(method, {}) for method in signs]
        seeds = sorted(set.intersection(*map(set, groups)))
        if len(seeds) > 1:
            differences[column] = [
                sum(sign * group[seed] for sign, group in zip(signs.values(), groups, strict=True)) for seed in seeds
            ]
    shared = {column: values for column, values in differences.items() if column in table.paper}
    own = shared or differences
    counts = [len(values) for values in own.values()]
    return Contrast(
        gain=gain_over_sets(list(own.values())) if own else None,
        paper=_of_paper(table, signs, list(shared) or list(table.paper)),
        num_sets=len(own),
        seeds=(min(counts, default=0), max(counts, default=0)),
        num_ahead=sum(sum(values) > 0 for values in own.values()),
        stands_in=not shared,
        one_pretraining=table.one_pretraining,
    )


def _of_paper(table: Table, signs: Mapping[str, int], columns: Sequence[str]) -> float | None:
    """Return the mean over the columns for which the paper has all methods."""
    found = [
        sum(sign * table.paper[column][method] for method, sign in signs.items())
        for column in columns
        if set(signs) <= set(table.paper[column])
    ]
    return sum(found) / len(found) if found else None


@dataclass(frozen=True)
class Ranks:
    """Average ranks of a method and of its best rival, as mean over seeds.

    Attributes:
        rival: the best rival here.
        own, best: the average ranks.
        paper_own, paper_best: the paper's, with its own best rival.
        lead: number of ranks by which the method is ahead.
    """

    rival: str
    own: float
    best: float
    paper_own: float
    paper_best: float
    lead: Contrast


def rank_lead(table: Table, method: str, rivals: Sequence[str]) -> Ranks | None:
    """Rank by the scores of each seed, among the methods that the paper ranks. None without two seeds of both."""
    by_seed: dict[int, dict[str, dict[str, float]]] = {}
    for column, scores in table.scores.items():
        for name in table.paper_ranks:
            for seed, score in scores.get(name, {}).items():
                by_seed.setdefault(seed, {}).setdefault(column, {})[name] = score
    ranks = [average_ranks(by_seed[seed]) for seed in sorted(by_seed)]
    ranked = {name: [each for each in ranks if method in each and name in each] for name in rivals}
    places = {name: sum(each[name] for each in found) / len(found) for name, found in ranked.items() if len(found) > 1}
    if not places:
        return None
    rival = min(places, key=lambda name: places[name])
    ours, theirs = ([each[name] for each in ranked[rival]] for name in (method, rival))
    paper_own, paper_best = table.paper_ranks[method], min(table.paper_ranks[name] for name in rivals)
    lead = Contrast(
        gain=gain_over_seeds(theirs, ours),
        paper=paper_best - paper_own,
        num_sets=sum(1 for scores in table.scores.values() if method in scores),
        seeds=(len(ours), len(ours)),
    )
    return Ranks(rival, sum(ours) / len(ours), places[rival], paper_own, paper_best, lead)


def share_gains(
    shares: Shares, names: Sequence[str], favouring: Sequence[str], others: Sequence[str]
) -> tuple[Gain | None, Gain | None]:
    """Return how many percent more views ``names`` make on some data sets than with uniform pairs, and than on others.

    Args:
        shares: by data set, for each seed the share of views of each augmentation.
        names: augmentations, whose shares are summed.
        favouring, others: data sets; those with fewer than two seeds are omitted.
    """
    above = {
        dataset: [100 * (sum(each[name] for name in names) - len(names) / len(each)) for each in seeds]
        for dataset, seeds in shares.items()
        if len(seeds) > 1
    }
    own, rest = ([above[dataset] for dataset in sets if dataset in above] for sets in (favouring, others))
    if not own:
        return None, None
    if not rest:
        return gain_over_sets(own), None
    weights = [1 / len(own)] * len(own) + [-1 / len(rest)] * len(rest)
    return gain_over_sets(own), gain_over_sets([*own, *rest], weights)


def gains_on_sets(table: Table, methods: Sequence[str], baseline: str) -> dict[tuple[str, str], Gain]:
    """Return the gain over a baseline by method and column, with simultaneous 95 % intervals (Bonferroni).

    With a single pre-training, each is wider by :data:`MARGIN` on both sides.
    """
    shared = {
        (method, column): sorted(set(scores.get(method, {})) & set(scores.get(baseline, {})))
        for method in methods
        for column, scores in table.scores.items()
        if column in table.paper
    }
    shared = {key: seeds for key, seeds in shared.items() if len(seeds) > 1}
    more, found = MARGIN if table.one_pretraining else 0.0, {}
    for (method, column), seeds in shared.items():
        ours, theirs = ([table.scores[column][name][seed] for seed in seeds] for name in (method, baseline))
        gain = gain_over_seeds(ours, theirs, level=1 - CHANCE / len(shared))
        found[method, column] = Gain(gain.mean, gain.low - more, gain.high + more, gain.level)
    return found
