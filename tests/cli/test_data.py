"""``joao data``: what is at hand, and what is in it."""

import json

import numpy as np
import pytest

from joao.data import cache, read
from joao.data.sources import BUNDLED


def test_listing(joao):
    outcome = joao("data")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == ["MUTAG", "Describe one, or a file or folder of your own: joao data MUTAG"]
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
    assert facts["twins"] == {"with_twin": 24, "with_twin_of_another_class": 0}
    assert facts["fingerprint"] == dataset.fingerprint


def test_as_text(joao):
    lines = joao("data", "MUTAG").out.splitlines()
    assert lines[0] == "MUTAG: 188 graphs"
    assert "  nodes per graph: 17.93 (10 to 28)" in lines
    assert "  edges per graph: 19.79 (10 to 33)" in lines
    assert "  classes: -1: 63, 1: 125" in lines
    share = "12.8 % of the graphs have one, with the same edges and node labels, 0.0 % one of another class"
    assert f"  twins: {share}" in lines
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


def test_data_sets_of_ogb_are_described_with_their_split(joao, tmp_path, ogb_tables, write_ogb):
    for kind, name in (("code", "code2"), ("mol", "ogbg_molhiv"), ("ppa", "ogbg_ppa")):
        write_ogb(tmp_path / f"data/ogb/{name}.zip", ogb_tables(kind))
    code = joao("data", "ogbg-code2", "--data-root", "data")
    assert (code.code, code.err) == (0, "")
    assert code.out.startswith("ogbg-code2: 60 syntax trees\n")
    assert "official split by project: train: 40, validation: 10, test: 10" in code.out
    molecules = joao("data", "ogbg-molhiv", "--data-root", "data")
    assert "active: 0: 30, 1: 30, missing: 0" in molecules.out
    assert "official split by scaffold: train: 40, validation: 10, test: 10" in molecules.out
    found = json.loads(joao("data", "ogbg-ppa", "--data-root", "data", "--json").out)
    assert found["edge attributes"] == 7
    assert found["classes"] == {"0": 20, "1": 20, "2": 20}
    assert found["official split"] == {"by": "species", "train": 40, "validation": 10, "test": 10}


def test_ogb_trains_by_name_with_its_own_encoder(joao, tmp_path, ogb_tables, write_ogb):
    for kind, name, encoder in (("code", "code2", "syntax_gin"), ("mol", "ogbg_molhiv", "ogb_molecule_gin")):
        path = write_ogb(tmp_path / f"data/ogb/{name}.zip", ogb_tables(kind, 20))
        small = ["--epochs", "1", "--set", "encoder.width=8", "--device", "cpu"]
        outcome = joao("pretrain", f"data/ogb/{path.name}", "--out", f"runs/{kind}", *small)
        assert outcome.code == 0, outcome.err
        assert f'name = "{encoder}"' in (tmp_path / f"runs/{kind}/recipe.toml").read_text()
        embedded = joao("embed", f"runs/{kind}", f"data/ogb/{path.name}", "--out", f"{kind}.npz")
        assert embedded.code == 0, embedded.err
        exported = joao("export", f"runs/{kind}", "--out", f"{kind}.safetensors")
        assert exported.code == 0, exported.err
    pytest.importorskip("rdkit")
    tuned = joao("finetune", "mol.safetensors", "ogbg-molhiv", "--out", "tuned", "--epochs", "1", "--data-root", "data")
    assert tuned.code == 2  # chains have one scaffold, none
    assert "labelled ogb_molecules in a scaffold split are" in tuned.err
    arguments = ["--split", "random", "--out", "tuned", "--epochs", "1", "--data-root", "data"]
    assert joao("finetune", "mol.safetensors", "ogbg-molhiv", *arguments).code == 0
