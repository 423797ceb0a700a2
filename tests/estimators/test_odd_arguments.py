"""Arguments of a wrong type or value are refused in one line that names them."""

import numpy as np
import pytest

import joao
from tests.messages import refused

GRAPHS = joao.read("MUTAG")[:20]
LONG = "a" * 300  # no file system of ours has names of more than 255 bytes


@pytest.fixture
def fitted():
    return joao.JOAOClassifier(epochs=1, device="cpu").fit(GRAPHS, GRAPHS.classes)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("smiles,name,y\nCCO,a,1\nCC,b,2\n")
    return path


@pytest.mark.parametrize("value", [3, None, b"molecules", ["molecules"], LONG])
def test_models(value):
    named = 300 if value == LONG else repr(value)
    for call in (joao.load, joao.JOAO.load, joao.JOAOClassifier.load, joao.Embedder):
        with refused(named):
            call(value)
    with refused(named):
        joao.embed(["CCO"], value)


def test_paths(fitted, table):
    pytest.importorskip("rdkit")
    with refused("folder", 3):
        fitted.save(3)
    with refused("out", 3):
        joao.embed(table, "molecules", 3)
    with refused("out", 3):
        joao.compare(GRAPHS, ["wl"], out=3)
    with refused(300):
        joao.read(LONG)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"tasks": 3}, ["tasks", 3]),
        ({"tasks": ["name"]}, ["'name'"]),
        ({"smiles": 3}, [3, "smiles", "name"]),
        ({"identifiers": ["a"]}, ["a", "smiles", "name"]),
        ({"jobs": 0}, ["jobs", 0]),
        ({"jobs": "x"}, ["jobs", "'x'"]),
    ],
)
def test_options_of_read(table, options, values):
    with refused(*values):
        joao.read(table, **options)


def test_values_without_length():
    for value in (np.array(3), np.array("MUTAG")):
        with refused("list", error=joao.UserError):
            joao.read(value)


def test_parts_and_batches(table, tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    with refused("workers", 0):
        joao.embed(table, "molecules", tmp_path / "parts", workers=0)
    with refused("engine", 3, "local", "ray"):
        joao.embed(table, "molecules", tmp_path / "parts", engine=3)
    assert not (tmp_path / "parts").exists()
    with refused("CCO"):
        joao.Embedder("molecules", device="cpu")(["CCO"])


def test_labels_in_rows_of_different_lengths(fitted):
    ragged = [[0, 1]] * 19 + [[0]]
    for call in (fitted.score, joao.JOAOClassifier(epochs=1).fit, joao.JOAORegressor(epochs=1).fit):
        with refused(GRAPHS.name, "y"):
            call(GRAPHS, ragged)
