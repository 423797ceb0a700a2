"""``joao report``."""

import json
import re
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


def page_data(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1])


def test_report_of_a_fine_tuned_run(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    joao("finetune", "run", labelled, "--out", "tuned", "--epochs", 1)
    outcome = joao("report", "tuned")
    assert (outcome.code, outcome.err) == (0, "")
    accuracy = json.loads((tmp_path / "tuned" / "finetune.json").read_text())["scores"]["validation"]["accuracy"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert_mentions(page, "fine-tuned", f"{100 * accuracy:.1f} %")
    assert len(page_data(tmp_path / "report.html")["runs"][0]["map"]["x"]) == 24
    (tmp_path / labelled).rename(tmp_path / "moved.jsonl")
    assert_noted(joao("report", "tuned"), "joao: note: tuned: ", "labelled.jsonl")
    outcome = joao("report", "tuned", "moved.jsonl")
    assert (outcome.code, outcome.err) == (0, "")
    assert page_data(tmp_path / "report.html")["runs"][0]["map"]["note"] == ""


def test_graphs_given_on_the_command_line(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    lines = (tmp_path / labelled).read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(lines[:5]))
    outcome = joao("report", "run", "some.jsonl")
    assert (outcome.code, outcome.err) == (0, "")
    (run,) = page_data(tmp_path / "report.html")["runs"]
    assert len(run["map"]["x"]) == 5
    assert "some" in run["map"]["note"]
    assert joao("pack", labelled, "--out", "packed.safetensors").code == 0  # not an export
    assert joao("report", "run", "packed.safetensors").code == 0
    assert len(page_data(tmp_path / "report.html")["runs"][0]["map"]["x"]) == 24


def test_runs_of_several_shards_show_their_graphs(joao, labelled, tmp_path):
    joao("pack", labelled, "--out", "store", "--shard-graphs", 10)
    joao("pretrain", "store", "--out", "run", "--epochs", 1)
    joao("evaluate", "run", "--folds", 2)
    outcome = joao("report", "run")
    assert (outcome.code, outcome.err) == (0, "")
    assert len(page_data(tmp_path / "report.html")["runs"][0]["map"]["x"]) == 24
    assert "other graphs" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["nowhere"], ["joao: nowhere: ", "joao pretrain"]),
        (["."], ["joao: .: ", "run.json"]),
        (["RUN", "RUN"], ["RUN: "]),
        (["RUN", "nowhere"], ["joao: nowhere: ", "neither a run"]),
        (["nowhere", "MUTAG"], ["joao: nowhere: ", "joao pretrain"]),
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
