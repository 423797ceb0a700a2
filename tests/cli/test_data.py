"""``joao data``: list and describe data sets."""

import json

import numpy as np
import pytest

from joao.data import cache, read
from joao.data.names import BUNDLED
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions


def test_listing(joao):
    outcome = joao("data")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[:-1] == ["MUTAG"]
    assert last_command(outcome) == ["data", "MUTAG"]
    assert json.loads(joao("data", "--json").out) == {"data": ["MUTAG"], "packed": {"files": 0, "bytes": 0}}


def test_listing_of_a_folder(joao, tmp_path):
    folder = tmp_path / "root" / "TINY"
    folder.mkdir(parents=True)
    (folder / "TINY_A.txt").write_text("1, 2\n2, 1\n")
    (folder / "TINY_graph_indicator.txt").write_text("1\n1\n")
    assert json.loads(joao("data", "--data-root", "root", "--json").out)["data"] == ["MUTAG", "TINY"]


def test_description_as_json(joao):
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


def test_description_as_text(joao):
    outcome = joao("data", "MUTAG")
    lines = outcome.out.splitlines()
    assert lines[0].startswith("MUTAG: 188 ")
    for values in (["17.93", "10", "28"], ["19.79", "10", "33"], ["-1: 63", "1: 125"], ["12.8 %", "0.0 %"]):
        assert len([line for line in lines if all(value in line for value in values)]) == 1, values
    assert last_command(outcome) == ["pretrain", "MUTAG", "--out", "runs/MUTAG"]


def test_unlabelled_graphs(joao, unlabelled):
    outcome = joao("data", unlabelled)
    assert last_command(outcome) == ["pretrain", unlabelled, "--out", "runs/unlabelled"]
    assert json.loads(joao("data", unlabelled, "--json").out)["classes"] == {}


def test_graphs_without_a_class_are_counted(joao, tmp_path):
    graph = '{"num_nodes": 2, "edges": [[0, 1]]'
    (tmp_path / "some.jsonl").write_text(f'{graph}, "label": "a"}}\n{graph}}}\n{graph}}}\n')
    assert "a: 1, missing: 2" in joao("data", "some.jsonl").out


def test_cache_is_shown_and_cleared(joao, labelled, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "MIN_SOURCE_BYTES", 1)
    described = joao("data", labelled).out
    [file] = (tmp_path / "kept" / "packed").iterdir()
    packed = {"files": 1, "bytes": file.stat().st_size}
    assert joao("data", labelled).out == described
    assert json.loads(joao("data", "--json").out)["packed"] == packed
    held = ["1", "0.0 MB", file.parent]
    assert_mentions(joao("data").out, *held, "joao data --clear-cache")
    refused = joao("data", labelled, "--clear-cache")
    assert refused.out == ""
    assert_refused(refused, "--clear-cache", "DATA")
    assert file.exists()
    assert_mentions(joao("data", "--clear-cache").out, *held)
    assert not file.exists()
    assert str(file.parent) not in joao("data", "--clear-cache").out
    assert json.loads(joao("data", "--clear-cache", "--json").out) == {"removed": {"files": 0, "bytes": 0}}


def test_unwritable_cache_gives_one_notice(joao, labelled, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "occupied"))
    monkeypatch.setattr(cache, "MIN_SOURCE_BYTES", 1)
    assert_noted(joao("data", labelled), "joao: note: labelled: ", tmp_path / "occupied", "JOAO_CACHE", "off")


def test_ogb_data_sets_are_described_with_their_split(joao, tmp_path, ogb_tables, write_ogb):
    for kind, name in (("code", "code2"), ("mol", "ogbg_molhiv"), ("ppa", "ogbg_ppa")):
        write_ogb(tmp_path / f"data/ogb/{name}.zip", ogb_tables(kind))
    code = joao("data", "ogbg-code2", "--data-root", "data")
    assert (code.code, code.err) == (0, "")
    assert code.out.startswith("ogbg-code2: 60 ")
    assert_mentions(code.out, "project: train: 40, validation: 10, test: 10")
    molecules = joao("data", "ogbg-molhiv", "--data-root", "data")
    assert_mentions(molecules.out, "active: 0: 30, 1: 30, missing: 0", "scaffold: train: 40, validation: 10, test: 10")
    found = json.loads(joao("data", "ogbg-ppa", "--data-root", "data", "--json").out)
    assert found["edge attributes"] == 7
    assert found["classes"] == {"0": 20, "1": 20, "2": 20}
    assert found["official split"] == {"by": "species", "train": 40, "validation": 10, "test": 10}


def test_ogb_data_sets_get_their_own_encoder(joao, tmp_path, ogb_tables, write_ogb):
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
    assert_refused(tuned, "ogb_molecules", "scaffold")  # chains have one scaffold, none
    arguments = ["--split", "random", "--out", "tuned", "--epochs", "1", "--data-root", "data"]
    assert joao("finetune", "mol.safetensors", "ogbg-molhiv", *arguments).code == 0
