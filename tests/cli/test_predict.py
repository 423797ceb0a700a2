"""``joao predict``: a file with one row per graph, and the accuracy if labels are known."""

import csv
import json

import numpy as np
import pytest

from joao.data import read
from joao.data.names import BUNDLED
from joao.runs.finetuning import load_finetuned
from tests.cli.conftest import assert_noted, assert_refused
from tests.messages import assert_mentions

MUTAG = read(BUNDLED / "MUTAG.zip")


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def mutag_lines(labels):
    """The first graphs of MUTAG as JSON lines, with these labels (None: no label)."""
    lines = []
    for number, label in enumerate(labels):
        graph = MUTAG.subset(np.array([number]))
        edges = np.stack([graph.source, graph.target], axis=1).tolist()
        row = {"edges": edges, "node_labels": graph.node_labels[:, 0].tolist()}
        lines.append(json.dumps(row if label is None else {**row, "label": label}))
    return "\n".join(lines)


def test_csv_and_npz_contain_the_predictions(joao, mutag_tuned, tmp_path):
    expected = load_finetuned(mutag_tuned, device="cpu").predict(MUTAG).numpy()
    truth = np.array([-1, 1])[MUTAG.classes]
    predicted = np.where(expected[:, 1] > expected[:, 0], 1, -1)
    share = f"{100 * (predicted == truth).mean():.1f}"
    for name in ("all.csv", "all.npz"):
        outcome = joao("predict", mutag_tuned, "MUTAG", "--out", name)
        assert (outcome.code, outcome.err) == (0, "")
        first, second, *_ = outcome.out.splitlines()
        assert_mentions(first, f"{name}: ", "188", "2 classes")
        assert_mentions(second, "MUTAG", f" {share} %", "fine-tuned")
    header, *lines = rows(tmp_path / "all.csv")
    assert header == ["graph", "class", "predicted", "p_-1", "p_1"]
    assert [int(line[0]) for line in lines] == list(range(188))
    assert [int(line[1]) for line in lines] == truth.tolist()
    assert [int(line[2]) for line in lines] == predicted.tolist()
    np.testing.assert_array_equal(np.array([line[3:] for line in lines], dtype=np.float32), expected)
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["probabilities"], expected)
        assert file["predicted"].tolist() == [str(each) for each in predicted]


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_the_suggested_python_runs(joao, mutag_tuned, suffix):
    outcome = joao("predict", mutag_tuned, "MUTAG", "--out", f"all.{suffix}")
    code = outcome.out.splitlines()[-1].partition(": ")[2]
    imports, _, expression = code.partition("; ")
    names = {}
    exec(imports, names)
    assert len(eval(expression, names)) == 188


def test_missing_and_unknown_classes(joao, mutag_tuned, tmp_path):
    (tmp_path / "new.jsonl").write_text(mutag_lines([None] * 3))
    (tmp_path / "other.jsonl").write_text(mutag_lines(["red", "green", "red"]))
    (tmp_path / "few.jsonl").write_text(mutag_lines([1, 1, 1]))
    said = {}
    for name in ("new", "other", "few"):
        outcome = joao("predict", mutag_tuned, f"{name}.jsonl", "--out", f"{name}.csv")
        if name == "other":
            assert_noted(outcome, "joao: note: other: ", "'green'", "-1, 1")
        else:
            assert (outcome.code, outcome.err) == (0, "")
        said[name] = outcome.out.splitlines()
    assert rows(tmp_path / "new.csv")[0] == ["graph", "predicted", "p_-1", "p_1"]
    assert [line[1:] for line in rows(tmp_path / "new.csv")[1:]] == [
        line[2:] for line in rows(tmp_path / "few.csv")[1:]
    ]
    assert len(said["new"]) == len(said["other"]) == 2  # nothing to be right about
    predicted = [line[2] for line in rows(tmp_path / "few.csv")[1:]]
    assert_mentions(said["few"][1], "few", f" {100 * predicted.count('1') / 3:.1f} %")


def test_accuracy_is_over_labelled_graphs(joao, mutag_tuned, tmp_path):
    (tmp_path / "some.jsonl").write_text(mutag_lines([1, None, -1]))
    outcome = joao("predict", mutag_tuned, "some.jsonl", "--out", "some.csv")
    assert_noted(outcome, "joao: note: some: ", "1 of 3")
    written = rows(tmp_path / "some.csv")
    assert [line[1] for line in written] == ["class", "1", "", "-1"]
    right = [written[1][2] == "1", written[3][2] == "-1"]
    assert_mentions(outcome.out.splitlines()[1], "some", f" {50.0 * sum(right):.1f} %")


def test_json(joao, mutag_tuned, tmp_path):
    (tmp_path / "new.jsonl").write_text(mutag_lines([None] * 2))
    outcome = joao("predict", mutag_tuned, "new.jsonl", "--out", "new.csv", "--json")
    assert json.loads(outcome.out) == {"file": "new.csv", "graphs": 2, "accuracy": None, "fine_tuned_on": False}
    told = json.loads(joao("predict", mutag_tuned, "MUTAG", "--out", "all.csv", "--json").out)
    assert (told["graphs"], told["fine_tuned_on"]) == (188, True)
    assert 0 <= told["accuracy"] <= 1


def test_quiet_prints_nothing(joao, mutag_tuned, tmp_path):
    outcome = joao("predict", mutag_tuned, "MUTAG", "--out", "all.csv", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert (tmp_path / "all.csv").exists()


def test_unknown_node_labels_give_a_notice(joao, mutag_tuned, tmp_path):
    (tmp_path / "xenon.jsonl").write_text(json.dumps({"edges": [[0, 1]], "node_labels": [54, 54]}))
    outcome = joao("predict", mutag_tuned, "xenon.jsonl", "--out", "xenon.csv")
    assert_noted(outcome, "joao: note: xenon: ", "2")


def test_bundled_encoders_are_not_finetuned(joao, tmp_path):
    (tmp_path / "new.smi").write_text("CCO\n")
    assert_refused(joao("predict", "molecules", "new.smi", "--out", "p.csv"), "joao finetune molecules DATA")
