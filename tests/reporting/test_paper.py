"""The paper's figures are found under the names that this project uses."""

import tomllib
from importlib.resources import files

import pytest

from joao.reporting.paper import COLUMNS, ROWS, Published, unsupervised
from joao.reproduce.unsupervised import grid

TABLE = tomllib.loads((files("joao.reporting") / "paper_results.toml").read_text(encoding="utf-8"))["unsupervised"]


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize("dataset", COLUMNS)
def test_a_cell_is_the_one_of_the_file(method, dataset):
    assert unsupervised(method, dataset) == Published(**TABLE[ROWS[method]][COLUMNS[dataset]])


def test_some_figures_by_hand():
    assert unsupervised("joao", "REDDIT-MULTI-5K") == Published(55.74, 0.63)
    assert unsupervised("joaov2", "MUTAG") == Published(87.67, 0.79)
    assert unsupervised("graphcl", "COLLAB") == Published(71.36, 1.15)


@pytest.mark.parametrize(("method", "dataset"), [("uniform", "NCI1"), ("joao-inductive", "NCI1"), ("joao", "ENZYMES")])
def test_what_the_paper_has_not(method, dataset):
    assert unsupervised(method, dataset) is None


def test_every_data_set_of_the_table_has_a_column():
    assert set(grid()["datasets"]) == set(COLUMNS)
    assert set(ROWS) <= set(grid()["methods"])
