"""Fake records with a known answer, and the same records turned round."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib.resources import files

import numpy as np
import pytest
from scipy import stats

from joao.config.recipe import POOL
from joao.core.pair_table import PairTable
from repro.findings.claims import containing, different, effective_pairs, over_sets, views_of, with_order
from repro.findings.evidence import EPOCHS, Evidence, Table, read_evidence
from repro.findings.findings import EDGES_PER_NODE, findings_of
from repro.findings.verdicts import CONTRADICTED, HOLDS, INCONCLUSIVE, NOT_TESTED, UNDECIDED
from repro.protocols.check import PROTOCOLS
from repro.protocols.semi_supervised.pairs import Agreement
from repro.protocols.transfer import repeats
from repro.statistics import TableCorrelation
from repro.tables.learned import FIGURE_3
from repro.tables.markup import as_html, as_latex, as_markdown
from repro.tables.pages import write_all
from tests.messages import refused

NUMBERS = list(tomllib.loads(files("repro.findings").joinpath("claims.toml").read_text()))
COMPARABLE, LARGE = ("i-semi", "i-unsup"), "vi"
ABOVE = {  # what a method has above the others where all claims hold
    "joaov2": 3.0,
    "joao": 2.0,
    "joaov2_stronger": 6.0,
    "joao_stronger": 4.0,
    "graphcl": 2.0,
    "joao_without_prior": 1.0,
}
OTHERS = ["none", "node2vec", "sub2vec", "graph2vec", "infograph", "gae", "infomax", "context_pred", "wl"]
DOMAIN = {"infomax": 9.0, "edge_pred": 9.0, "attr_masking": 9.0, "context_pred": 9.0, "joaov2": 6.0, "joao": 5.0}
MOLECULES, SOCIAL = ["NCI1", "PROTEINS", "DD"], ["COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K"]
SETS = MOLECULES + SOCIAL


def table(columns, sign, above=None, **more):
    """Scores of three seeds and two folds with a noise of hundredths of a point."""
    above = dict.fromkeys(OTHERS, 0.0) | ABOVE | (above or {})
    rng = np.random.default_rng(len(columns))
    scores = {
        column: {
            method: {seed: [70 + sign * extra + 0.02 * rng.normal() for _ in range(2)] for seed in range(3)}
            for method, extra in above.items()
        }
        for column in columns
    }
    return Table(scores, {column: {"joao": 1.0, "joaov2": 2.0} for column in columns}, **more)


def draws(dataset, sign, rng, spread=1.0):
    """Shares of pairs of which all claims are true, or their opposite. ``spread`` flattens or sharpens them."""
    rank = sorted(EDGES_PER_NODE, key=EDGES_PER_NODE.get).index(dataset)
    edge = 0.4 if (dataset in MOLECULES) == (sign > 0) else 0.2
    weights = {"node_drop": 5.0, "subgraph": 5.0, "edge_perturb": edge, "attribute_mask": 3.0 + sign * 0.4 * rank}
    if sign < 0:
        weights |= {"node_drop": 0.3, "subgraph": 0.3}
    weights["identity"] = 0.3 if sign > 0 else 3.0
    single = np.array([weights[name] for name in POOL]) * rng.uniform(0.99, 1.01, size=len(POOL))
    pairs = np.outer(single, single) ** spread
    pairs[np.diag_indices(len(POOL))] *= 0.01 if sign > 0 else 10
    return PairTable.of(POOL, pairs / pairs.sum())


def evidence(sign=1):
    """All claims hold where the sign is +1; where it is -1, all are turned round."""
    rng = np.random.default_rng(0)

    def drawn(spread=1.0):
        return {name: [draws(name, sign, rng, spread) for _ in range(3)] for name in SETS}

    by_method = {"joao": drawn(), "joaov2": drawn(), "joao_without_prior": drawn(3.0 if sign > 0 else 0.3)}
    found = {"joao": {}, "joaov2": {}}
    for number, dataset in enumerate(FIGURE_3):
        shares = by_method["joao"][dataset][0]
        gains = PairTable.of(POOL, sign * shares.values + 1e-3 * number * rng.random(shares.values.shape))
        for method, rank in (("joao", 0.8 - 0.01 * number), ("joaov2", 0.9)):
            found[method][dataset] = Agreement(gains, shares, 3, TableCorrelation(sign * rank, 0.01))
    columns = [f"{name}, 10 %" for name in SETS]
    molecules = [f"m{number}" for number in range(8)]
    return Evidence(
        unsupervised=table([*SETS, "MUTAG", "IMDB-BINARY"], sign),
        semi_supervised=table([*columns, "NCI1, 1 %"], sign),
        strength=table(["NCI1, 1 %", "PROTEINS, 10 %"], sign),
        transfer={words: table(molecules, sign, above=DOMAIN, paired=False) for words in EPOCHS.values()},
        drawn={"semi-supervised": by_method},
        alignments=found,
    )


def verdicts(found):
    return {claim.number: verdict.word for claim, verdict in zip(found.claims, found.verdicts, strict=True)}


def test_claims_hold_on_records_that_support_them():
    found = verdicts(findings_of(evidence()))
    assert list(found) == NUMBERS
    assert found == dict.fromkeys(NUMBERS, HOLDS) | {LARGE: NOT_TESTED}


def test_reversed_records_contradict_the_claims():
    found = verdicts(findings_of(evidence(-1)))
    for number in COMPARABLE:  # no difference turned round is none
        assert found.pop(number) != CONTRADICTED
    assert found.pop(LARGE) == NOT_TESTED
    assert set(found.values()) == {CONTRADICTED}


def test_without_records_nothing_is_tested(tmp_path):
    found = findings_of(read_evidence(tmp_path))
    assert set(verdicts(found).values()) == {NOT_TESTED}
    assert found.count(NOT_TESTED) == len(NUMBERS)


def test_methods_outside_a_claim_have_no_effect():
    usual = evidence()
    for scores in usual.unsupervised.scores.values():
        scores["wl"] = {seed: [99.0, 99.0] for seed in range(3)}
    assert verdicts(findings_of(usual)) == verdicts(findings_of(evidence()))


def test_one_better_rival_contradicts_a_claim_about_all():
    mixed = evidence()
    for scores in mixed.unsupervised.scores.values():
        scores["graph2vec"] = {seed: [each + 1 for each in scores["joaov2"][seed]] for seed in range(3)}
    assert verdicts(findings_of(mixed))["iii-unsup"] == CONTRADICTED


def test_rules_for_the_epoch_must_agree():
    mixed, turned = evidence(), evidence(-1)
    first, second = EPOCHS.values()
    both = dataclasses.replace(mixed, transfer={first: mixed.transfer[first], second: turned.transfer[second]})
    found = verdicts(findings_of(both))
    assert {found[number] for number in ("iv", "v-JOAO", "v-JOAOv2")} == {INCONCLUSIVE}


def test_data_sets_are_the_unit():
    # Seeds and folds without any spread; the sets differ.
    gains = {"a": 1.0, "b": 2.0, "c": 6.0}
    scores = {
        name: {"one": {0: [gain, gain], 1: [gain, gain]}, "two": {0: [0.0, 0.0], 1: [0.0, 0.0]}}
        for name, gain in gains.items()
    }
    (member,) = over_sets("", Table(scores), {"one": 1, "two": -1})
    assert member.test.p_for == pytest.approx(stats.ttest_1samp(list(gains.values()), 0).pvalue)
    del scores["c"]
    (member,) = over_sets("", Table(scores), {"one": 1, "two": -1})
    assert member.test == UNDECIDED


def test_label_rates_of_a_set_are_one_unit():
    gains = {"a, 1 %": 1.0, "a, 10 %": 3.0, "b": 5.0}
    scores = {column: {"one": {0: [gain]}, "two": {0: [0.0]}} for column, gain in gains.items()}
    made = Table(scores, {"a, 1 %": {"one": 4.0, "two": 0.0}, "a, 10 %": {"one": 2.0, "two": 0.0}})
    assert made.by_set({"one": 1, "two": -1}) == {"a": 2.0, "b": 5.0}
    assert made.paper_mean({"one": 1, "two": -1}) == 3.0


def test_pretrainings_count_equally_however_many_runs_they_have():
    scores = {"a": {"one": {0: [1.0, 3.0], 1: [8.0]}, "two": {0: [1.0]}}}
    assert Table(scores, paired=False).by_set({"one": 1, "two": -1}) == {"a": 4.0}


def test_only_seeds_that_all_methods_have_count():
    scores = {"a": {"one": {0: [1.0, 2.0], 1: [3.0, 3.0], 2: [90.0, 90.0]}, "two": {0: [0.0, 0.0], 1: [1.0, 2.0]}}}
    found = Table(scores).estimate("a", {"one": 1, "two": -1})
    assert found.mean == pytest.approx((1 + 2 + 2 + 1) / 4)
    assert Table({"a": {"one": {0: [1.0]}}}).estimate("a", {"one": 1, "two": -1}) is None


UNIFORM = PairTable.of(POOL, np.full((5, 5), 1 / 25))


def test_shares_of_uniform_pairs():
    assert containing("edge_perturb")(UNIFORM) == pytest.approx(36)
    assert views_of("node_drop", "subgraph")(UNIFORM) == pytest.approx(40)
    assert different(UNIFORM) == pytest.approx(80)
    assert effective_pairs(UNIFORM) == pytest.approx(25)
    assert effective_pairs(PairTable.of(POOL, np.eye(5) / 5)) == pytest.approx(5)


def test_order_of_sets_has_an_exact_p_value():
    names, rng = list("abcdef"), np.random.default_rng(1)
    drawn = {name: [draws("NCI1", 1, rng)] for name in names}
    order = dict(zip(names, rng.random(6), strict=True))
    (member,) = with_order(drawn, order, containing("subgraph"))
    shares = [containing("subgraph")(drawn[name][0]) for name in names]

    def statistic(x):
        return stats.spearmanr(x, list(order.values())).statistic

    expected = stats.permutation_test((shares,), statistic, permutation_type="pairings", n_resamples=np.inf)
    assert member.test.p == pytest.approx(expected.pvalue)


def test_the_section_in_all_formats():
    section = findings_of(evidence())
    lines = as_markdown([section]).splitlines()
    assert lines[0] == f"## {section.title}"
    assert sum(line.startswith("| **") for line in lines) == len(NUMBERS)
    assert all(len(line) == len(section.header()) for line in section.cells())
    assert as_html([section]).count("<tr>") == 1 + len(section.cells())
    assert as_latex([section]).count(r"\\") >= 1 + len(section.cells())


def write(folder, protocol, cell, **content):
    PROTOCOLS[protocol].record_file(folder).write({"cell": cell, **content})


@pytest.fixture
def results(tmp_path):
    """A record or two of each protocol."""
    policy = {"augmentations": list(POOL), "drawn": np.diag([30, 10, 0, 0, 0]).tolist()}
    for seed in (0, 1):
        for method, accuracy in (("joao", 0.8), ("graphcl", 0.7)):
            facts = {"policy": policy} if method == "joao" else {}
            cell = {"dataset": "MUTAG", "method": method, "seed": seed, "inductive": False}
            part = {"fold_hash": f"{seed}", "accuracies": [accuracy, accuracy + seed / 10]}
            write(tmp_path, "unsupervised", cell, scores={"partitions": [part]}, **facts)
            other = part | {"accuracies": [0.1, 0.1]}
            write(tmp_path, "unsupervised", cell | {"inductive": True}, scores={"partitions": [other]})
            cell = {"dataset": "NCI1", "method": method, "seed": seed, "label_rate": 1}
            scores = {"accuracy": [accuracy]}
            write(tmp_path, "semi-supervised", cell, scores=scores, split_hash=f"{seed}", precision="", **facts)
    transfer = {"scores": {"seed": [3, 4], "test": [0.6, 0.7]}, "split_hash": "s", "corpus": None}
    write(tmp_path, "transfer", {"dataset": "bbbp", "method": "joao"}, **transfer)
    facts = {"recipe": {"training": {}, "encoder": {"layers": 1, "width": 1}}, "finetuning": {"metric": "F1"}}
    facts |= {"split": {"labelled": 1}, "pre-training": None, **transfer}
    write(tmp_path, "ogb", {"dataset": "ogbg-ppa", "method": "joao", "label_rate": 1}, **facts)
    return tmp_path


def test_records_of_all_protocols_are_read(results):
    found = read_evidence(results)
    assert found.unsupervised.scores["MUTAG"]["joao"] == {0: pytest.approx([80, 80]), 1: pytest.approx([80, 90])}
    assert set(found.unsupervised.scores) == {"MUTAG"}
    assert found.unsupervised.paper["MUTAG"]["infograph"] == 89.01
    assert set(found.semi_supervised.scores["NCI1, 1 %"]) == {"joao", "graphcl"}
    assert found.semi_supervised.paper["COLLAB, 10 %"]["joaov2"] == 75.53
    assert found.strength.scores["NCI1, 1 %"]["joao"] == {0: pytest.approx([80]), 1: pytest.approx([80])}
    assert found.strength.paper["PROTEINS, 10 %"]["joaov2_stronger"] == 73.01
    chosen, last = (found.transfer[EPOCHS[key]].scores for key in ("test", "last_test"))
    assert chosen == {"bbbp": {"joao": {0: pytest.approx([60, 70])}}}
    assert last == {}
    (first, second) = found.drawn["unsupervised"]["joao"]["MUTAG"]
    assert first[POOL[0], POOL[0]] == second[POOL[0], POOL[0]] == 0.75
    assert found.drawn["semi-supervised"] == {}  # the pre-training of 1 % is that of 10 %


def test_scores_of_different_splits_are_rejected(results):
    cell = {"dataset": "MUTAG", "method": "wl", "seed": 1, "inductive": False}
    write(results, "unsupervised", cell, scores={"partitions": [{"fold_hash": "other", "accuracies": [0.5]}]})
    with refused("records", "wl", "MUTAG", "seed 1"):
        read_evidence(results)


def test_findings_are_written_for_a_folder_of_records(results):
    title = write_all(results, results)[0].title
    text = (results / "findings.md").read_text()
    assert text.startswith(f"# {title}\n")
    (line,) = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| **i-unsup**")]
    assert line[1:4] == [f"**{INCONCLUSIVE}**", "+0.55", "+10.00"]  # one data set decides nothing


def test_repeated_pretrainings_are_tested_beside_the_table(results):
    scores = {"pretraining": [0, 0, 1], "seed": [0, 1, 0], "test": [0.6, 0.7, 0.9], "last_test": [0.5, 0.5, 0.7]}
    record = {"cell": {"dataset": "bbbp", "method": "joao"}, "scores": scores, "split_hash": "s"}
    repeats.record_file(results).write(record)
    found = read_evidence(results).transfer
    assert list(found)[:2] == list(EPOCHS.values())
    last, chosen = (found[name].scores["bbbp"]["joao"] for name in list(found)[2:])
    assert last == {0: pytest.approx([50, 50]), 1: pytest.approx([70])}
    assert chosen == {0: pytest.approx([60, 70]), 1: pytest.approx([90])}


def test_all_tables_of_transfer_must_agree():
    usual, turned = evidence(), evidence(-1)
    (words,) = [words for key, words in EPOCHS.items() if key == "test"]
    more = {**usual.transfer, f"repeated, {words}": turned.transfer[words]}
    found = verdicts(findings_of(dataclasses.replace(usual, transfer=more)))
    assert {found[number] for number in ("iv", "v-JOAO", "v-JOAOv2")} == {INCONCLUSIVE}
