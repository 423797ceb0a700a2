"""Rows of the semi-supervised tables against figures worked out by hand."""

from dataclasses import astuple

import pytest

from repro.intervals import estimate_gain
from repro.protocols.semi_supervised.run import PAIRS, grid
from repro.protocols.semi_supervised.table import (
    LAST_EPOCH_HEADER,
    REDEFINED_HEADER,
    last_epoch_lines,
    overview,
    redefined_lines,
    rows,
)
from repro.tables.names import NAMES
from repro.tables.paper import Published
from tests.messages import refused


def record(method, seed, accuracy, dataset="NCI1", label_rate=10, split_hash=None):
    return {
        "cell": {"dataset": dataset, "method": method, "seed": seed, "label_rate": label_rate},
        "scores": {"accuracy": accuracy},
        "split_hash": split_hash or f"{dataset} {label_rate} {seed}",
        "precision": "tf32",
    }


RECORDS = [
    record("none", 0, [0.70, 0.80]),
    record("none", 1, [0.60, 0.70]),
    record("joao", 0, [0.80, 0.90]),
    record("joao", 1, [0.60, 0.80]),
]


def test_row_matches_a_hand_computation():
    none, joao = rows(RECORDS)
    # JOAO: seeds 85 and 70, mean 77.5, deviation 15 / sqrt(2); no pre-training: 75 and 65.
    assert (joao.dataset, joao.label_rate, joao.method, joao.num_seeds) == ("NCI1", 10, "joao", 2)
    assert joao.mean == pytest.approx(77.5)
    assert joao.std == pytest.approx(15 / 2**0.5)
    assert none.mean == pytest.approx(70)
    assert none.gain is None
    # Differences 10, 10 and 0, 10: the variance of the folds, 0 and 50, gives 25 / 2, more than that of the seed means,
    # 12.5 / 2; t with 2 degrees of freedom at 97.5 % is 4.302653.
    half_width = 4.302653 * 12.5**0.5
    assert joao.gain.mean == pytest.approx(7.5)
    assert (joao.gain.low, joao.gain.high) == pytest.approx((7.5 - half_width, 7.5 + half_width), abs=1e-5)
    assert joao.paper == Published(74.48, 0.27)
    assert none.paper == Published(73.72, 0.24)


def test_only_common_seeds_are_paired():
    more = [record("joao", 2, [1.0]), record("none", 3, [0.1])]
    joao = next(row for row in rows([*more, *RECORDS]) if row.method == "joao")
    assert joao.num_seeds == 3
    assert joao.mean == pytest.approx((100 + 85 + 70) / 3)
    assert astuple(joao.gain) == pytest.approx(
        astuple(estimate_gain([[80, 90], [60, 80]], [[70, 80], [60, 70]]).interval())
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_scores_on_different_labels_are_not_paired(seeds):
    records = [each for each in RECORDS if each["cell"]["seed"] < seeds]
    records[-1] = records[-1] | {"split_hash": "other"}
    with refused("records", f"seed {seeds - 1}"):
        rows(records)


def test_overview_matches_a_hand_computation():
    records = [*RECORDS, record("none", 0, [0.625], label_rate=1), record("infomax", 0, [0.5], "DD")]
    shown = overview(rows(records))
    assert shown.header() == ["accuracy %", "NCI1, 10 %", "NCI1, 1 %", "DD, 10 %"]
    assert shown.cells() == [
        [NAMES["none"], "**70.0** ± 7.1 (73.7, -3.7) [2]", "**62.5** (60.7, +1.8) [1]", ""],
        ["JOAO", "**77.5** ± 10.6 (74.5, +3.0) [2]", "", ""],
        ["Infomax", "", "", "**50.0** (75.8, -25.8) [1]"],
    ]


def test_every_method_of_the_tables_has_a_name():
    assert set(grid()["methods"]) <= set(NAMES)
    assert not set(PAIRS) & set(NAMES)
    assert len(set(NAMES.values())) == len(NAMES)


def test_both_definitions_of_no_pretraining_are_compared_on_the_same_seeds():
    first = [record("none", seed, [0.5, 0.6]) for seed in (0, 1)]
    more = [record("none", 2, [0.1, 0.1]), record("joao", 2, [0.9, 0.9]), record("joaov2", 0, [0.9, 0.9])]
    (line,) = redefined_lines([*RECORDS, *more], first)  # seed 2 has no first record, JOAOv2 one seed
    assert line[:4] == ["NCI1", "10 %", "JOAO", "2"]
    assert [cell.split()[0] for cell in line[4:]] == ["+22.50", "+7.50"]
    assert len(line) == len(REDEFINED_HEADER)


def test_the_last_epoch_is_compared_on_the_seeds_of_both_rules():
    last = [record("none_last", seed, [0.7, 0.9]) for seed in (0, 1, 2)] + [record("joao_last", 1, [0.5, 0.7])]
    lines = last_epoch_lines([*RECORDS, *last, record("joao", 0, [0.5], "DD")])
    none, joao, *absent = lines
    assert none[:3] == ["NCI1", NAMES["none"], "2"]  # the third seed has no selected epoch
    assert none[3].startswith("+10.00 (")  # 80 less 75, and 80 less 65
    assert joao == ["NCI1", "JOAO", "1", "-10.00"]  # one seed has no interval
    assert [line[2:] for line in absent] == [["0", "not run"], ["0", "not run"]]
    assert {len(line) for line in lines} == {len(LAST_EPOCH_HEADER)}
    with refused("NCI1", "folds"):
        last_epoch_lines([*RECORDS, record("joao_last", 1, [0.5, 0.7], split_hash="other")])
