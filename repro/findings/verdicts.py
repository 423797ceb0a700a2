"""Whether a claim of the paper holds here: figures with intervals to verdicts, by stated rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joao.evaluation.statistics import Gain, TableCorrelation, average_ranks, gain_over_seeds, gain_over_sets
from repro.findings.evidence import Shares, Table

HOLDS, FAILS, INCONCLUSIVE, PARTLY = "holds", "does not hold", "cannot be told here", "holds in part"
MARGIN = 1.0  # points; less is no difference worth choosing a method for
CHANCE = 0.05


@dataclass(frozen=True)
class Contrast:
    """A sum of methods' scores with signs, such as one less another: averaged over data sets.

    Attributes:
        gain: in points (or places), with its interval over seeds; None where no set has two seeds of all methods.
        paper: the same of the paper's figures, on the same sets; None where it prints none.
        num_sets: over which it is.
        seeds: the least and the most that a set has.
        num_ahead: sets on which it is above 0.
        stands_in: whether none of the sets is in the paper's table; ``paper`` is then that of its own sets.
        one_pretraining: whether seeds share one pre-training.
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
        """The interval that verdicts look at: none for stand-ins, wider by :data:`MARGIN` with one pre-training."""
        if self.gain is None or self.stands_in:
            return None
        more = MARGIN if self.one_pretraining else 0.0
        return Gain(self.gain.mean, self.gain.low - more, self.gain.high + more, self.gain.level)


def better(contrast: Contrast) -> str:
    """Holds: the interval is above 0. Does not: it reaches 0, and the paper's figure (or 0, if higher) is above it."""
    gain = contrast.judged
    if gain is None:
        return INCONCLUSIVE
    if gain.low > 0:
        return HOLDS
    return FAILS if gain.high < max(contrast.paper or 0.0, 0.0) else INCONCLUSIVE


def as_well(contrast: Contrast) -> str:
    """Holds: the interval is above -MARGIN and not wholly below 0. Does not: it is wholly below 0."""
    gain = contrast.judged
    if gain is None:
        return INCONCLUSIVE
    if gain.high < 0:
        return FAILS
    return HOLDS if gain.low > -MARGIN else INCONCLUSIVE


def favoured(over_uniform: Gain | None, over_others: Gain | None) -> str:
    """Holds: both intervals are above 0. Does not: one is wholly below."""
    if over_uniform is None or over_others is None:
        return INCONCLUSIVE
    if min(over_uniform.high, over_others.high) < 0:
        return FAILS
    return HOLDS if min(over_uniform.low, over_others.low) > 0 else INCONCLUSIVE


def correlated(found: Sequence[TableCorrelation]) -> str:
    """Holds: above 0 with p of 0.05 at most on every set. Does not: the mean is not above 0."""
    if not found:
        return INCONCLUSIVE
    if sum(each.value for each in found) <= 0:
        return FAILS
    return HOLDS if all(each.value > 0 and each.p_value <= CHANCE for each in found) else INCONCLUSIVE


def ahead_somewhere(gains: Sequence[Gain]) -> str:
    """Holds: one of the intervals is above 0. Does not: all are wholly below."""
    if any(gain.low > 0 for gain in gains):
        return HOLDS
    return FAILS if gains and all(gain.high < 0 for gain in gains) else INCONCLUSIVE


def overall(verdicts: Sequence[str]) -> str:
    """Of several: holds if all do, in part if some do, does not if none does and one does not.

    >>> overall(["holds", "cannot be told here"])
    'holds in part'
    >>> overall(["does not hold", "cannot be told here"])
    'does not hold'
    """
    if HOLDS in verdicts:
        return HOLDS if set(verdicts) == {HOLDS} else PARTLY
    return FAILS if FAILS in verdicts else INCONCLUSIVE


def contrast(table: Table, signs: Mapping[str, int]) -> Contrast:
    """The sum of methods' scores, each with its sign, by seed; sets without two seeds of all are left out."""
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
    """The mean over the columns for which the paper prints all methods."""
    found = [
        sum(sign * table.paper[column][method] for method, sign in signs.items())
        for column in columns
        if set(signs) <= set(table.paper[column])
    ]
    return sum(found) / len(found) if found else None


@dataclass(frozen=True)
class Ranks:
    """A method's average rank beside that of the best of its rivals; the mean over seeds of each seed's rank.

    Attributes:
        rival: the best of them here.
        own, best: the average ranks.
        paper_own, paper_best: the paper's, the best of its own.
        lead: places by which the method is ahead.
    """

    rival: str
    own: float
    best: float
    paper_own: float
    paper_best: float
    lead: Contrast


def rank_lead(table: Table, method: str, rivals: Sequence[str]) -> Ranks | None:
    """By each seed's scores, over the methods whose rank the paper prints; None without two seeds that rank both."""
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
    """By how many percent of the views ``names`` make more on some sets than under the uniform law, and than on others.

    Args:
        shares: by data set, of each seed the share of each augmentation.
        names: augmentations, whose shares are added.
        favouring, others: data sets; those with fewer than two seeds are left out.
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
    """By method and column, the gain over a baseline, with intervals that all hold together with probability 0.95.

    Each is as wide as Bonferroni asks for, and wider by :data:`MARGIN` on both sides with one pre-training.
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
