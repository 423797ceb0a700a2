"""``joao finetune`` on graphs with classes."""

import json

import numpy as np

from joao.data import read
from joao.data.names import BUNDLED
from joao.runs.finetuning import finetune, load_finetuned
from joao.runs.trained import load_run
from joao.training.finetune import Finetune
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions

MUTAG = read(BUNDLED / "MUTAG.zip")


def test_output(tuned):
    outcome, folder = tuned
    assert (outcome.code, outcome.err) == (0, "")
    found = load_finetuned(folder, device="cpu")
    accuracy = 100 * found.chosen_epoch.validation_score
    said = outcome.out.splitlines()
    assert_mentions(said[0], "MUTAG: ", 188, "-1: 63", "1: 125")
    assert_mentions(said[1], 150, 38, f"epoch {found.fit.chosen} ")
    assert_mentions(said[2], f"{accuracy:.1f} %")
    assert len(said) == 4
    assert last_command(outcome) == ["predict", str(folder), "MUTAG", "--out", "predictions.csv"]


def test_the_folder_equals_the_library_result(mutag_run, mutag_tuned):
    how = Finetune(epochs=3, patience=20, balanced=True, standardise=True)
    expected = finetune(load_run(mutag_run, device="cpu"), MUTAG, how, device="cpu")
    found = load_finetuned(mutag_tuned, device="cpu")
    np.testing.assert_array_equal(found.predict_logits(MUTAG), expected.predict_logits(MUTAG))
    assert (found.settings, found.fit) == (how, expected.fit)
    assert found.info.command.split()[:2] == ["joao", "finetune"]


def test_options_reach_the_library(joao, mutag_run, tmp_path):
    options = ["--epochs", 2, "--patience", 0, "--learning-rate", 0.02, "--batch-size", 50, "--frozen", "--unbalanced"]
    more = ["--validation-share", 0.25, "--from-scratch", "--seed", 3, "--device", "cpu", "--plain"]
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "tuned", *options, *more)
    assert outcome.code == 0, outcome.err
    assert "scratch" in outcome.out
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    assert found.settings == Finetune(2, 50, 0.02, 0, frozen=True, balanced=False, standardise=True)
    info = found.info
    assert (info.validation_share, info.num_validation, info.seed, info.from_scratch) == (0.25, 47, 3, True)


def test_json(joao, mutag_run, tmp_path):
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "tuned", "--epochs", 1, "--json")
    told = json.loads(outcome.out)
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    assert told == {
        "folder": "tuned",
        "kind": "classes",
        "classes": [-1, 1],
        "split": "random",
        "train_graphs": 150,
        "validation_graphs": 38,
        "test_graphs": 0,
        "epochs": 1,
        "chosen_epoch": 1,
        "validation_loss": found.chosen_epoch.validation_loss,
        "validation_accuracy": found.chosen_epoch.validation_score,
        "scores": found.scores,
        "from_scratch": False,
        "ensemble": False,
        "seconds": found.info.seconds,
    }


def test_quiet_prints_nothing(joao, mutag_run, tmp_path):
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "tuned", "--epochs", 1, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert (tmp_path / "tuned" / "finetune.json").exists()


def test_the_suggested_predict_command_runs(joao, labelled, tmp_path):
    (tmp_path / "my graphs.jsonl").write_text((tmp_path / labelled).read_text())
    (tmp_path / "predictions.csv").write_text("mine")
    assert joao("pretrain", "my graphs.jsonl", "--out", "my run", "--epochs", 1).code == 0
    outcome = joao("finetune", "my run", "my graphs.jsonl", "--out", "my classifier", "--epochs", 1)
    outcome = joao(*last_command(outcome))
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "predictions.csv").read_text() == "mine"
    assert len((tmp_path / "predictions-2.csv").read_text().splitlines()) == 1 + 24


def test_fine_tuning_on_the_same_labels_again_gives_a_notice(joao, mutag_tuned):
    again = joao("finetune", mutag_tuned, "MUTAG", "--out", "again", "--epochs", 1)
    assert_noted(again, f"joao: note: {mutag_tuned}: ")
    assert "fine-tuned" in again.out
    scratch = joao("finetune", mutag_tuned, "MUTAG", "--out", "scratch", "--epochs", 1, "--from-scratch")
    assert (scratch.code, scratch.err) == (0, "")


def test_fine_tuned_runs_can_be_embedded_but_not_evaluated(joao, mutag_run, mutag_tuned, tmp_path):
    nexts = {
        "before": ["evaluate", str(mutag_run), "MUTAG"],
        "after": ["predict", str(mutag_tuned), "MUTAG", "--out", "predictions.csv"],
    }
    for name, folder in (("before", mutag_run), ("after", mutag_tuned)):
        outcome = joao("embed", folder, "MUTAG", "--out", f"{name}.npz")
        assert outcome.code == 0
        assert last_command(outcome) == nexts[name]
    before, after = (np.load(tmp_path / f"{name}.npz")["embeddings"] for name in ("before", "after"))
    np.testing.assert_array_equal(after, load_run(mutag_tuned, device="cpu").embed(MUTAG).numpy())
    assert not np.allclose(before, after)
    outcome = joao("evaluate", mutag_tuned, "MUTAG", "--out", "score.json")
    assert_refused(outcome, "joao: evaluate: ", "fine-tuned")
    assert not (tmp_path / "score.json").exists()


def test_unlabelled_graphs_are_left_out(joao, mutag_run, tmp_path):
    lines = [
        f'{{"edges": [[0, 1]], "node_labels": [{n % 2}, 0], "label": {n % 2}}}'
        if n < 12
        else '{"edges": [], "node_labels": [0]}'
        for n in range(20)
    ]
    (tmp_path / "some.jsonl").write_text("\n".join(lines) + "\n")
    outcome = joao("finetune", mutag_run, "some.jsonl", "--out", "tuned", "--epochs", 2)
    assert_noted(outcome, "joao: note: some: ", "8 of 20")
    assert_mentions(outcome.out.splitlines()[0], "some: ", "12", "0: 6", "1: 6")
    found = load_finetuned(tmp_path / "tuned", device="cpu")
    assert (found.info.num_train, found.info.num_validation) == (10, 2)
    (tmp_path / "labelled.jsonl").write_text("\n".join(lines[:12]) + "\n")
    assert joao("finetune", mutag_run, "labelled.jsonl", "--out", "same", "--epochs", 2).code == 0
    assert load_finetuned(tmp_path / "same", device="cpu").fit == found.fit
