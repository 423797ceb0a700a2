"""``joao report``."""

import json
import shutil

import pytest

from tests.cli.conftest import assert_noted, assert_refused
from tests.messages import assert_mentions


def test_report_of_the_quickstart(joao, mutag_run, tmp_path):
    outcome = joao("report", mutag_run)
    assert (outcome.code, outcome.err) == (0, "")
    assert_mentions(outcome.out, "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    before = (tmp_path / "report.html").read_bytes()
    assert joao("report", mutag_run, "--quiet").out == ""
    assert (tmp_path / "report.html").read_bytes() == before  # no chance, no date


def test_only_reports_are_replaced(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    (tmp_path / "notes.html").write_text("<p>precious</p>")
    refused = joao("report", "run", "--out", "notes.html")
    assert refused.out == ""
    assert_refused(refused, "joao: notes.html: ", "joao report")
    assert (tmp_path / "notes.html").read_text() == "<p>precious</p>"


def test_figures(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 2, "--method", "infomax")
    outcome = joao("report", "run", "--figures", "figures", "--map", "tsne")
    assert (outcome.code, outcome.err) == (0, "")
    assert_mentions(outcome.out, "PDF", "SVG", "PNG", "map, training", "figures")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("map", "training") for kind in ("pdf", "svg", "png")
    }
    assert "t-SNE, perplexity 8" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_missing_graphs_give_a_notice(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    (tmp_path / labelled).unlink()
    outcome = joao("report", "run", "--out", "page.html")
    assert_noted(outcome, "joao: note: run: ", "labelled.jsonl")
    assert_mentions((tmp_path / "page.html").read_text(encoding="utf-8"), "labelled.jsonl: ")


def test_report_of_exports(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 2)
    joao("export", "run", "--out", "model.safetensors")
    outcome = joao("report", "model.safetensors", "run")
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 runs" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_report_of_a_fine_tuned_run(joao, mutag_tuned, tmp_path):
    outcome = joao("report", mutag_tuned)
    assert (outcome.code, outcome.err) == (0, "")
    accuracy = json.loads((mutag_tuned / "finetune.json").read_text())["scores"]["validation"]["accuracy"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert_mentions(page, "Fine-tuned", f"validation: accuracy {accuracy:.4f}")


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["nowhere"], ["joao: nowhere: ", "joao pretrain"]),
        (["."], ["joao: .: ", "run.json"]),
        (["RUN", "RUN"], ["RUN: "]),
        (["RUN", "--map", "tnse"], ["--map tnse: ", "'tsne'"]),
        (["RUN", "--out", "no/where.html"], ["joao: no/where.html: "]),
        (["RUN", "--out", "."], ["joao: .: "]),
        (["DAMAGED"], ["joao: DAMAGED/evaluation.json: ", "joao evaluate"]),
    ],
)
def test_invalid_input(joao, mutag_run, tmp_path, arguments, values):
    if "DAMAGED" in arguments:
        shutil.copytree(mutag_run, tmp_path / "DAMAGED")
        (tmp_path / "DAMAGED" / "evaluation.json").write_text("{}")
    outcome = joao("report", *(mutag_run if each == "RUN" else each for each in arguments))
    assert_refused(outcome, *(value.replace("RUN", str(mutag_run)) for value in values))
    assert not (tmp_path / "report.html").exists()
