"""The study of molecules on a CPU runs, and shows what it measured."""

import sys

import numpy as np
import pytest

from repro.studies import molecule_cpu as study
from repro.studies.common import read_record


def test_changed_embeddings_are_compared_and_timed(own_folders, tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    (tmp_path / "molecules").mkdir()
    (tmp_path / "molecules/m.csv").write_text("smiles\n" + "CCO\nc1ccccc1\nCC(=O)O\nCCN\n" * 3)
    monkeypatch.setenv("JOAO_DATA", str(tmp_path))
    monkeypatch.setattr(
        study, "measure_training", lambda *_: {"molecules": 1, "rates": {name: [2.0] for name in study.PRECISIONS}}
    )
    monkeypatch.setattr(sys, "argv", ["molecule_cpu", "m.csv", "--repeats", "1"])
    study.main()
    record = read_record("molecule-cpu")
    (row,) = record["rows"]
    assert row["molecules"] == 12
    assert row["largest relative change"] < 1e-5
    assert np.median(row["rates"][study.EMBEDDING]) > 0
    assert f"{row['largest relative change']:.1e}" in study.page(record)
