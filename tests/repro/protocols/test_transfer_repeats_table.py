"""Three pre-trainings per method: scores, intervals and claims against figures worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from repro.intervals import p_value
from repro.protocols.cells import load_grid
from repro.protocols.transfer.repeats import (
    CLAIMS_HEADER,
    HEADER,
    LEAST_SETS,
    RULES,
    claim_lines,
    lines_of,
    read_repeats,
    record_file,
    repeats_markdown,
    scores_of,
    verdict,
)
from repro.protocols.transfer.run import record_file as table_file
from repro.tables.pages import transfer_pages

GRID = load_grid("transfer")["repeats"]
METHODS, SETS = GRID["methods"], GRID["datasets"]


def record(dataset, method, scores, last=None):
    """Scores ``(pre-trainings, fine-tunings)`` between 0 and 1; one list for a record without pre-training."""
    table = np.asarray(scores)
    found = {"seed": [*range(len(table))]}
    if table.ndim == 2:
        found = {
            "pretraining": [row for row, line in enumerate(table) for _ in line],
            "seed": [column for line in table for column, _ in enumerate(line)],
        }
    found |= {
        "test": table.ravel().tolist(),
        "last_test": np.asarray(scores if last is None else last).ravel().tolist(),
    }
    return {
        "cell": {"dataset": dataset, "method": method},
        "scores": found,
        "split_hash": "same",
        "corpus": [{"molecules": 1000}] if table.ndim == 2 else None,
        "recipe": {"training": {"epochs": 4}},
        "finetuning": {"epochs": 100},
    }


def all_records(gains, sets=SETS, last=None):
    """Every method has 60 % plus its gain on each data set, with a little noise."""
    draw = np.random.default_rng(0)
    records = []
    for name in sets:
        for method in METHODS:
            noise = draw.normal(0, 0.002, (3, 3))
            chosen = 0.6 + gains.get(method, 0.0) + noise
            records.append(record(name, method, chosen, 0.6 + (last or gains).get(method, 0.0) + noise))
    return records, [record(name, "none", 0.6 + draw.normal(0, 0.002, 10)) for name in sets]


def test_scores_are_ordered_by_pre_training_and_seed():
    given = record("bbbp", "joao", [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    order = [5, 0, 3, 2, 4, 1]
    given["scores"] = {name: [values[each] for each in order] for name, values in given["scores"].items()}
    assert scores_of(given, "test") == pytest.approx(np.array([[10, 20], [30, 40], [50, 60]]))
    assert scores_of(record("bbbp", "none", [0.5, 0.7]), "last_test") == pytest.approx(np.array([[50], [70]]))


def test_the_interval_of_a_gain_is_welchs_over_means_of_pre_trainings():
    ours, none = np.array([[0.70, 0.72], [0.74, 0.76], [0.69, 0.67]]), np.array([0.6, 0.64, 0.66, 0.58])
    found = read_repeats([record("bbbp", "joao", ours)], [record("bbbp", "none", none)])
    expected = stats.ttest_ind(100 * ours.mean(axis=1), 100 * none, equal_var=False).confidence_interval()
    gain = found.gain("bbbp", "joao", "none", "test").interval()
    assert (gain.low, gain.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_a_row_of_another_split_is_not_compared():
    other = record("bbbp", "none", [0.5, 0.6])
    other["split_hash"] = "other"
    assert ("bbbp", "none", "test") not in read_repeats([record("bbbp", "joao", [[0.5], [0.6]])], [other]).scores


def test_claims_have_the_data_set_as_their_unit_and_are_corrected_together():
    found = read_repeats(*all_records({"joao": 0.05, "joaov2": -0.05}))
    claims = found.claims()
    assert len(claims) == len(RULES) * (len(METHODS) + 4)
    joao = claims[2 * METHODS.index("joao")]
    gains = [
        found.scores[name, "joao", joao.kind].mean() - found.scores[name, "none", joao.kind].mean() for name in SETS
    ]
    plain = stats.ttest_1samp(gains, 0.0).pvalue
    assert p_value(joao.estimate) == pytest.approx(plain)
    assert joao.p_value > plain
    for claim in claims:
        assert (claim.p_value <= 0.05) == (not claim.interval.low <= 0 <= claim.interval.high)
    verdicts = {line[0]: line[-1] for line in claim_lines(claims)}
    assert verdicts["JOAO - no pre-training"] == "better"
    assert verdicts["JOAOv2 - no pre-training"] == "worse"
    assert verdicts["Infomax - no pre-training"] == "inconclusive"
    assert {len(line) for line in claim_lines(claims)} == {len(CLAIMS_HEADER)}


def test_rules_that_disagree_are_inconclusive():
    found = read_repeats(*all_records({"joao": 0.05}, last={"joao": -0.05}))
    both = [claim for claim in found.claims() if (claim.first, claim.second) == ("joao", "none")]
    assert all(claim.p_value <= 0.05 for claim in both)
    assert verdict(both) == "inconclusive"


def test_sets_that_are_not_complete_do_not_count():
    records, none = all_records({})
    records = [each for each in records if each["cell"] != {"dataset": SETS[0], "method": "joao"}]
    assert read_repeats(records, none).datasets == SETS[1:]
    records, none = all_records({}, SETS[: LEAST_SETS - 1])
    found = read_repeats(records, none)
    assert found.claims() == []
    assert len(lines_of(found)) == (LEAST_SETS - 1) * (len(METHODS) + 1)
    assert {len(line) for line in lines_of(found)} == {len(HEADER)}
    assert "Holm" not in repeats_markdown(records, none)


def test_the_page_is_written_from_records(tmp_path):
    records, none = all_records({})
    record_file(tmp_path).write(*records)
    table_file(tmp_path).write(*none)
    page = transfer_pages(tmp_path).texts["repeats.md"]
    for name in SETS:
        assert page.count(f"| {name} |") == len(METHODS) + 1
