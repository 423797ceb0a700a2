"""The findings of the paper, each with what the records say of it and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from joao.evaluation.statistics import Gain
from joao.reporting.evidence import Evidence, Table
from joao.reporting.paper_figures import FIGURE_3
from joao.reporting.tables import NAMES
from joao.reporting.verdicts import (
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


@dataclass(frozen=True)
class Claim:
    """A part of a finding.

    Attributes:
        text: what is claimed.
        paper, here: the paper's figure and ours.
        basis: what ours is of.
        verdict: by the finding's rule.
    """

    text: str
    paper: str
    here: str
    basis: str
    verdict: str


@dataclass(frozen=True)
class Finding:
    """A finding of the paper.

    Attributes:
        title: in a few words.
        about: what the paper says and where, what the figures are, and the rule of the verdicts.
        claims: its parts.
    """

    title: str
    about: str
    claims: Sequence[Claim]

    @property
    def verdict(self) -> str:
        return overall([claim.verdict for claim in self.claims])


RULES = (
    "Every figure is computed from the records, and every verdict by a rule that was settled before these figures were "
    "computed. They are differences in points, averaged over data sets, with a 95 % interval over seeds: it says what "
    "other seeds would give on these sets, not what other sets would. That a method is better holds if the interval is "
    "above 0; it does not if the interval reaches 0 and the paper's own figure (or 0, if that is higher) is above it. "
    "That a method does as well holds if the interval is above -1 point and not wholly below 0; it does not if it is "
    "wholly below 0. Else it cannot be told. The paper's figures are those of the sets that ours are of. A finding holds "
    "if all its parts do, in part if some do; it does not if none does and one does not."
)


@dataclass(frozen=True)
class Findings:
    """All of them, as a section of the page of results."""

    findings: Sequence[Finding]
    title: str = "The paper's six findings: which hold here"
    left_open: Sequence[str] = ()

    def about(self) -> str:
        """How to read it."""
        return RULES

    def header(self) -> list[str]:
        """The headings of all columns."""
        return ["finding", "paper", "here (95 %)", "of", "verdict"]

    def cells(self) -> list[list[str]]:
        """A line for each finding, between ``**``, and under it one for each of its parts."""
        lines = []
        for number, finding in enumerate(self.findings, 1):
            lines.append([f"**{number}. {finding.title}**", "", "", "", f"**{finding.verdict}**"])
            lines += [
                [f"{number}{letter} {claim.text}", claim.paper, claim.here, claim.basis, claim.verdict]
                for letter, claim in zip("abcdefghijkl", finding.claims, strict=False)
            ]
        return lines

    @property
    def paragraphs(self) -> list[str]:
        """What each finding is about."""
        return [f"**{number}. {each.title}.** {each.about}" for number, each in enumerate(self.findings, 1)]


def findings_of(evidence: Evidence) -> Findings:
    """The six, in the order of the paper."""
    makers = (_choices, _by_hand, _heads, _rivals, _transfer, _large)
    return Findings([make(evidence) for make in makers])


def _choices(evidence: Evidence) -> Finding:
    claims = []
    for text, names, sets in (
        ("NodeDrop and Subgraph on molecules", ("node_drop", "subgraph"), ("NCI1", "PROTEINS")),
        ("AttrMask on dense graphs", ("attribute_mask",), ("COLLAB",)),
        ("EdgePert on social networks", ("edge_perturb",), ("COLLAB", "REDDIT-BINARY")),
    ):
        for protocol, shares in evidence.shares.items():
            others = [dataset for dataset in FIGURE_3 if dataset not in sets]
            over_uniform, over_others = share_gains(shares, names, sets, others)
            figures = f"{_interval(over_uniform)} over uniform, {_interval(over_others)} over the other sets"
            seeds = [len(shares[dataset]) for dataset in FIGURE_3 if dataset in shares]
            claims.append(
                Claim(
                    f"{text} ({protocol})",
                    "drawn",
                    figures if over_uniform else "",
                    _basis(len(seeds), (min(seeds, default=0), max(seeds, default=0))),
                    favoured(over_uniform, over_others),
                )
            )
    found = {name: each.correlation for name, each in evidence.agreements.items()}
    seeds = [each.num_seeds for each in evidence.agreements.values()]
    claims.append(
        Claim(
            "pairs that help are drawn more",
            "drawn",
            ", ".join(f"{name} {each.value:+.2f} (p = {each.p_value:.2f})" for name, each in found.items()),
            _basis(len(seeds), (min(seeds, default=0), max(seeds, default=0))),
            correlated(list(found.values())),
        )
    )
    return Finding(
        "What JOAO chooses agrees with rules of thumb",
        "The paper's Figure 3 shows by shades which pairs JOAO drew on four sets, and reads the rules that GraphCL's "
        "pools were made by out of them. Here: by how many percent of all views the named augmentations make more than "
        "under the uniform law, and more than on the other sets of the figure. It holds if both intervals are above 0, "
        "and does not if one is wholly below. The last part is the rank correlation of a pair's gain by itself, after "
        "fine-tuning with 10 % of the labels, with the share that JOAO gave it: it holds if it is above 0 with p of 0.05 "
        "at most on every set, and does not if the mean is not above 0.",
        claims,
    )


def _by_hand(evidence: Evidence) -> Finding:
    return Finding(
        "JOAO does as well as augmentations picked by hand",
        "The paper sets JOAO beside GraphCL, whose pool of augmentations is picked for each kind of data, in its "
        "unsupervised and its semi-supervised table. Here: JOAO less GraphCL, on the same folds and labels.",
        [_difference(name, table, {"joao": 1, "graphcl": -1}, as_well) for name, table in _frozen_and_few(evidence)],
    )


def _heads(evidence: Evidence) -> Finding:
    heads = {"joaov2": 1, "joao": -1}
    at_more = {"joaov2_stronger": 1, "joao_stronger": -1}
    claims = [_difference(f"{name}: JOAOv2 better", table, heads, better) for name, table in _frozen_and_few(evidence)]
    equal = {"joaov2_joao_budget": 1, "joao": -1}
    claims += [
        _difference("unsupervised, with as many epochs: JOAOv2 better", evidence.unsupervised, equal, better),
        _difference("at strength 0.25: JOAOv2 better", evidence.strength, at_more, better),
        _difference("by more than at 0.2", evidence.strength, {**at_more, "joaov2": -1, "joao": 1}, better),
        _difference("the prior helps", evidence.few_labels[10], {"joao": 1, "joao_without_prior": -1}, better),
    ]
    return Finding(
        "JOAO's parts help: a head for each augmentation, and the prior",
        "The paper's JOAOv2 is above JOAO in its tables, and in its Table 2 the more so the stronger the augmentations "
        "are; its supplement has JOAO without the prior. JOAOv2 is trained for twice as many epochs, there and here; "
        "hence the row with as many. The prior: JOAO less JOAO with gamma = 0, with 10 % of the labels; the paper's "
        "figures of that are not at hand.",
        claims,
    )


GROUPS = {
    "graph kernels": ("gl", "wl", "dgk"),
    "embeddings of nodes and graphs": ("node2vec", "sub2vec", "graph2vec"),
    "other self-supervised learning": ("mvgrl", "infograph"),
}


def _rivals(evidence: Evidence) -> Finding:
    claims = [_rank(name, evidence.unsupervised, group) for name, group in GROUPS.items()]
    others = ("gae", "infomax", "context_pred")
    claims += [
        _rank(f"GAE, Infomax, ContextPred, {rate} % of labels", table, others)
        for rate, table in evidence.few_labels.items()
    ]
    return Finding(
        "JOAOv2 is better than other methods by average rank",
        "The paper prints average ranks over the sets of its unsupervised and semi-supervised tables. Here: the average "
        "rank of the best of the others less JOAOv2's, so that more is better, each the mean over seeds of that seed's "
        "rank among the rows of the paper's table. As in the paper, a row is ranked on the sets it has scores on.",
        claims,
    )


DOMAIN = ("attr_masking", "context_pred")


def _transfer(evidence: Evidence) -> Finding:
    table = evidence.transfer
    gains = gains_on_sets(table, DOMAIN, "joaov2")
    sets = list(dict.fromkeys(column for _, column in gains))
    ahead = [column for column in sets if any(gains[key].low > 0 for key in gains if key[1] == column)]
    in_paper = [column for column in sets if max(table.paper[column][name] for name in DOMAIN) > _v2(table, column)]
    best = max(gains, key=lambda key: gains[key].low, default=None)
    seeds = {len(scores["joaov2"]) for scores in table.scores.values() if "joaov2" in scores}
    nearest = "" if best is None else f"; clearest: {NAMES[best[0]]} on {best[1]}, {_interval(gains[best])}"
    return Finding(
        "In transfer, knowledge of the domain stays ahead somewhere; JOAOv2 is better than GraphCL",
        "The paper fine-tunes on eight sets of molecules and one of proteins, which was not run here. A row has one "
        "pre-training, there and here, and its seeds are those of fine-tuning: they do not say what another pre-training "
        "would give. To allow for that, verdicts take every interval as a point wider on both sides. "
        "AttrMasking and ContextPred, which were made for molecules, stay ahead if one of them is better than "
        "JOAOv2 on one set at least, by intervals that hold for all sets together and, as shown, are a point wider; they "
        "do not if all these intervals are wholly below 0.",
        [
            Claim(
                "AttrMasking or ContextPred ahead of JOAOv2 on some sets",
                f"on {len(in_paper)} of {len(sets)}" if sets else "",
                f"on {len(ahead)} of {len(sets)}{nearest}" if sets else "",
                _basis(len(sets), (min(seeds, default=0), max(seeds, default=0))),
                ahead_somewhere(list(gains.values())),
            ),
            _difference("JOAOv2 better than GraphCL", table, {"joaov2": 1, "graphcl": -1}, better),
        ],
    )


def _v2(table: Table, column: str) -> float:
    return table.paper[column]["joaov2"]


def _large(evidence: Evidence) -> Finding:
    claims = [
        _difference(f"{NAMES[method]} better than {name}", evidence.ogb, {method: 1, baseline: -1}, better, "column")
        for method in ("joao", "joaov2")
        for baseline, name in (("none", "no pre-training"), ("graphcl", "GraphCL"))
    ]
    return Finding(
        "It works at large scale",
        "The paper fine-tunes with 1 % and 10 % of the labels of ogbg-ppa and ogbg-code, whose graphs could not be had "
        "here (deviation 45). Where neither has records, the figure here is of small sets that stand in, and cannot tell: "
        "the paper's is then of its own two. A column is a set at a label rate. Seeds share a pre-training, as in transfer.",
        claims,
    )


def _frozen_and_few(evidence: Evidence) -> list[tuple[str, Table]]:
    few = [(f"{rate} % of labels", table) for rate, table in evidence.few_labels.items()]
    return [("unsupervised", evidence.unsupervised), *few]


def _difference(
    text: str, table: Table, signs: Mapping[str, int], rule: Callable[[Contrast], str], unit: str = "set"
) -> Claim:
    found = contrast(table, signs)
    paper = "" if found.paper is None else f"{found.paper:+.2f}"
    ahead = f", above 0 on {found.num_ahead}" if found.num_sets > 1 else ""
    stands_in = ", none of the paper's" if found.num_sets and found.stands_in else ""
    basis = _basis(found.num_sets, found.seeds, unit) + ahead + stands_in
    return Claim(text, paper, _interval(found.gain), basis, rule(found))


def _rank(text: str, table: Table, rivals: Sequence[str]) -> Claim:
    text = f"better than {text}"
    found = rank_lead(table, "joaov2", rivals)
    if found is None:
        return Claim(text, "", "", _basis(0, (0, 0)), better(Contrast(None, None)))
    places = f"{found.own:.1f} to {found.best:.1f} ({NAMES[found.rival]})"
    paper = f"{found.paper_own:.1f} to {found.paper_best:.1f}"
    lead = found.lead
    return Claim(
        text,
        f"{lead.paper:+.1f}: {paper}",
        f"{_interval(lead.gain)}: {places}",
        _basis(lead.num_sets, lead.seeds),
        better(lead),
    )


def _interval(gain: Gain | None) -> str:
    return "" if gain is None else f"{gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def _basis(number: int, seeds: tuple[int, int], unit: str = "set") -> str:
    """
    >>> _basis(1, (3, 5))
    '1 set, 3 to 5 seeds'
    """
    if not number:
        return "no records"
    least, most = seeds
    return f"{number} {unit}{'s' if number > 1 else ''}, {least if least == most else f'{least} to {most}'} seeds"
