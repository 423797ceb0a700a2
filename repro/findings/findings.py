"""The six findings of the paper, with figures from the records and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.findings.claims import Claim, agreement, choice, difference, not_in_paper, rank, somewhere
from repro.findings.evidence import Evidence, Table
from repro.findings.verdicts import FAILS, HOLDS, as_well, better, overall
from repro.tables.names import NAMES


@dataclass(frozen=True)
class Finding:
    """A finding of the paper.

    Attributes:
        title: a short description.
        about: what the paper says and where, what the figures are, and the rule for the verdict if it is a special one.
        claims: its parts.
    """

    title: str
    about: str
    claims: Sequence[Claim]

    @property
    def verdict(self) -> str:
        return overall(self._verdicts())

    def counts(self) -> str:
        """Return the number of parts by verdict, as text."""
        found = self._verdicts()
        hold, fail = found.count(HOLDS), found.count(FAILS)
        return f"{len(found)} parts: {hold} hold, {fail} do not hold, {len(found) - hold - fail} inconclusive"

    def _verdicts(self) -> list[str]:
        return [claim.verdict for claim in self.claims if not claim.extra]


RULES = (
    "Every figure is computed from the records, and every verdict by a rule that was fixed before these figures were "
    "computed. Figures are differences in points, averaged over data sets, with a 95 % interval over seeds. The "
    "interval covers other seeds on these data sets, not other data sets. *Better* holds if the interval is above 0. "
    "It does not hold if the interval reaches 0 and lies below the paper's own figure (or 0, if that is higher). *As "
    "good* holds if the interval is above -1 point and not entirely below 0. It does not hold if the interval is "
    "entirely below 0. Otherwise the verdict is inconclusive. The paper's figures are for the same data sets as ours. "
    "A finding holds if all its parts hold, and holds in part if some do. It does not hold if no part holds and at "
    "least one does not. Parts that the paper does not claim are not counted; for JOAOv2 with the epochs of JOAO this "
    "was decided after its figure was known."
)


@dataclass(frozen=True)
class Findings:
    """All findings, as a section of a page."""

    findings: Sequence[Finding]
    title: str = "The paper's six findings"
    empty_cells: Sequence[str] = ()

    def about(self) -> str:
        """Return how to read the table."""
        return RULES

    def header(self) -> list[str]:
        """Return the headings of all columns."""
        return ["finding", "verdict", "paper", "here (95 % CI)", "basis"]

    def cells(self) -> list[list[str]]:
        """Return one bold line per finding, followed by one line per part."""
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
        """Explanations of the findings."""
        return [f"**{number}. {each.title}.** {each.about}" for number, each in enumerate(self.findings, 1)]


def findings_of(evidence: Evidence) -> Findings:
    """Judge the six findings, in the order of the paper."""
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
        "The paper's Figure 3 shows as shades which pairs JOAO drew on four data sets, and finds in them the rules by "
        "which GraphCL's pools were chosen. Here: how many percent of all views more the named augmentations make "
        "than with uniform pairs, and than on the other data sets of the figure. The claim holds if both intervals are "
        "above 0, and does not hold if one is entirely below. The last part is the rank correlation of the gain of a "
        "single pair, after fine-tuning with 10 % of the labels, and its share of JOAO's draws. It holds if the "
        "correlation is above 0 with p <= 0.05 on every data set, and does not hold if the mean is not above 0.",
        [*claims, agreement("pairs that help are drawn more often", evidence.agreements)],
    )


def _by_hand(evidence: Evidence) -> Finding:
    signs = {"joao": 1, "graphcl": -1}
    return Finding(
        "JOAO is as good as augmentations chosen by hand",
        "The paper compares JOAO with GraphCL, whose pool of augmentations is chosen for each kind of data, in its "
        "unsupervised and its semi-supervised table. Here: JOAO - GraphCL on the same folds and labels.",
        [difference(name, table, signs, as_well) for name, table in _frozen_and_few(evidence)],
    )


def _parts(evidence: Evidence) -> Finding:
    heads, equal = {"joaov2": 1, "joao": -1}, {"joaov2_joao_budget": 1, "joao": -1}
    at_more = {"joaov2_stronger": 1, "joao_stronger": -1}
    return Finding(
        "A head per augmentation helps, and so does the prior",
        "In the paper JOAOv2 is better than JOAO in the tables and, in Table 2, at two strengths; the supplement has "
        "JOAO without the prior. JOAOv2 is trained for twice as many epochs, there and here. We add a row with as many"
        " epochs as JOAO, which the paper does not have. The prior: JOAO - JOAO with gamma = 0, with 10 % of the "
        "labels. The paper's figures for the prior are not available to us.",
        [
            *(difference(f"heads, {name}", table, heads, better) for name, table in _frozen_and_few(evidence)),
            not_in_paper(
                difference("heads, unsupervised, same number of epochs", evidence.unsupervised, equal, better)
            ),
            difference("heads, at strength 0.25", evidence.strength, at_more, better),
            difference(
                "heads, more than at strength 0.2", evidence.strength, {**at_more, "joaov2": -1, "joao": 1}, better
            ),
            difference("the prior", evidence.few_labels[10], {"joao": 1, "joao_without_prior": -1}, better),
        ],
    )


KINDS = {
    "graph kernels": ("gl", "wl", "dgk"),
    "embeddings of nodes and graphs": ("node2vec", "sub2vec", "graph2vec"),
    "other self-supervised learning": ("infograph",),
}
PRETEXTS = ("gae", "infomax", "context_pred")


def _rivals(evidence: Evidence) -> Finding:
    return Finding(
        "JOAOv2 is better than other methods by average rank",
        "The paper reports average ranks over the data sets of its unsupervised and semi-supervised tables. Here: the "
        "average rank of the best other method - that of JOAOv2, so that larger is better. Ranks are computed per seed"
        " among the rows of the paper's table and averaged over seeds. As in the paper, a row is ranked on the data "
        "sets for which it has scores, which may be few.",
        [
            *(rank(kind, evidence.unsupervised, members) for kind, members in KINDS.items()),
            *(rank(f"GAE, Infomax and ContextPred, {name}", table, PRETEXTS) for name, table in _few(evidence)),
        ],
    )


def _transfer(evidence: Evidence) -> Finding:
    table, domain = evidence.transfer, ("attr_masking", "context_pred")
    return Finding(
        "Transfer: domain knowledge helps on some data sets, JOAOv2 beats GraphCL",
        "The paper fine-tunes on eight data sets of molecules and on one of proteins, which we did not run. Each row "
        "has a single pre-training, there and here. Seeds vary fine-tuning only and say nothing about other "
        "pre-trainings, so verdicts use intervals that are one point wider on both sides. AttrMasking and ContextPred "
        "use knowledge of atoms and their surroundings. They are ahead if one of them is better than JOAOv2 on at "
        "least one data set; they are not if all intervals are entirely below 0. These intervals are simultaneous, and"
        " are shown one point wider.",
        [
            somewhere("AttrMasking or ContextPred better than JOAOv2 on some data sets", table, domain, "joaov2"),
            difference("JOAOv2 better than GraphCL", table, {"joaov2": 1, "graphcl": -1}, better),
        ],
    )


def _large(evidence: Evidence) -> Finding:
    return Finding(
        "JOAO works at large scale",
        "The paper fine-tunes with 1 % and 10 % of the labels of ogbg-ppa and ogbg-code; a column is a data set at a "
        "label rate. We have no records of these data sets. Our figures are for smaller data sets (deviation 45), "
        "which cannot decide the claim; the paper's figures are for its own data sets. Seeds share a pre-training, as "
        "in transfer.",
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
