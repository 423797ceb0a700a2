"""Records of several gamma."""

import copy
import dataclasses

import pytest

from joao.data.synthetic import random_graphs
from repro.protocols.gamma import Cell, cell_recipe, cells, compute, is_done, record_file
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import RECORDS
from tests.messages import refused


def test_grid_and_recipe_of_a_cell():
    assert len(cells()) == 2 * 4 * 3
    joao = unsupervised.cell_recipe(unsupervised.Cell("NCI1", "joao", 1))
    own = cell_recipe(Cell("NCI1", 10.0, 1))
    assert own.policy.options == {**joao.policy.options, "gamma": 10.0}
    assert dataclasses.replace(own, policy=joao.policy) == joao
    assert cell_recipe(Cell("NCI1", 0.1, 1)) == joao
    with refused("'NCI'", "'NCI1'"):
        cells(["NCI"])


def test_record_has_every_epoch_and_is_recognised(tmp_path):
    cell = Cell("MUTAG", 0.1, 0)
    record = compute(cell, random_graphs(20), device="cpu")
    assert len(record["losses"]) == len(record["probabilities"]) == 20
    assert sum(map(sum, record["probabilities"][-1])) == pytest.approx(1)
    assert {"command", "versions", "machine"} <= set(record)
    file = record_file(tmp_path)
    assert not is_done(cell, tmp_path)
    file.write(record)
    assert is_done(cell, tmp_path)
    record = copy.deepcopy(record)
    record["recipe"]["training"]["epochs"] = 3
    file.write(record)
    with refused(file.path, "gamma 0.1", "MUTAG", "recipe"):
        is_done(cell, tmp_path)
    file.path.write_text("{}")
    with refused(file.path, "line 1"):
        is_done(cell, tmp_path)


def test_project_records_are_complete():
    assert all(is_done(cell, RECORDS) for cell in cells())
