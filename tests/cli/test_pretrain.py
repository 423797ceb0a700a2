"""``joao pretrain``: from a recipe and graphs to a run folder."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from joao.config.recipe import make_recipe, read_recipe
from joao.core.errors import ProcessLost
from joao.data import read
from joao.runs import pretraining as experiment
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions


def weights(folder):
    return {name: value.tolist() for name, value in Run.open(folder).weights().items()}


def test_options_reach_the_recipe(joao, labelled, tmp_path):
    options = ["--method", "joaov2", "--seed", 7, "--epochs", 1, "--set", "encoder.width=4", "--set", "strength=0.1"]
    outcome = joao("pretrain", labelled, "--out", "run", *options)
    assert (outcome.code, outcome.err) == (0, "")
    expected = {
        "data": labelled,
        "method": "joaov2",
        "encoder": {"width": 4},
        "strength": 0.1,
        "training": {"epochs": 1, "seed": 7},
    }
    assert read_recipe(tmp_path / "run" / "recipe.toml") == make_recipe(expected)


def test_weights_equal_those_of_the_library(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 2)
    recipe = make_recipe({"data": labelled, "training": {"epochs": 2}})
    trained = pretrain(recipe, read("./" + labelled), device="cpu")
    assert weights(tmp_path / "run") == {name: value.tolist() for name, value in trained.weights.items()}


def test_the_recipe_of_a_run_reproduces_it(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "one", "--method", "uniform", "--epochs", 1)
    joao("pretrain", "--recipe", "one/recipe.toml", "--out", "two")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


@pytest.mark.parametrize("option", [["--method", "graphcl"], ["--set", "method=graphcl"]])
def test_a_method_overrides_the_recipe(joao, labelled, tmp_path, option):
    joao("pretrain", labelled, "--out", "one", "--epochs", 1)
    joao("pretrain", "--recipe", "one/recipe.toml", "--out", "two", *option)
    assert read_recipe(tmp_path / "two" / "recipe.toml").policy.name == "rule_pool"


@pytest.mark.parametrize("method", ["joao", "uniform"])
def test_objective_and_method_combine(joao, labelled, tmp_path, method):
    outcome = joao("pretrain", labelled, "--out", "run", "--method", method, "--objective", "bootstrap", "--epochs", 1)
    assert (outcome.code, outcome.err) == (0, "")
    expected = {"data": labelled, "method": method, "objective": "bootstrap", "training": {"epochs": 1}}
    assert read_recipe(tmp_path / "run" / "recipe.toml") == make_recipe(expected)


def test_the_same_objective_keeps_its_options(joao, labelled, tmp_path):
    (tmp_path / "own.toml").write_text('objective = {name = "nt_xent", temperature = 0.7}\ntraining.epochs = 1\n')
    for name in ("nt_xent", "jensen_shannon"):
        joao("pretrain", labelled, "--recipe", "own.toml", "--out", name, "--objective", name)
    found = [read_recipe(tmp_path / name / "recipe.toml").objective for name in ("nt_xent", "jensen_shannon")]
    assert [(each.name, each.options["temperature"]) for each in found] == [("nt_xent", 0.7), ("jensen_shannon", 0.2)]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--objective", "barlow"], ["--objective barlow: ", "'barlow_twins'"]),
        (["--method", "infomax", "--objective", "barlow_twins"], ["BarlowTwins: "]),
        (["--objective", "bootstrap", "--fast"], ["Bootstrap", "fast"]),
        (["--objective", "bootstrap", "--set", "objective.momentum=2"], ["momentum", "[0, 1]", "2.0"]),
    ],
)
def test_invalid_objectives(joao, labelled, options, values):
    assert_refused(joao("pretrain", labelled, "--out", "run", *options), *values)


def test_json_is_one_object(joao, labelled, tmp_path):
    outcome = joao("pretrain", labelled, "--out", "run", "--epochs", 1, "--json")
    result = json.loads(outcome.out)
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    metrics = json.loads(line)
    assert result["loss"] == metrics["loss"]
    assert result["probabilities"] == metrics["probabilities"]
    assert (result["run"], result["epochs"], len(result["augmentations"])) == ("run", 1, 5)


def test_quiet_prints_nothing(joao, labelled):
    outcome = joao("pretrain", labelled, "--out", "run", "--epochs", 1, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_notices_go_to_standard_error(joao, tmp_path):
    graphml = (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
        '<node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>'
    )
    (tmp_path / "graphs").mkdir()
    for number in range(3):
        (tmp_path / "graphs" / f"{number}.graphml").write_text(graphml)
    outcome = joao("pretrain", "./graphs", "--out", "run", "--epochs", 1, "--json")
    assert_noted(outcome, "graphs: ", "3")
    assert json.loads(outcome.out)["run"] == "run"


class Interrupted(Exception):
    pass


def interrupted_run(labelled, folder, epochs=3):
    recipe = make_recipe({"data": labelled, "training": {"epochs": epochs}})

    def on_epoch(metrics):
        if metrics.epoch == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        pretrain(recipe, read("./" + labelled), folder=folder, checkpoint_every=1, on_epoch=on_epoch, device="cpu")


def test_resume(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "whole", "--epochs", 3)
    interrupted_run(labelled, tmp_path / "cut")
    outcome = joao("pretrain", "--resume", "cut")
    assert (outcome.code, outcome.err) == (0, "")
    assert_mentions(outcome.out.splitlines()[0], "step 2")
    assert last_command(outcome)[:2] == ["embed", "cut"]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert (tmp_path / "cut" / "policy.png").exists()


def test_resume_after_the_data_changed(joao, labelled, tmp_path):
    interrupted_run(labelled, tmp_path / "cut")
    lines = (tmp_path / labelled).read_text().splitlines(keepends=True)
    (tmp_path / labelled).write_text("".join(lines[1:]))
    outcome = joao("pretrain", "--resume", "cut")
    assert_refused(outcome, "joao: cut: ", "labelled")


@pytest.mark.parametrize(
    "extra",
    [
        ["labelled.jsonl"],
        ["--epochs", 9],
        ["--objective", "nt_xent"],
        ["--set", "strength=0.1"],
        ["--out", "other"],
        ["--plain"],
        ["--precision", "32-true"],
    ],
)
def test_resume_refuses_other_options(joao, labelled, tmp_path, extra):
    interrupted_run(labelled, tmp_path / "cut")
    outcome = joao("pretrain", "--resume", "cut", *extra)
    assert_refused(outcome, "--resume")
    assert not (tmp_path / "other").exists()


def test_an_interruption_prints_the_resume_command(joao, labelled, tmp_path, monkeypatch):
    def interrupted(recipe, dataset, *, folder, on_epoch, **options):
        def stop(metrics):
            if metrics.epoch == 2:
                raise KeyboardInterrupt

        return pretrain(recipe, dataset, folder=folder, on_epoch=stop, **options)

    monkeypatch.setattr(experiment, "pretrain", interrupted)
    outcome = joao("pretrain", labelled, "--out", "my run", "--epochs", 3, "--checkpoint-every", 1)
    assert outcome.code == 130
    (line,) = outcome.err.splitlines()
    assert_mentions(line, "joao pretrain --resume 'my run'")
    young = joao("pretrain", labelled, "--out", "young", "--epochs", 3, "--checkpoint-every", 5)
    assert young.code == 130
    assert_mentions(young.err, "joao pretrain --resume young")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    for name in ("my run", "young"):
        assert joao("pretrain", "--resume", name).code == 0
    assert weights(tmp_path / "my run") == weights(tmp_path / "young")


def test_unlabelled_graphs_cannot_be_evaluated(joao, unlabelled, tmp_path):
    trained = joao("pretrain", unlabelled, "--out", "run", "--epochs", 1)
    assert trained.code == 0
    assert last_command(trained) == ["embed", "run", unlabelled, "--out", "embeddings.npz"]
    assert "joao evaluate" not in trained.out
    assert joao("embed", "run", unlabelled, "--out", "embeddings.npz").code == 0
    with np.load(tmp_path / "embeddings.npz") as file:
        assert list(file) == ["embeddings"]
    scored = joao("evaluate", "run")
    assert_refused(scored, "joao: unlabelled: ", "joao embed")
    assert not (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_process_gives_one_line(joao, labelled, monkeypatch, kept):
    def lose(recipe, dataset, *, folder, **options):
        assert (options["devices"], options["num_nodes"]) == (2, 1)
        if kept:
            pretrain(recipe, dataset, folder=folder, device="cpu")
        raise ProcessLost("process 1 (of 0 to 1) was ended by SIGKILL.")

    monkeypatch.setattr(experiment, "pretrain", lose)
    outcome = joao("pretrain", labelled, "--out", "run", "--devices", 2)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert_mentions(outcome.err, "SIGKILL")
    assert ("joao pretrain --resume run" in outcome.err) == kept


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--method", "infograph"], ["InfoGraph: ", "--devices", "--num-nodes"]),
        (["--fast"], ["--fast", "training.negatives=local"]),
        (["--num-nodes", 2], ["MASTER_ADDR"]),
    ],
)
def test_invalid_options_of_several_processes(joao, labelled, tmp_path, options, values):
    outcome = joao("pretrain", labelled, "--out", "run", "--devices", 2, *options)
    assert_refused(outcome, *values)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "joao"])
def test_two_processes_from_the_command_line(labelled, tmp_path, launcher):
    """Started by torchrun or by joao: one output, one run, the same weights."""
    work = ["pretrain", labelled, "--epochs", "2", "--device", "cpu", "--out"]
    several = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "joao", *work, "run"]
    alone = ["-m", "joao", *work, "run", "--devices", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        [sys.executable, *(several if launcher == "torchrun" else alone)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert outcome.returncode == 0
    assert [line for line in outcome.stderr.splitlines() if not line.startswith("joao: epoch ")] == []
    assert outcome.stdout.count("2 processes") == outcome.stdout.count("joao evaluate") == 1
    expected = pretrain(read_recipe(tmp_path / "run" / "recipe.toml"), read(f"./{labelled}"), device="cpu", devices=2)
    assert weights(tmp_path / "run") == {name: value.tolist() for name, value in expected.weights.items()}
