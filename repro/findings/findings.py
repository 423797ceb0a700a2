"""The claims of the paper's experiments (``claims.toml``), with figures from the records and verdicts."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import numpy as np

from repro.findings.claims import (
    Claim,
    Figures,
    Member,
    between_sets,
    containing,
    different,
    effective_pairs,
    on_columns,
    on_drawn,
    over_sets,
    over_values,
    pair_share,
    uncounted,
    views_of,
    with_order,
)
from repro.findings.evidence import Evidence, Table
from repro.findings.verdicts import (
    CONTRADICTED,
    HOLDS,
    INCONCLUSIVE,
    NOT_TESTED,
    Test,
    Verdict,
    agreed,
    judge,
    not_worse,
    some_of,
)
from repro.tables.learned import FIGURE_3
from repro.tables.names import NAMES

PLURALS = {HOLDS: "hold", CONTRADICTED: "contradicted", INCONCLUSIVE: "inconclusive", NOT_TESTED: "not tested"}


@dataclass(frozen=True)
class Findings:
    """All claims, as a section of a page."""

    claims: Sequence[Claim]
    title: str = "What the paper claims, and what our records say"
    empty_cells: Sequence[str] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge([claim.test for claim in self.claims])

    def count(self, word: str) -> int:
        """Return the number of claims with a verdict."""
        return [each.word for each in self.verdicts].count(word)

    def counts(self, *words: str) -> str:
        """Return the number of claims by verdict, as text."""
        return ", ".join(f"{self.count(word)} {PLURALS[word]}" for word in words or PLURALS)

    def about(self) -> str:
        """Return how to read the table."""
        tested = len(self.claims) - self.count(NOT_TESTED)
        about = files("repro.findings").joinpath("about.md").read_text(encoding="utf-8")
        return f"**{len(self.claims)} claims: {self.counts()}.**\n\n{about.rstrip().format(tested=tested)}"

    def header(self) -> list[str]:
        """Return the headings of all columns."""
        return ["claim", "verdict", "paper", "here (interval)", "level", "p", "corrected p", "data"]

    def cells(self) -> list[list[str]]:
        """Return one line per claim, followed by one line per figure if it has several, and those beside it."""
        lines = []
        for claim, verdict in zip(self.claims, self.verdicts, strict=True):
            chance = (1 - verdict.level) / claim.figures.ways
            members = claim.figures.members
            alone = members[0] if len(members) == 1 else Member("", lambda chance: "", None)
            shown = alone.show(chance)
            level = (
                f"{100 * (1 - chance):.2f} %" if "(" in shown or len(members) > 1 else ""
            )  # where an interval is shown
            figures = [alone.paper, shown, level, _p(verdict.p), _p(verdict.adjusted), alone.basis]
            lines.append([f"**{claim.number}** {claim.title}", f"**{verdict.word}**", *figures])
            lines += [_line(member, chance) for member in members if member is not alone]
            lines += [_line(member, chance) for member in claim.figures.beside]
        return lines

    @property
    def paragraphs(self) -> list[str]:
        """The sentence and the rule of each claim."""
        return [
            f'**{each.number} {each.title}.** "{each.sentence}" ({each.place}). *Test:* {each.rule}'
            for each in self.claims
        ]


def _line(member: Member, chance: float) -> list[str]:
    shown = member.show(chance)
    if member.test is None:
        return [
            f"- {member.name} (not counted)",
            "",
            member.paper,
            shown,
            "95 %" * ("(" in shown),
            "",
            "",
            member.basis,
        ]
    return [f"- {member.name}", "", member.paper, shown, "", _p(member.test.p), "", member.basis]


def _p(value: float | None) -> str:
    """
    >>> _p(0.0314), _p(0.0001), _p(1.0), _p(None)
    ('0.031', '< 0.001', '1', '')
    """
    if value is None:
        return ""
    return "1" if value >= 1 else "< 0.001" if value < 0.001 else f"{value:.3f}"


def findings_of(evidence: Evidence) -> Findings:
    """Judge all claims, in the order of the paper."""
    texts = tomllib.loads(files("repro.findings").joinpath("claims.toml").read_text(encoding="utf-8"))
    figures: dict[str, Figures] = {}
    for make in (_selection, _heads, _by_hand, _improvement, _rivals, _transfer):
        figures |= make(evidence)
    return Findings(
        [
            Claim(number, **{key: " ".join(value.split()) for key, value in text.items()}, figures=figures[number])
            for number, text in texts.items()
        ]
    )


MOLECULES = ("NCI1", "PROTEINS", "DD", "MUTAG")
SOCIAL = ("COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K", "IMDB-BINARY")
# Mean number of edges divided by mean number of nodes, which Table 1 calls the average degree: `joao data NAME`.
EDGES_PER_NODE = {
    "NCI1": 32.30 / 29.87,
    "PROTEINS": 72.82 / 39.06,
    "DD": 715.66 / 284.32,
    "MUTAG": 19.79 / 17.93,
    "COLLAB": 2457.22 / 74.49,
    "REDDIT-BINARY": 497.75 / 429.63,
    "REDDIT-MULTI-5K": 594.87 / 508.52,
    "IMDB-BINARY": 96.53 / 19.77,
}


def _selection(evidence: Evidence) -> dict[str, Figures]:
    """What JOAO draws. Figure 3 has the semi-supervised protocol; the unsupervised one is shown beside it."""
    few, frozen = (evidence.drawn.get(name, {}) for name in ("semi-supervised", "unsupervised"))
    drawn, other = few.get("joao", {}), frozen.get("joao", {})
    edge, mask, cut = containing("edge_perturb"), containing("attribute_mask"), views_of("node_drop", "subgraph")
    same = pair_share("identity", "identity")
    diversity = {
        method: {name: float(np.mean([effective_pairs(each) for each in tables])) for name, tables in by_set.items()}
        for method, by_set in few.items()
    }
    more_diverse = _less(diversity.get("joao", {}), diversity.get("joao_without_prior", {}))
    prior = over_sets("accuracy, 10 % of the labels", evidence.semi_supervised, {"joao": 1, "joao_without_prior": -1})
    aligned, stronger = (evidence.alignment_of(method, FIGURE_3) for method in ("joao", "joaov2"))
    more_aligned = _less(stronger, aligned)
    beside = "unsupervised protocol: "
    return {
        "B1": Figures(over_values("effective pairs", more_diverse), beside=uncounted(prior)),
        "A": Figures(over_values("rank correlation", aligned)),
        "E2": Figures(over_values("difference", more_aligned) if set(FIGURE_3) == set(more_aligned) else []),
        "1a": Figures(
            between_sets(drawn, MOLECULES, SOCIAL, edge, FIGURE_3),
            beside=uncounted(on_drawn(drawn, FIGURE_3, edge, 36.0))
            + uncounted(between_sets(other, MOLECULES, SOCIAL, edge), beside),
        ),
        "1b": Figures(
            with_order(drawn, EDGES_PER_NODE, mask),
            beside=uncounted(on_drawn(drawn, FIGURE_3, mask, 36.0))
            + uncounted(with_order(other, EDGES_PER_NODE, mask), beside),
        ),
        "2": Figures(
            on_drawn(drawn, FIGURE_3, cut, 40.0), beside=uncounted(on_drawn(other, FIGURE_3, cut, 40.0), beside)
        ),
        "3a": Figures(
            on_drawn(drawn, FIGURE_3, same, 1.0, most=True, against=4.0),
            beside=uncounted(on_drawn(other, FIGURE_3, same, 1.0), beside),
        ),
        "3b": Figures(
            on_drawn(drawn, FIGURE_3, different, 80.0),
            beside=uncounted(on_drawn(other, FIGURE_3, different, 80.0), beside),
        ),
    }


def _less(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: value - second[name] for name, value in first.items() if name in second}


def _heads(evidence: Evidence) -> dict[str, Figures]:
    table = evidence.strength
    usual, stronger = {"joaov2": 1, "joao": -1}, {"joaov2_stronger": 1, "joao_stronger": -1}
    return {
        "B2": Figures(on_columns(table, usual, "strength 0.2: ") + on_columns(table, stronger, "strength 0.25: ")),
        "C": Figures(on_columns(table, {**stronger, "joaov2": -1, "joao": 1})),
    }


def _tables(evidence: Evidence) -> dict[str, Table]:
    return {"semi": evidence.semi_supervised, "unsup": evidence.unsupervised}


def _by_hand(evidence: Evidence) -> dict[str, Figures]:
    signs = {"joao": 1, "graphcl": -1}
    return {
        f"i-{name}": Figures(over_sets("JOAO - GraphCL", table, signs, not_worse))
        for name, table in _tables(evidence).items()
    }


def _improvement(evidence: Evidence) -> dict[str, Figures]:
    heads, same_epochs, over_graphcl = ({name: 1, other: -1} for name, other in IMPROVEMENTS)
    single = [
        member for name, table in _tables(evidence).items() for member in on_columns(table, over_graphcl, f"{name}: ")
    ]
    beside = over_sets("JOAOv2 with JOAO's epochs - JOAO", evidence.unsupervised, same_epochs)
    return {
        "ii-semi": Figures(over_sets("JOAOv2 - JOAO", evidence.semi_supervised, heads)),
        "ii-unsup": Figures(over_sets("JOAOv2 - JOAO", evidence.unsupervised, heads), beside=uncounted(beside)),
        "ii-some": Figures(single, some_of, ways=max(1, len(single))),
    }


IMPROVEMENTS = (("joaov2", "joao"), ("joaov2_joao_budget", "joao"), ("joaov2", "graphcl"))
# The heuristic methods of Section 4.2. Graph kernels and MVGRL are not among them and are shown beside.
HEURISTIC = {
    "semi": ("gae", "infomax", "context_pred"),
    "unsup": ("node2vec", "sub2vec", "graph2vec", "infograph"),
}
NOT_HEURISTIC = ("gl", "wl", "dgk", "mvgrl_nt_xent", "mvgrl")


def _rivals(evidence: Evidence) -> dict[str, Figures]:
    tables = _tables(evidence)
    found = {
        f"iii-{name}": Figures(
            _against("joaov2", HEURISTIC[name], table), beside=uncounted(_against("joaov2", NOT_HEURISTIC, table))
        )
        for name, table in tables.items()
    }
    of_joao = [member for name, table in tables.items() for member in _against("joao", HEURISTIC[name], table)]
    return {**found, "D": Figures(of_joao), "vi": Figures([])}


def _against(method: str, rivals: Sequence[str], table: Table) -> list[Member]:
    return [member for rival in rivals for member in over_sets(NAMES[rival], table, {method: 1, rival: -1})]


DOMAIN = ("infomax", "edge_pred", "attr_masking", "context_pred")


def _transfer(evidence: Evidence) -> dict[str, Figures]:
    """Both rules for the epoch must agree, by the table and by repeated pre-trainings."""
    ahead = [
        [
            member
            for rival in DOMAIN
            for member in over_sets(f"{words}: {NAMES[rival]}", table, {rival: 1, "joaov2": -1})
        ]
        for words, table in evidence.transfer.items()
    ]

    def some_in_each(tests: Sequence[Test]) -> Test:
        given = iter(tests)
        return agreed([some_of([next(given) for _ in group]) for group in ahead if group])

    members = [member for group in ahead for member in group]
    found = {"iv": Figures(members, some_in_each, ways=max(map(len, ahead), default=1) or 1)}
    for method in ("joao", "joaov2"):
        signs = {method: 1, "graphcl": -1}
        by_rule = [member for words, table in evidence.transfer.items() for member in over_sets(words, table, signs)]
        found[f"v-{NAMES[method]}"] = Figures(by_rule, agreed)
    return found
