"""``joao data``: what is at hand, and what is in it."""

import json

import numpy as np

from joao.data import read
from joao.data.sources import BUNDLED


def test_listing(joao):
    outcome = joao("data")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == ["MUTAG", "Describe one: joao data MUTAG"]
    assert json.loads(joao("data", "--json").out) == {"data": ["MUTAG"]}


def test_listing_of_a_folder(joao, tmp_path):
    folder = tmp_path / "root" / "TINY"
    folder.mkdir(parents=True)
    (folder / "TINY_A.txt").write_text("1, 2\n2, 1\n")
    (folder / "TINY_graph_indicator.txt").write_text("1\n1\n")
    assert json.loads(joao("data", "--data-root", "root", "--json").out)["data"] == ["MUTAG", "TINY"]


def test_one_set_described(joao):
    facts = json.loads(joao("data", "MUTAG", "--json").out)
    dataset = read(BUNDLED / "MUTAG.zip")
    nodes = np.diff(dataset.first_node)
    assert facts["graphs"] == 188
    assert facts["classes"] == {"-1": 63, "1": 125}
    assert facts["nodes"] == {"mean": nodes.mean(), "least": nodes.min(), "most": nodes.max()}
    assert facts["edges"]["mean"] * 188 == dataset.num_edges
    assert facts["node labels"] == 7
    assert facts["fingerprint"] == dataset.fingerprint


def test_as_text(joao):
    lines = joao("data", "MUTAG").out.splitlines()
    assert lines[0] == "MUTAG: 188 graphs"
    assert "  nodes per graph: 17.93 (10 to 28)" in lines
    assert "  edges per graph: 19.79 (10 to 33)" in lines
    assert "  classes: -1: 63, 1: 125" in lines
    assert lines[-1] == "Next: joao pretrain MUTAG --out runs/MUTAG"


def test_unlabelled_graphs(joao, unlabelled):
    assert "  classes: none (pre-training needs none)" in joao("data", unlabelled).out.splitlines()
    assert json.loads(joao("data", unlabelled, "--json").out)["classes"] == {}
