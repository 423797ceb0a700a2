"""Rows of the semi-supervised tables against figures worked out by hand."""

from dataclasses import astuple

import pytest

from repro.intervals import estimate_gain
from repro.protocols.semi_supervised.run import PAIRS, grid
from repro.protocols.semi_supervised.table import (
    HEADER,
    LAST_EPOCH_HEADER,
    LAST_EPOCH_MEANS_HEADER,
    REDEFINED_HEADER,
    cells_of,
    last_epoch_lines,
    last_epoch_mean_lines,
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


def test_row_as_text():
    joao = rows(RECORDS)[1]
    assert cells_of(joao) == [
        *("NCI1", "10 %", "JOAO", "77.50 ± 10.61", "2", "+7.50 (-7.71 to +22.71)", "74.48 ± 0.27", "+3.02", "tf32")
    ]
    assert len(HEADER) == len(cells_of(joao))


def test_label_rates_and_data_sets_are_separate():
    more = [
        record("joao", 0, [0.5], label_rate=1),
        record("none", 0, [0.4], "COLLAB"),
        record("joao", 0, [0.6], "COLLAB"),
    ]
    found = {(row.dataset, row.label_rate, row.method): row for row in rows([*RECORDS, *more])}
    assert len(found) == 5
    assert found["NCI1", 10, "joao"] == rows(RECORDS)[1]
    assert found["NCI1", 1, "joao"].mean == pytest.approx(50)
    assert found["NCI1", 1, "joao"].paper == Published(61.97, 0.72)
    assert found["NCI1", 1, "joao"].gain is None  # no baseline at 1 %
    assert found["COLLAB", 10, "joao"].paper == Published(75.30, 0.32)


def test_only_common_seeds_are_paired():
    more = [record("joao", 2, [1.0]), record("none", 3, [0.1])]
    joao = next(row for row in rows([*more, *RECORDS]) if row.method == "joao")
    assert joao.num_seeds == 3
    assert joao.mean == pytest.approx((100 + 85 + 70) / 3)
    assert astuple(joao.gain) == pytest.approx(
        astuple(estimate_gain([[80, 90], [60, 80]], [[70, 80], [60, 70]]).interval())
    )


def test_one_seed_has_neither_deviation_nor_gain():
    none, joao = rows([RECORDS[0], RECORDS[2]])
    assert (joao.std, joao.gain) == (None, None)
    assert cells_of(joao)[3:6] == ["85.00", "1", ""]
    assert cells_of(none)[5] == ""


@pytest.mark.parametrize("seeds", [1, 2])
def test_scores_on_different_labels_are_not_paired(seeds):
    records = [each for each in RECORDS if each["cell"]["seed"] < seeds]
    records[-1] = records[-1] | {"split_hash": "other"}
    with refused("records", f"seed {seeds - 1}"):
        rows(records)


def test_strength_ablation_is_compared_with_its_own_figures():
    methods = ["none", "joao", "joao_stronger", "joaov2", "joaov2_stronger"]
    records = [record(method, 0, [0.6], "NCI1", 1) for method in methods]
    records += [record(method, 0, [0.6], "PROTEINS") for method in methods]
    papers = {(row.dataset, row.method): row.paper for row in rows(records, of_strength=True)}
    assert papers == {
        ("NCI1", "none"): None,
        ("NCI1", "joao"): Published(61.77, 1.61),
        ("NCI1", "joao_stronger"): Published(60.95, 0.55),
        ("NCI1", "joaov2"): Published(62.52, 1.16),
        ("NCI1", "joaov2_stronger"): Published(61.67, 0.72),
        ("PROTEINS", "none"): None,
        ("PROTEINS", "joao"): Published(71.45, 0.89),
        ("PROTEINS", "joao_stronger"): Published(71.61, 1.65),
        ("PROTEINS", "joaov2"): Published(71.66, 1.10),
        ("PROTEINS", "joaov2_stronger"): Published(73.01, 1.02),
    }
    table = {(row.dataset, row.method): row.paper for row in rows(records)}
    assert table["NCI1", "joao"] == Published(61.97, 0.72)  # the paper's tables differ
    assert table["NCI1", "joao_stronger"] is None


def test_rows_missing_in_the_paper_have_no_difference():
    (row,) = rows([record("node_drop+subgraph", 0, [0.6])])
    assert row.name == "node_drop+subgraph"
    assert cells_of(row)[6:] == ["", "", "tf32"]


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


def test_means_of_the_last_epoch_are_over_finished_sets():
    scores = {
        "NCI1": {"none": 0.6, "joao": 0.7, "none_last": 0.5, "joao_last": 0.6},
        "DD": {"none": 0.7, "joao": 0.6, "none_last": 0.7, "joao_last": 0.8},
    }
    made = [
        record(method, seed, [score, score], dataset)
        for dataset, of_method in scores.items()
        for method, score in of_method.items()
        for seed in range(5)
    ]
    unfinished = [record(method, 0, [0.1, 0.1], "COLLAB") for method in scores["DD"]]
    none, joao = last_epoch_mean_lines([*made, *unfinished])
    assert none[:4] == [NAMES["none"], "2", "65.00", "60.00"]
    assert joao[:4] == ["JOAO", "2", "65.00", "70.00"]
    # JOAO changes by -10 and 20: mean 5, standard error 15; t with one degree of freedom at 97.5 % is 12.7062.
    assert joao[4] == "+5.00 (-185.59 to +195.59)"
    assert joao[5] == "+10.00 (+10.00 to +10.00)"
    assert none[5] == ""
    assert {len(none), len(joao)} == {len(LAST_EPOCH_MEANS_HEADER)}
    assert not last_epoch_mean_lines(made[:20])  # one set


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
