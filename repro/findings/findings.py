"""The findings of the paper, each with what the records say of it and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.findings.claims import Claim, agreement, beside, choice, difference, rank, somewhere
from repro.findings.evidence import Evidence, Table
from repro.findings.verdicts import FAILS, HOLDS, as_well, better, overall
from repro.tables.names import NAMES


@dataclass(frozen=True)
class Finding:
    """A finding of the paper.

    Attributes:
        title: in a few words.
        about: what the paper says and where, what the figures are, and the rule of verdicts where it is its own.
        claims: its parts.
    """

    title: str
    about: str
    claims: Sequence[Claim]

    @property
    def verdict(self) -> str:
        return overall(self._verdicts())

    def counts(self) -> str:
        """How many of its parts have which verdict, in words."""
        found = self._verdicts()
        hold, fail = found.count(HOLDS), found.count(FAILS)
        return f"of {len(found)} parts {hold} hold, {fail} do not, {len(found) - hold - fail} cannot be told"

    def _verdicts(self) -> list[str]:
        return [claim.verdict for claim in self.claims if not claim.beside]


RULES = (
    "Every figure is computed from the records, and the verdict on every part by a rule that was settled before these "
    "figures were computed. They are differences in points, averaged over data sets, with a 95 % interval over seeds: "
    "it says what other seeds would give on these sets, not what other sets would. That a method is better holds if "
    "the interval is above 0; it does not if the interval reaches 0 and the paper's own figure (or 0, if that is "
    "higher) is above it. That a method does as well holds if the interval is above -1 point and not wholly below 0; "
    "it does not if it is wholly below 0. Else it cannot be told. The paper's figures are of the sets that ours are "
    "of. A finding holds if all its parts do, in part if some do; it does not if none does and one does not. What the "
    "paper does not claim stands beside and is not counted; that this is so of JOAOv2 with as many epochs as JOAO was "
    "settled when its figure was known."
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
        return ["finding", "verdict", "paper", "here (95 %)", "of"]

    def cells(self) -> list[list[str]]:
        """A line for each finding, its verdict between ``**``, and under it one for each of its parts."""
        lines = []
        for number, finding in enumerate(self.findings, 1):
            lines.append([f"**{number}. {finding.title}**", f"**{finding.verdict}**", "", "", finding.counts()])
            lines += [
                [f"{number}{letter} {claim.text}", claim.verdict, claim.paper, claim.here, claim.basis]
                for letter, claim in zip("abcdefghij"[: len(finding.claims)], finding.claims, strict=True)
            ]
        return lines

    @property
    def paragraphs(self) -> list[str]:
        """What each finding is about."""
        return [f"**{number}. {each.title}.** {each.about}" for number, each in enumerate(self.findings, 1)]


def findings_of(evidence: Evidence) -> Findings:
    """The six, in the order of the paper."""
    makers = (_choices, _by_hand, _parts, _rivals, _transfer, _large)
    return Findings([make(evidence) for make in makers])


RULES_OF_THUMB = {
    "NodeDrop and Subgraph on molecules": (("node_drop", "subgraph"), ("NCI1", "PROTEINS")),
    "AttrMask on dense graphs": (("attribute_mask",), ("COLLAB",)),
    "EdgePert on social networks": (("edge_perturb",), ("COLLAB", "REDDIT-BINARY")),
}


def _choices(evidence: Evidence) -> Finding:
    claims = [
        choice(f"{text}, {protocol}", shares, names, sets)
        for text, (names, sets) in RULES_OF_THUMB.items()
        for protocol, shares in evidence.shares.items()
    ]
    return Finding(
        "What JOAO chooses agrees with rules of thumb",
        "The paper's Figure 3 shows by shades which pairs JOAO drew on four sets, and reads in them the rules that "
        "GraphCL's pools were made by. Here: by how many percent of all views the named augmentations make more than "
        "under the uniform law, and more than on the other sets of the figure. It holds if both intervals are above "
        "0, and does not if one is wholly below. The last part is the rank correlation of a pair's gain by itself, "
        "after fine-tuning with 10 % of the labels, with the share that JOAO gave it: it holds if it is above 0 with "
        "a p of 0.05 at most on every set, and does not if the mean is not above 0.",
        [*claims, agreement("pairs that help are drawn more", evidence.agreements)],
    )


def _by_hand(evidence: Evidence) -> Finding:
    signs = {"joao": 1, "graphcl": -1}
    return Finding(
        "JOAO does as well as augmentations picked by hand",
        "The paper sets JOAO beside GraphCL, whose pool of augmentations is picked for each kind of data, in its "
        "unsupervised and its semi-supervised table. Here: JOAO less GraphCL, on the same folds and labels.",
        [difference(name, table, signs, as_well) for name, table in _frozen_and_few(evidence)],
    )


def _parts(evidence: Evidence) -> Finding:
    heads, equal = {"joaov2": 1, "joao": -1}, {"joaov2_joao_budget": 1, "joao": -1}
    at_more = {"joaov2_stronger": 1, "joao_stronger": -1}
    return Finding(
        "A head for each augmentation helps, and so does the prior",
        "The paper's JOAOv2 is above JOAO in its tables, and in its Table 2 at two strengths; its supplement has JOAO "
        "without the prior. JOAOv2 is trained for twice as many epochs, there and here; hence a row with as many, "
        "which the paper has not. The prior: JOAO less JOAO with gamma = 0, with 10 % of the labels; the paper's "
        "figures of that are not at hand.",
        [
            *(difference(f"heads, {name}", table, heads, better) for name, table in _frozen_and_few(evidence)),
            beside(difference("heads, unsupervised, as many epochs", evidence.unsupervised, equal, better)),
            difference("heads, at strength 0.25", evidence.strength, at_more, better),
            difference("by more than at 0.2", evidence.strength, {**at_more, "joaov2": -1, "joao": 1}, better),
            difference("the prior", evidence.few_labels[10], {"joao": 1, "joao_without_prior": -1}, better),
        ],
    )


KINDS = {
    "graph kernels": ("gl", "wl", "dgk"),
    "embeddings of nodes and graphs": ("node2vec", "sub2vec", "graph2vec"),
    "other self-supervised learning": ("mvgrl", "infograph"),
}
PRETEXTS = ("gae", "infomax", "context_pred")


def _rivals(evidence: Evidence) -> Finding:
    return Finding(
        "JOAOv2 is better than other methods by average rank",
        "The paper prints average ranks over the sets of its unsupervised and semi-supervised tables. Here: the "
        "average rank of the best of the others less JOAOv2's, so that more is better, each the mean over seeds of "
        "that seed's rank among the rows of the paper's table. As there, a row is ranked on the sets that it has "
        "scores on; where these are few, its rank is that of these sets.",
        [
            *(rank(kind, evidence.unsupervised, members) for kind, members in KINDS.items()),
            *(rank(f"GAE, Infomax and ContextPred, {name}", table, PRETEXTS) for name, table in _few(evidence)),
        ],
    )


def _transfer(evidence: Evidence) -> Finding:
    table, domain = evidence.transfer, ("attr_masking", "context_pred")
    return Finding(
        "Transfer: knowing the domain helps on some sets, JOAOv2 beats GraphCL",
        "The paper fine-tunes on eight sets of molecules and one of proteins, which was not run here. A row has one "
        "pre-training, there and here, and its seeds are those of fine-tuning: they do not say what another "
        "pre-training would give. To allow for that, verdicts take every interval as a point wider on both sides. "
        "AttrMasking and ContextPred, which know of atoms and their surroundings, stay ahead if one of them is better "
        "than JOAOv2 on one set at least; they do not if all intervals are wholly below 0. These intervals hold for "
        "all sets together, and are shown a point wider.",
        [
            somewhere("AttrMasking or ContextPred ahead of JOAOv2 on some sets", table, domain, "joaov2"),
            difference("JOAOv2 better than GraphCL", table, {"joaov2": 1, "graphcl": -1}, better),
        ],
    )


def _large(evidence: Evidence) -> Finding:
    return Finding(
        "It works at large scale",
        "The paper fine-tunes with 1 % and 10 % of the labels of ogbg-ppa and ogbg-code; a column is a set at a label "
        "rate. Where neither set has records, the figures here are of small sets that stand in (deviation 45) and "
        "cannot tell, and the paper's are of its own two. Seeds share a pre-training, as in transfer.",
        [
            difference(f"{NAMES[method]} better than {name}", evidence.ogb, {method: 1, baseline: -1}, better, "column")
            for method in ("joao", "joaov2")
            for baseline, name in (("none", "no pre-training"), ("graphcl", "GraphCL"))
        ],
    )


def _few(evidence: Evidence) -> list[tuple[str, Table]]:
    return [(f"{rate} % of the labels", table) for rate, table in evidence.few_labels.items()]


def _frozen_and_few(evidence: Evidence) -> list[tuple[str, Table]]:
    return [("unsupervised", evidence.unsupervised), *_few(evidence)]
