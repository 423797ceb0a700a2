"""Records of several gamma."""

import dataclasses
import json
from pathlib import Path

import pytest

from joao.data.synthetic import random_graphs
from repro.protocols.cells import write
from repro.protocols.gamma import Cell, cell_recipe, cells, compute, is_done
from repro.protocols.unsupervised import run as unsupervised
from tests.messages import refused

ROOT = Path(__file__).parent.parent.parent


def test_the_grid_and_what_a_cell_changes():
    assert len(cells()) == 2 * 4 * 3
    joao = unsupervised.cell_recipe(unsupervised.Cell("NCI1", "joao", 1))
    own = cell_recipe(Cell("NCI1", 10.0, 1))
    assert own.policy.options == {**joao.policy.options, "gamma": 10.0}
    assert dataclasses.replace(own, policy=joao.policy) == joao
    assert cell_recipe(Cell("NCI1", 0.1, 1)) == joao
    with refused("'NCI'", "'NCI1'"):
        cells(["NCI"])


def test_a_record_holds_every_epoch_and_is_known_again(tmp_path):
    cell = Cell("MUTAG", 0.1, 0)
    record = compute(cell, random_graphs(20), device="cpu")
    assert len(record["losses"]) == len(record["probabilities"]) == 20
    assert sum(map(sum, record["probabilities"][-1])) == pytest.approx(1)
    assert {"command", "versions", "machine"} <= set(record)
    path = cell.path(tmp_path)
    assert not is_done(cell, tmp_path)
    write(path, record)
    assert is_done(cell, tmp_path)
    record["recipe"]["training"]["epochs"] = 3
    path.write_text(json.dumps(record))
    with refused(path, "gamma 0.1", "MUTAG", "recipe"):
        is_done(cell, tmp_path)
    path.write_text("{}")
    with refused(path):
        is_done(cell, tmp_path)


def test_the_records_of_the_project():
    assert all(is_done(cell, ROOT / "results" / "gamma") for cell in cells())
