"""``joao export``: one file that every command accepts in place of a run folder."""

import json
import re

import pytest

from joao.runs import trained as shipping
from tests.cli.conftest import assert_refused, last_command
from tests.messages import assert_mentions


@pytest.fixture
def model(joao, mutag_run):
    assert joao("export", mutag_run, "--out", "model.safetensors", "--quiet").code == 0
    return "model.safetensors"


def test_output(joao, mutag_run, tmp_path):
    outcome = joao("export", mutag_run, "--out", "model.safetensors", "--half")
    assert (outcome.code, outcome.err) == (0, "")
    size = (tmp_path / "model.safetensors").stat().st_size
    first, second, _ = outcome.out.splitlines()
    assert_mentions(first, "model.safetensors: ", f"{size / 1000:.1f} kB", "model.md")
    assert 0 < float(re.search(r"0\.0\d+", second)[0]) < 0.01  # how much half precision changes
    assert last_command(outcome) == ["embed", "model.safetensors", "MUTAG", "--out", "embeddings.csv"]


def test_json(joao, mutag_run, tmp_path):
    told = json.loads(joao("export", mutag_run, "--out", "model.safetensors", "--json").out)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert told == {"file": "model.safetensors", "card": "model.md", "bytes": size, "half_change": None}


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_an_export_gives_the_same_embeddings(joao, mutag_run, model, tmp_path, kind):
    for source, name in ((mutag_run, "folder"), (model, "file")):
        outcome = joao("embed", source, "MUTAG", "--out", f"{name}.{kind}", "--device", "cpu")
        assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / f"folder.{kind}").read_bytes() == (tmp_path / f"file.{kind}").read_bytes()


def test_evaluate_and_export_accept_an_export(joao, model, labelled, tmp_path):
    assert joao("pretrain", labelled, "--out", "run", "--epochs", 1).code == 0
    assert joao("export", "run", "--out", "small.safetensors").code == 0
    outcome = joao("evaluate", "small.safetensors", "--folds", 2)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads((tmp_path / "small-evaluation.json").read_text())["data"]["graphs"] == 24
    assert joao("export", model, "--out", "again.safetensors").code == 0


def test_finetune_and_predict_accept_an_export(joao, model, mutag_tuned, tmp_path):
    outcome = joao("finetune", model, "MUTAG", "--out", "tuned", "--epochs", 1, "--device", "cpu")
    assert (outcome.code, outcome.err) == (0, "")
    outcome = joao("export", mutag_tuned, "--out", "classifier.safetensors")
    assert last_command(outcome) == ["predict", "classifier.safetensors", "MUTAG", "--out", "predictions.csv"]
    for source, name in ((mutag_tuned, "folder"), ("classifier.safetensors", "file")):
        assert joao("predict", source, "MUTAG", "--out", f"{name}.csv", "--device", "cpu").code == 0
    assert (tmp_path / "folder.csv").read_bytes() == (tmp_path / "file.csv").read_bytes()


def test_bundled_models(joao, model, mutag_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path)
    assert joao("embed", mutag_run, "MUTAG", "--out", "run.csv", "--device", "cpu").code == 0
    for number, words in enumerate((("model", "MUTAG"), ("--pretrained", "model", "MUTAG"))):
        outcome = joao("embed", *words, "--out", f"{number}.csv", "--device", "cpu")
        assert (outcome.code, outcome.err) == (0, "")
        assert (tmp_path / f"{number}.csv").read_bytes() == (tmp_path / "run.csv").read_bytes()
    assert joao("export", "model", "--out", "again.safetensors").code == 0
    assert joao("report", "model", "MUTAG", "--out", "report.html").code == 0


def test_invalid_arguments_of_embed(joao, mutag_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "PRETRAINED", tmp_path)
    for arguments, values in (
        (("molecules", "MUTAG"), ["molecules"]),
        (("--pretrained", "molecules", mutag_run, "MUTAG"), ["RUN", "DATA"]),
        (("MUTAG",), ["RUN", "DATA"]),
    ):
        assert_refused(joao("embed", *arguments, "--out", "e.csv"), *values)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("nowhere", "--out", "m.safetensors"), ["joao: nowhere: ", "joao pretrain"]),
        (("RUN", "--out", "m.pt"), ["joao: m.pt: ", "'.pt'", ".safetensors"]),
        (("RUN", "--out", "missing/m.safetensors"), ["joao: missing/m.safetensors: "]),
        (("RUN",), ["'--out'"]),
    ],
)
def test_invalid_input(joao, mutag_run, arguments, values):
    outcome = joao("export", *(mutag_run if word == "RUN" else word for word in arguments))
    assert_refused(outcome, *values)


def test_graphs_that_are_not_here_are_not_suggested(joao, labelled, tmp_path):
    assert joao("pretrain", labelled, "--out", "run", "--epochs", 1).code == 0
    outcome = joao("export", "run", "--out", "here.safetensors")
    assert last_command(outcome) == ["embed", "here.safetensors", labelled, "--out", "embeddings.csv"]
    (tmp_path / labelled).unlink()
    outcome = joao("export", "run", "--out", "there.safetensors")
    assert outcome.code == 0
    assert_mentions(outcome.out.splitlines()[-1], "joao embed there.safetensors DATA")
    assert str(labelled) not in outcome.out
