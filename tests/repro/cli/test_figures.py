"""Figures 2 and 3 as commands."""

import json

import pytest

from repro.protocols import gamma
from repro.protocols.unsupervised import run as unsupervised
from tests.cli.conftest import assert_refused
from tests.messages import assert_mentions


def test_figure_3_from_records(repro, tmp_path):
    scores = {"partitions": [{"accuracies": [1.0], "fold_hash": "a"}]}
    policy = {"augmentations": ["node_drop", "identity"], "drawn": [[1, 0], [0, 3]]}
    for dataset in ("NCI1", "PROTEINS"):
        cell = {"dataset": dataset, "method": "joao", "seed": 0, "inductive": False}
        unsupervised.record_file(tmp_path / "records").write({"cell": cell, "policy": policy, "scores": scores})
    arguments = ["figure-3", "--records", "records", "--figures", "pictures"]
    outcome = repro(*arguments, "--only", "NCI1,PROTEINS", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["figures"] == [f"pictures/figure-3.{kind}" for kind in ("pdf", "svg", "png")]
    assert_refused(repro(*arguments), "records: ", "COLLAB", "python -m repro")


@pytest.mark.slow
def test_figure_2_computes_missing_cells(repro, made_data, tmp_path, monkeypatch):
    root = made_data("PROTEINS", num_graphs=12)
    monkeypatch.setattr(gamma, "GAMMAS", (0.1, 1.0))
    monkeypatch.setattr(gamma, "SEEDS", (0,))
    arguments = ["figure-2", "--only", "PROTEINS", "--out", "records", "--figures", "pictures"]
    arguments += ["--data-root", root, "--jobs", 1, "--device", "cpu"]
    outcome = repro(*arguments)
    assert outcome.code == 0, outcome.err
    assert_mentions(outcome.out.splitlines()[0], "2 ", "0 ")
    assert [record["cell"]["gamma"] for record in gamma.record_file(tmp_path / "records").read()] == [0.1, 1.0]
    assert (tmp_path / "records/gamma/table.md").exists()
    assert (tmp_path / "pictures" / "figure-2.pdf").exists()
    assert "0 " not in repro(*arguments).out.splitlines()[0]
