"""The paper's figures are found under the names that this project uses."""

import tomllib
from importlib.resources import files
from itertools import product

import pytest

from repro.protocols.ogb import run as ogb
from repro.protocols.semi_supervised import run as few_labels
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised.run import grid
from repro.tables.paper import COLUMNS, ROWS, Published, semi_supervised, strength, unsupervised, unsupervised_rank

PAPER = tomllib.loads((files("joao.report") / "paper_results.toml").read_text(encoding="utf-8"))


def cell_of(table, method, dataset):
    cell = table.get(ROWS[method], {}).get(COLUMNS[dataset])
    return Published(**cell) if cell else None


def test_cells_match_the_file():
    for cell in product(ROWS, COLUMNS):
        assert unsupervised(*cell) == cell_of(PAPER["unsupervised"], *cell), cell
        for rate in (1, 10):
            assert semi_supervised(*cell, rate) == cell_of(PAPER["semi_supervised"][str(rate)], *cell), cell


def test_selected_figures_match_the_paper():
    assert unsupervised("joao", "REDDIT-MULTI-5K") == Published(55.74, 0.63)
    assert unsupervised("joaov2", "MUTAG") == Published(87.67, 0.79)
    assert unsupervised("graphcl", "COLLAB") == Published(71.36, 1.15)
    assert semi_supervised("none", "NCI1", 1) == Published(60.72, 0.45)
    assert semi_supervised("context_pred", "COLLAB", 1) == Published(57.60, 2.07)
    assert semi_supervised("gae", "REDDIT-BINARY", 10) == Published(87.69, 0.40)
    assert semi_supervised("joaov2", "github_stargazers", 10) == Published(66.66, 0.60)
    assert strength("joaov2", "PROTEINS", 0.25) == Published(73.01, 1.02)
    assert strength("joao", "NCI1", 0.2) == Published(61.77, 1.61)


@pytest.mark.parametrize(("method", "dataset"), [("uniform", "NCI1"), ("joao-inductive", "NCI1"), ("joao", "ENZYMES")])
def test_cells_missing_in_the_paper(method, dataset):
    assert unsupervised(method, dataset) is None
    assert semi_supervised(method, dataset, 10) is None
    assert strength(method, dataset, 0.2) is None


def test_cells_missing_in_the_semi_supervised_tables_of_the_paper():
    assert semi_supervised("joao", "PROTEINS", 1) is None
    assert semi_supervised("joao", "NCI1", 5) is None
    assert strength("none", "NCI1", 0.2) is None
    assert strength("joao", "NCI1", 0.3) is None
    assert strength("joao", "COLLAB", 0.2) is None


def test_every_data_set_of_the_tables_has_a_column():
    grids = grid(), few_labels.grid(), transfer.grid()
    of_paper = {name for name in ogb.grid()["datasets"] if not name.startswith("ogbg-mol")}
    assert {name for each in grids for name in each["datasets"]} | of_paper == set(COLUMNS)
    assert set(ROWS) <= {name for each in grids for name in each["methods"]}


def test_every_cell_of_the_published_tables_has_its_figure():
    for method in ("infograph", "graphcl", "joao", "joaov2"):
        assert all(unsupervised(method, dataset) for dataset in grid()["datasets"])
    assert set(PAPER["unsupervised"]) == {ROWS[name] for name in grid()["methods"].keys() & ROWS.keys()}
    assert unsupervised_rank("joao") == PAPER["unsupervised"]["JOAO"]["rank"]
    assert unsupervised_rank("uniform") is None
    cells = few_labels.cells("semi_supervised")
    absent = {cell.method for cell in cells if semi_supervised(cell.method, cell.dataset, cell.label_rate) is None}
    assert absent == {"augmentations_all"}
