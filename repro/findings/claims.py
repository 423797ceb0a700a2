"""Claims of the paper: its figure, ours and a verdict, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from joao.evaluation.tables import with_interval
from repro.findings.evidence import Shares, Table
from repro.findings.verdicts import (
    Contrast,
    ahead_somewhere,
    better,
    contrast,
    correlated,
    favoured,
    gains_on_sets,
    rank_lead,
    share_gains,
)
from repro.protocols.semi_supervised.pairs import Agreement
from repro.tables.learned import FIGURE_3
from repro.tables.paper import ROWS


@dataclass(frozen=True)
class Claim:
    """A part of a finding.

    Attributes:
        text: what is claimed.
        paper, here: the paper's figure and ours.
        basis: data sets and seeds of our figure.
        verdict: whether it holds.
        extra: whether the paper does not make this claim, so that it does not count for the finding.
    """

    text: str
    paper: str
    here: str
    basis: str
    verdict: str
    extra: bool = False


Rule = Callable[[Contrast], str]


def difference(text: str, table: Table, signs: Mapping[str, int], rule: Rule, unit: str = "set") -> Claim:
    """Claim that a signed sum of scores is above 0, or not far below, depending on ``rule``."""
    found = contrast(table, signs)
    paper = "" if found.paper is None else f"{found.paper:+.2f}"
    ahead = f", above 0 on {found.num_ahead}" if found.num_sets > 1 else ""
    stands_in = ", none of the paper's" if found.num_sets and found.stands_in else ""
    basis = _basis(found.num_sets, found.seeds, unit) + ahead + stands_in
    return Claim(text, paper, with_interval(found.gain), basis, rule(found))


def not_in_paper(claim: Claim) -> Claim:
    """Mark a claim that the paper does not make."""
    return replace(claim, text=f"{claim.text} (not in the paper)", extra=True)


def rank(text: str, table: Table, rivals: Sequence[str]) -> Claim:
    """Claim that JOAOv2 has a better average rank than the best of ``rivals``."""
    found = rank_lead(table, "joaov2", rivals)
    if found is None:
        return Claim(text, "", "", _basis(0, (0, 0)), better(Contrast(None, None)))
    lead, sets = found.lead, sum(found.rival in scores for scores in table.scores.values())
    return Claim(
        text,
        f"{lead.paper:+.1f} ({found.paper_own:.1f} to {found.paper_best:.1f})",
        f"{with_interval(lead.gain)}, {found.own:.1f} to {found.best:.1f} of {ROWS[found.rival]}",
        f"{_basis(lead.num_sets, lead.seeds)}; {ROWS[found.rival]} on {sets}",
        better(lead),
    )


def choice(text: str, shares: Shares, names: Sequence[str], sets: Sequence[str]) -> Claim:
    """Claim that JOAO prefers the named augmentations on some of the data sets of Figure 3."""
    others = [dataset for dataset in FIGURE_3 if dataset not in sets]
    over_uniform, over_others = share_gains(shares, names, sets, others)
    figures = f"over uniform {with_interval(over_uniform)}, over other sets {with_interval(over_others)}"
    seeds = [len(shares[dataset]) for dataset in FIGURE_3 if dataset in shares]
    verdict = favoured(over_uniform, over_others)
    return Claim(text, "no numbers", figures if over_others else "", _basis(len(seeds), _extent(seeds)), verdict)


def agreement(text: str, found: Mapping[str, Agreement]) -> Claim:
    """Claim that JOAO draws pairs more often that help more on their own."""
    ranks = {name: each.correlation for name, each in found.items()}
    here = ", ".join(f"{name} {each.value:+.2f} (p = {each.p_value:.2f})" for name, each in ranks.items())
    seeds = [each.num_seeds for each in found.values()]
    return Claim(text, "no numbers", here, _basis(len(seeds), _extent(seeds)), correlated(list(ranks.values())))


def somewhere(text: str, table: Table, methods: Sequence[str], baseline: str) -> Claim:
    """Claim that one of ``methods`` is better than ``baseline`` on some data set."""
    gains = gains_on_sets(table, methods, baseline)
    if not gains:
        return Claim(text, "", "", _basis(0, (0, 0)), ahead_somewhere([]))
    sets = list(dict.fromkeys(column for _, column in gains))
    ahead = {column for (_, column), gain in gains.items() if gain.low > 0}
    of_paper = [table.paper[column] for column in sets]
    in_paper = sum(max(figures[name] for name in methods) > figures[baseline] for figures in of_paper)
    method, column = max(gains, key=lambda key: gains[key].low)
    clearest = f"{ROWS[method]} on {column}, {with_interval(gains[method, column])}"
    return Claim(
        text,
        f"on {in_paper} of {len(sets)}",
        f"on {len(ahead)} of {len(sets)}; clearest: {clearest}",
        _basis(len(sets), _extent([len(table.scores[column][baseline]) for column in sets])),
        ahead_somewhere(list(gains.values())),
    )


def _extent(seeds: Sequence[int]) -> tuple[int, int]:
    return min(seeds, default=0), max(seeds, default=0)


def _basis(number: int, seeds: tuple[int, int], unit: str = "set") -> str:
    """
    >>> _basis(1, (3, 5))
    '1 set, 3 to 5 seeds'
    """
    if not number:
        return "no records"
    least, most = seeds
    return f"{number} {unit}{'s' if number > 1 else ''}, {least if least == most else f'{least} to {most}'} seeds"
