"""``joao compare``: table, record, interruption and invalid input."""

import json
import re

import pytest

from joao.comparison import record as recording
from tests.cli.conftest import assert_refused, last_command
from tests.messages import assert_mentions

HEAD = ("--folds", 3, "--partitions", 1, "--epochs", 1, "--device", "cpu")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(recording, "run_in_processes", lambda tasks, jobs, on_step: recording.run_here(tasks, on_step))


def test_table_verdict_record_and_continuing(joao, labelled, tmp_path):
    outcome = joao("compare", labelled, "--methods", "joao, ldp", *HEAD, "--out", "record.json")
    assert outcome.code == 0
    assert all(line.startswith("joao: ") for line in outcome.err.splitlines())
    assert_mentions(outcome.err, "joao, ldp", "untrained", "wl", "histogram")
    record = json.loads((tmp_path / "record.json").read_text())
    shown = re.findall(r"^│ (\w+) +│ +([\d.]+)", outcome.out, re.MULTILINE)
    assert [name for name, _ in shown] == ["joao", "ldp", "untrained", "wl", "histogram", "chance"]
    for (name, accuracy), row in zip(shown[:-1], record["rows"], strict=True):
        assert (name, accuracy) == (row["method"], f"{100 * row['accuracy']:.2f}")
    assert record["verdict"]["sentence"][1:] in outcome.out
    assert record["command"].split()[:3] == ["joao", "compare", labelled]
    again = joao("compare", labelled, "--methods", "joao,ldp", *HEAD, "--out", "record.json", "--json")
    assert again.code == 0
    assert json.loads(again.out)["rows"] == record["rows"]
    assert last_command(outcome) == ["pretrain", labelled, "--out", "runs/mine"]


@pytest.mark.slow
def test_quiet(joao, labelled, tmp_path):
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, "--quiet", "--out", "r.json")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] is None


@pytest.mark.slow
@pytest.mark.parametrize("with_out", [True, False])
def test_interrupted(joao, labelled, monkeypatch, with_out):
    real, done = recording.run_here, []

    def stops(tasks, on_step):
        for each in real(tasks, on_step):
            if done:
                raise KeyboardInterrupt
            done.append(each)
            yield each

    monkeypatch.setattr(recording, "run_here", stops)
    options = ("--out", "r.json") if with_out else ()
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, *options)
    assert outcome.code == 130
    assert_mentions(outcome.err.splitlines()[-1], "r.json" if with_out else "--out FILE.json")
    monkeypatch.setattr(recording, "run_here", real)
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, *options)
    assert ("done: histogram" in outcome.err) != with_out


@pytest.mark.parametrize("out", ["table.tex", "record.json", None])
def test_interrupted_after_a_partition(joao, labelled, tmp_path, monkeypatch, out):
    real = recording.run_here

    def stops(tasks, on_step):
        for each in real(tasks, on_step):
            if each.score and each.score["seed"] == 1:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(recording, "run_here", stops)
    options = ("--out", out) if out else ()
    outcome = joao("compare", labelled, "--methods", "histogram", "--folds", 3, "--partitions", 2, *options)
    assert outcome.code == 130
    assert re.search(r"^│ histogram +│ +[\d.]+ ", outcome.out, re.MULTILINE)
    assert_mentions(outcome.err.splitlines()[-1], "1 of 2", out or "--out FILE.json")
    if out:
        assert "histogram" in (tmp_path / out).read_text()


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["labelled.jsonl", "--methods", "jaoo"], ["compare: ", "'jaoo'", "'joao'"]),
        (["labelled.jsonl", "--methods", ","], ["compare: ", "joao, "]),
        (["labelled.jsonl", "--folds", "13"], ["folds: ", "'0'", "12", "13"]),
        (["labelled.jsonl", "--out", "no/r.json"], ["joao: no/r.json: "]),
        (["labelled.jsonl", "--out", "other.json"], ["joao: other.json: ", "joao compare"]),
        (["labelled.jsonl", "--out", "cmp.docx"], ["joao: cmp.docx: ", ".json", ".csv", ".tex", ".md", ".html"]),
        (["labelled.jsonl", "--scorer", "fast"], ["auto", "exact", "linear", "'fast'"]),
        (["labelled.jsonl", "--model", "run"], ["compare: ", "--model"]),
        (["labelled.jsonl", "--split", "random"], ["compare: ", "--split"]),
        (["labelled.jsonl", "--precision", "tf32"], ["compare: ", "--precision"]),
        (["labelled.jsonl", "--device", "tpu"], ["device: ", "auto", "cpu", "cuda", "'tpu'"]),
        (["labelled.jsonl", "--partitions", "0"], ["'--partitions'"]),
        (["unlabelled.jsonl"], ["joao: unlabelled.jsonl: ", "joao embed"]),
        (["one.jsonl"], ["folds: ", "1", "4"]),
    ],
)
def test_invalid_input(joao, labelled, unlabelled, tmp_path, arguments, values):
    line = json.dumps({"edges": [[0, 1]], "num_nodes": 2, "label": "same"})
    (tmp_path / "one.jsonl").write_text(f"{line}\n" * 4)
    (tmp_path / "other.json").write_text("{}")
    outcome = joao("compare", *arguments)
    assert outcome.out == ""
    assert_refused(outcome, *values)


def test_too_few_molecules_are_refused(joao, tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "assays.csv").write_text("smiles,toxic\nCCO,1\nCCN,0\n")
    assert_refused(joao("compare", "assays.csv"), "joao: assays.csv: ", "1 scaffold", "5 folds")
