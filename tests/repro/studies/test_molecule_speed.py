"""The study of reading molecules: its page by hand, and that it runs."""

import sys

import pytest

from repro.studies import molecule_speed as study
from repro.studies.common import read_record


def test_table_is_timed_and_its_file_measured(own_folders, tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    (tmp_path / "m.csv").write_text("smiles\n" + "\n".join(["CCO", "c1ccccc1", "CC(=O)O"] * 1000) + "\n")
    words = ["molecule_speed", str(tmp_path / "m.csv"), "--molecules", "2000", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    (row,) = read_record("molecule-speed")["rows"]
    assert (row["molecules"], row["timed"], row["repeats"]) == (3000, 2000, 3)
    with_smiles, without = (row[f"bytes per molecule, {kind}"] for kind in ("with SMILES", "graphs and labels alone"))
    # Three SMILES of 3, 8 and 7 characters, and a byte for the length of each; the header differs by a few names.
    assert 7 <= with_smiles - without < 7.5
    assert 0 < row["graphs, molecules per CPU second"] < float("inf")
