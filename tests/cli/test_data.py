"""``joao data``: what is at hand, and what is in it."""

import json

import numpy as np

from joao.data import cache, read
from joao.data.sources import BUNDLED


def test_listing(joao):
    outcome = joao("data")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == ["MUTAG", "Describe one: joao data MUTAG"]
    assert json.loads(joao("data", "--json").out) == {"data": ["MUTAG"], "packed": {"files": 0, "bytes": 0}}


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


def test_packed_copies_are_shown_and_removed(joao, labelled, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "SMALLEST_SOURCE", 1)
    described = joao("data", labelled).out
    [file] = (tmp_path / "kept" / "packed").iterdir()
    packed = {"files": 1, "bytes": file.stat().st_size}
    assert joao("data", labelled).out == described
    assert json.loads(joao("data", "--json").out)["packed"] == packed
    held = f"1 (0.0 MB) in {file.parent}"
    assert f"Packed copies for a quick start: {held}. Remove them: joao data --clear-cache" in joao("data").out
    refused = joao("data", labelled, "--clear-cache")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("joao: --clear-cache takes no DATA")
    assert file.exists()
    assert joao("data", "--clear-cache").out == f"Packed copies removed: {held}.\n"
    assert not file.exists()
    assert joao("data", "--clear-cache").out == "No packed copies to remove.\n"
    assert json.loads(joao("data", "--clear-cache", "--json").out) == {"removed": {"files": 0, "bytes": 0}}


def test_a_cache_that_cannot_be_written_gives_one_note(joao, labelled, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "occupied"))
    monkeypatch.setattr(cache, "SMALLEST_SOURCE", 1)
    outcome = joao("data", labelled)
    assert outcome.code == 0
    [line] = outcome.err.splitlines()
    assert line.startswith("joao: note: labelled: cannot be kept for a quicker start: ")
    assert line.endswith("cannot be made (Not a directory). Set JOAO_CACHE to another folder, or to off.")
