"""``joao report`` and the figures of the paper, as commands."""

import json
import shutil

import pytest


def test_a_report_of_the_quickstart(joao, mutag_run, tmp_path):
    outcome = joao("report", mutag_run)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Report: report.html (" in outcome.out
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    before = (tmp_path / "report.html").read_bytes()
    assert joao("report", mutag_run, "--quiet").out == ""
    assert (tmp_path / "report.html").read_bytes() == before  # no chance, no date


def test_only_a_page_is_replaced(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    (tmp_path / "notes.html").write_text("<p>precious</p>")
    refused = joao("report", "run", "--out", "notes.html")
    told = "notes.html: exists already and is no page of 'joao report'. Choose another name or remove it first."
    assert (refused.code, refused.out, refused.err) == (2, "", f"joao: {told}\n")
    assert (tmp_path / "notes.html").read_text() == "<p>precious</p>"


def test_pictures(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 2, "--method", "infomax")
    outcome = joao("report", "run", "--figures", "figures", "--map", "tsne")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Pictures, each as PDF, SVG and PNG: map, training in figures" in outcome.out
    assert len(list((tmp_path / "figures").iterdir())) == 6
    assert "t-SNE, perplexity 8" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_graphs_that_are_not_at_hand_are_told_and_the_page_is_written(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    (tmp_path / labelled).unlink()
    outcome = joao("report", "run", "--out", "page.html")
    assert outcome.code == 0
    assert outcome.err.count("\n") == 1
    assert (
        "run: no map of embeddings. The graphs of the run are not at hand: run: its graphs: labelled.jsonl"
        in outcome.err
    )
    assert "not at hand" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_run_that_was_exported(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 2)
    joao("export", "run", "--out", "model.safetensors")
    outcome = joao("report", "model.safetensors", "run")
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 runs" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_fine_tuned_run(joao, mutag_tuned, tmp_path):
    outcome = joao("report", mutag_tuned)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Fine-tuned with labels. validation: " in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: is not a run: there is no such folder. Make one with 'joao pretrain'."),
        (["."], "is not a run: it has no run.json."),
        (["RUN", "RUN"], "is named twice. Name every run once."),
        (["RUN", "--map", "tnse"], "--map tnse: unknown kind of map. Did you mean 'tsne'?"),
        (["RUN", "--out", "no/where.html"], "where.html: its folder no does not exist."),
        (["RUN", "--out", "."], ".: is a folder. Name a file in it."),
        (["DAMAGED"], "evaluation.json: is not a record of 'joao evaluate'"),
    ],
)
def test_wrong_input_is_one_line(joao, mutag_run, tmp_path, arguments, message):
    if "DAMAGED" in arguments:
        shutil.copytree(mutag_run, tmp_path / "DAMAGED")
        (tmp_path / "DAMAGED" / "evaluation.json").write_text("{}")
    outcome = joao("report", *(mutag_run if each == "RUN" else each for each in arguments))
    assert outcome.code == 2
    assert outcome.err.startswith("joao: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert not (tmp_path / "report.html").exists()


def test_figure_3_from_records(joao, tmp_path):
    for dataset in ("NCI1", "PROTEINS"):
        cell = {"dataset": dataset, "method": "joao", "seed": 0, "inductive": False}
        policy = {"augmentations": ["node_drop", "identity"], "drawn": [[1, 0], [0, 3]]}
        scores = {"partitions": [{"accuracies": [1.0], "fold_hash": "a"}]}
        (tmp_path / "records" / dataset).mkdir(parents=True)
        record = {"cell": cell, "policy": policy, "scores": scores}
        (tmp_path / "records" / dataset / "joao-0.json").write_text(json.dumps(record))
    arguments = ["reproduce", "figure-3", "--records", "records", "--figures", "pictures"]
    outcome = joao(*arguments, "--only", "NCI1,PROTEINS", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["figures"] == [f"pictures/figure-3.{kind}" for kind in ("pdf", "svg", "png")]
    assert joao(*arguments).err == "joao: records/COLLAB: has no record of joao. Make some with 'joao reproduce'.\n"


def test_figure_2_computes_what_is_missing(joao, made_data, tmp_path, monkeypatch):
    from repro.protocols import gamma

    root = made_data("PROTEINS", num_graphs=12)
    monkeypatch.setattr(gamma, "GAMMAS", (0.1, 1.0))
    monkeypatch.setattr(gamma, "SEEDS", (0,))
    arguments = ["reproduce", "figure-2", "--only", "PROTEINS", "--out", "records", "--figures", "pictures"]
    arguments += ["--data-root", root, "--jobs", 1, "--device", "cpu"]
    outcome = joao(*arguments)
    assert outcome.code == 0, outcome.err
    assert "2 pre-trainings, 0 done before." in outcome.out
    assert sorted(path.name for path in (tmp_path / "records" / "PROTEINS").iterdir()) == [
        "gamma-0.1-0.json",
        "gamma-1-0.json",
    ]
    assert (tmp_path / "pictures" / "figure-2.pdf").exists()
    assert "2 pre-trainings, 2 done before." in joao(*arguments).out
