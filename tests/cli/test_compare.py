"""``joao compare``: the table, the record, and everything that cannot be compared."""

import json
import re

import pytest

from joao.cli import compare
from joao.comparison import record as recording

HEAD = ("--folds", 3, "--partitions", 1, "--epochs", 1, "--device", "cpu")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(compare, "all_cores", lambda: None)


def test_table_verdict_record_and_going_on(joao, labelled, tmp_path):
    outcome = joao("compare", labelled, "--methods", "joao, ldp", *HEAD, "--out", "record.json")
    assert outcome.code == 0
    for line in outcome.err.splitlines():
        assert re.match("joao: (note: compared as well|comparing joao, ldp, |done: )", line)
    record = json.loads((tmp_path / "record.json").read_text())
    shown = re.findall(r"^│ (\w+) +│ +([\d.]+)", outcome.out, re.MULTILINE)
    assert [name for name, _ in shown] == ["joao", "ldp", "untrained", "wl", "histogram", "chance"]
    for (name, accuracy), row in zip(shown[:-1], record["rows"], strict=True):
        assert (name, accuracy) == (row["method"], f"{100 * row['accuracy']:.2f}")
    sentence = record["verdict"]["sentence"]
    assert f"Verdict: {sentence[0].lower()}{sentence[1:]}" in outcome.out
    assert record["command"].startswith("joao compare labelled.jsonl")
    again = joao("compare", labelled, "--methods", "joao,ldp", *HEAD, "--out", "record.json", "--json")
    assert again.code == 0
    assert "done: " not in again.err
    assert "comparing" not in again.err
    assert json.loads(again.out)["rows"] == record["rows"]
    assert outcome.out.splitlines()[-1] == "Next: joao pretrain labelled.jsonl --out runs/mine"


def test_quiet(joao, labelled, tmp_path):
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, "--quiet", "--out", "r.json")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] is None


@pytest.mark.parametrize("with_out", [True, False])
def test_interrupted(joao, labelled, monkeypatch, with_out):
    real, done = recording.in_this_process, []

    def stops(tasks):
        for each in real(tasks):
            if done:
                raise KeyboardInterrupt
            done.append(each)
            yield each

    monkeypatch.setattr(recording, "in_this_process", stops)
    options = ("--out", "r.json") if with_out else ()
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, *options)
    assert outcome.code == 130
    told = (
        "joao: interrupted. What was done is in r.json; the same command goes on."
        if with_out
        else "joao: interrupted. Nothing is kept: --out FILE.json keeps what is done."
    )
    assert outcome.err.splitlines()[-1] == told
    monkeypatch.setattr(recording, "in_this_process", real)
    outcome = joao("compare", labelled, "--methods", "histogram", *HEAD, *options)
    assert ("done: histogram" in outcome.err) != with_out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["labelled.jsonl", "--methods", "jaoo"], "joao: compare: unknown method 'jaoo'. Did you mean 'joao'?"),
        (["labelled.jsonl", "--methods", ","], "joao: compare: no methods named. Known: joao, "),
        (["labelled.jsonl", "--folds", "13"], "joao: folds: class '0' has 12 graphs, fewer than the 13 folds. Use at"),
        (["labelled.jsonl", "--out", "no/r.json"], "joao: no/r.json: its folder no does not exist."),
        (["labelled.jsonl", "--out", "labelled.jsonl"], "joao: labelled.jsonl: is not a record of 'joao compare' ("),
        (["labelled.jsonl", "--device", "tpu"], "joao: device: must be auto, cpu or cuda, got 'tpu'."),
        (["labelled.jsonl", "--partitions", "0"], "joao: Invalid value for '--partitions'"),
        (["unlabelled.jsonl"], "has no graph labels, so nothing can be scored. 'joao embed' needs none."),
        (["one.jsonl"], "joao: folds: 1 class among 4 graphs; scoring needs at least two."),
    ],
)
def test_nonsense_gets_one_line(joao, labelled, unlabelled, tmp_path, arguments, message):
    line = json.dumps({"edges": [[0, 1]], "num_nodes": 2, "label": "same"})
    (tmp_path / "one.jsonl").write_text(f"{line}\n" * 4)
    outcome = joao("compare", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_molecules_with_tasks_are_for_another_command(joao, tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "assays.csv").write_text("smiles,toxic\nCCO,1\nCCN,0\n")
    outcome = joao("compare", "assays.csv")
    assert outcome.code == 2
    assert "has tasks, not classes. Tasks of tables are scored by 'joao finetune --frozen'" in outcome.err
