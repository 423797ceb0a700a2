"""Rows of a table against figures worked out by hand."""

import pytest

from joao.evaluation.statistics import paired_gain
from repro.protocols.unsupervised.run import record_file
from repro.protocols.unsupervised.table import HEADER, cells_of, overview, rows
from repro.tables.names import NAMES
from repro.tables.pages import unsupervised_pages
from repro.tables.paper import Published
from repro.tables.rows import VARIANTS
from tests.messages import refused


def record(method, seed, accuracies, dataset="MUTAG", fold_hash=None, inductive=False):
    return {
        "cell": {"dataset": dataset, "method": method, "seed": seed, "inductive": inductive},
        "scores": {"partitions": [{"fold_hash": fold_hash or f"hash {seed}", "accuracies": accuracies}]},
    }


RECORDS = [
    record("untrained", 0, [0.80, 0.90]),
    record("untrained", 1, [0.70, 0.80]),
    record("joao", 0, [0.90, 1.00]),
    record("joao", 1, [0.70, 0.90]),
]


def test_row_matches_a_hand_computation():
    untrained, joao = rows(RECORDS)
    # joao: seeds 95 and 80, mean 87.5, deviation 15 / sqrt(2); untrained: 85 and 75.
    assert (joao.dataset, joao.method, joao.num_seeds) == ("MUTAG", "joao", 2)
    assert joao.mean == pytest.approx(87.5)
    assert joao.std == pytest.approx(15 / 2**0.5)
    assert untrained.mean == pytest.approx(80)
    assert untrained.gains == {}
    # Differences 10, 10, 0, 10: mean 7.5.
    assert joao.gains["untrained"].mean == pytest.approx(7.5)
    assert joao.gains["untrained"] == paired_gain([[90.0, 100.0], [70.0, 90.0]], [[80.0, 90.0], [70.0, 80.0]])
    assert joao.paper == Published(87.35, 1.02)


def test_row_as_text():
    joao = rows(RECORDS)[1]
    gain = joao.gains["untrained"]
    low, high = f"{gain.low:+.2f}", f"{gain.high:+.2f}"
    assert cells_of(joao) == [
        *("MUTAG", "JOAO", "87.50 ± 10.61", "2"),
        *(f"+7.50 ({low} to {high})", "", "87.35 ± 1.02", "+0.15"),
    ]
    assert len(cells_of(joao)) == len(HEADER)


def test_only_common_seeds_are_paired():
    found = rows([*RECORDS, record("joao", 2, [1.0, 1.0])])  # the untrained encoder has no seed 2
    joao = next(row for row in found if row.method == "joao")
    assert joao.num_seeds == 3
    assert joao.gains["untrained"] == rows(RECORDS)[1].gains["untrained"]


def test_scores_on_different_folds_are_not_paired():
    with refused("records", "seed 0"):
        rows([record("untrained", 0, [0.5, 0.5]), record("joao", 0, [0.5, 0.5], fold_hash="other")])


def test_inductive_records_have_a_separate_row_without_paper_figure():
    found = rows([*RECORDS, *(record("joao", seed, [0.6, 0.6], inductive=True) for seed in (0, 1))])
    assert [row.name for row in found] == [
        NAMES["untrained"],
        NAMES["joao"],
        f"{NAMES['joao']}, {VARIANTS['inductive']}",
    ]
    assert found[2].paper is None
    assert found[2].gains["untrained"].mean == pytest.approx(-20)  # over the same untrained encoder
    assert found[1].mean == pytest.approx(87.5)


def test_overview_matches_a_hand_computation():
    """Ranks are among the paper's rows: on MUTAG JOAO is before GraphCL, on NCI1 it is alone."""
    found = [
        *(record("untrained", 0, [0.5, 0.7]), record("graphcl", 0, [0.6, 0.7]), record("joao", 0, [0.8, 0.9])),
        record("joao", 0, [0.7, 0.8], dataset="NCI1"),
    ]
    shown = overview(rows(found))
    assert shown.header()[1:3] == ["MUTAG", "NCI1"]
    assert len(shown.header()) == 5
    assert shown.cells() == [
        [NAMES["untrained"], "60.0 [1]", "", "", ""],
        [NAMES["graphcl"], "65.0 (86.8, -21.8) [1]", "", "", "2.0 (2.6)"],
        ["JOAO", "**85.0** (87.3, -2.3) [1]", "**75.0** (78.1, -3.1) [1]", "80.0 (82.7, -2.7)", "1.0 (3.3)"],
    ]


def test_table_has_all_records_in_grid_order(tmp_path):
    found = [*RECORDS, record("joao", 0, [0.7, 0.8], dataset="NCI1"), record("older", 0, [0.5, 0.5])]
    record_file(tmp_path).write(*found)
    lines = unsupervised_pages(tmp_path).texts["table.md"].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert table[0] == HEADER
    assert [line[:3] for line in table[2:]] == [
        ["NCI1", "JOAO", "75.00"],
        ["MUTAG", NAMES["untrained"], "80.00 ± 7.07"],
        ["MUTAG", "JOAO", "87.50 ± 10.61"],
        ["MUTAG", "older", "50.00"],
    ]


def test_bold_figures_are_the_best_and_those_whose_difference_from_it_is_inconclusive():
    near = [record("wl", seed, [0.95 - 0.2 * seed, 0.85 + 0.1 * seed]) for seed in (0, 1)]
    far = [record("gl", seed, [0.5 + seed / 100, 0.5]) for seed in (0, 1)]
    cells = {line[0]: line[1] for line in overview(rows([*RECORDS[2:], *near, *far])).cells()}
    bold = {name for name, cell in cells.items() if cell.startswith("**")}
    assert bold == {NAMES["joao"], NAMES["wl"]}
