"""The study of reading molecules: its page by hand, and that it runs."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def study():
    spec = importlib.util.spec_from_file_location("molecule_speed", ROOT / "repro/studies" / "molecule_speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_record_in_the_repository(study):
    record = json.loads((ROOT / "results" / "molecule-speed.json").read_text())
    assert (ROOT / "results" / "molecule-speed.md").read_text() == study.page(record)


def test_it_times_a_table_and_measures_its_file(study, tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    (tmp_path / "m.csv").write_text("smiles\n" + "\n".join(["CCO", "c1ccccc1", "CC(=O)O"] * 1000) + "\n")
    paths = [tmp_path / "m.csv", tmp_path / "r.json", tmp_path / "r.md"]
    monkeypatch.setattr(sys, "argv", ["molecule_speed.py", *map(str, paths), "--molecules", "2000", "--jobs", "1"])
    study.main()
    (row,) = json.loads(paths[1].read_text())["rows"]
    assert (row["molecules"], row["timed"], row["repeats"]) == (3000, 2000, 3)
    with_smiles, without = (row[f"bytes per molecule, {kind}"] for kind in ("with SMILES", "graphs and labels alone"))
    # Three SMILES of 3, 8 and 7 characters, and a byte for the length of each; the header differs by a few names.
    assert 7 <= with_smiles - without < 7.5
    assert 0 < row["graphs, molecules per CPU second"] < float("inf")
