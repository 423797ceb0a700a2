"""Logs say what ``metrics.jsonl`` says, once for every epoch, also of a run that was interrupted."""

import csv
import importlib.util
import json
import os
import subprocess
import sys

import pytest
from lightning_fabric.loggers import CSVLogger

import joao
from joao.config.recipe import make_recipe
from joao.core.errors import UserError
from joao.data.synthetic import random_graphs
from joao.runs.logs import scalars
from joao.runs.pretraining import pretrain
from joao.training.metrics import EpochMetrics
from joao.training.pretrain import Pretraining
from tests.messages import refused

GRAPHS = random_graphs(14, mean_nodes=6, seed=1)
RECIPE = make_recipe({"augmentations": ["node_drop", "identity"], "training": {"epochs": 4, "batch_size": 7}})


class Interrupted(Exception):
    pass


class Remembering:
    """A logger of one's own."""

    def __init__(self):
        self.told, self.ended = [], []

    def log_metrics(self, metrics, step=None):
        self.told.append((step, metrics))

    def finalize(self, status):
        self.ended.append(status)


def expected(folder, pool=("node_drop", "identity")):
    """The numbers of every epoch by name, straight from the lines of the run."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        epoch = json.loads(line)
        numbers = {"loss": epoch["loss"], "graphs_per_second": epoch["graphs_per_second"]}
        for i, first in enumerate(pool):
            for j, second in enumerate(pool):
                numbers[f"probability/{first}-{second}"] = epoch["probabilities"][i][j]
                numbers[f"pair_loss/{first}-{second}"] = epoch["pair_losses"][i][j]
        found[epoch["epoch"]] = numbers
    return found


def read_table(folder):
    with (folder / "csv" / "metrics.csv").open(newline="") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    steps = [int(row.pop("step")) for row in rows]
    assert len(set(steps)) == len(steps)
    return dict(zip(steps, rows, strict=True))


def read_board(folder):
    """As TensorBoard shows it: what comes after a restart takes the place of later steps."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    found = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert name not in found.setdefault(event.step, {})
            found[event.step][name] = event.value
    return found


def interrupted_after(number, folder, **options):
    def on_epoch(epoch):
        if epoch.epoch == number:
            raise Interrupted

    with pytest.raises(Interrupted):
        pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", on_epoch=on_epoch, checkpoint_every=2, **options)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_both_logs_have_every_epoch_once(tmp_path, is_interrupted):
    pytest.importorskip("tensorboard")
    folder, logs = tmp_path / "run", ["tensorboard", "csv"]
    if is_interrupted:
        interrupted_after(3, folder, loggers=logs)
        assert set(read_table(folder)) == set(read_board(folder)) == {1, 2, 3}
        pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", resume=True)  # which goes on with both unasked
    else:
        pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", loggers=logs)
    wanted = expected(folder)
    assert set(wanted) == {1, 2, 3, 4}
    assert read_table(folder) == wanted
    board = read_board(folder)
    assert set(board) == set(wanted)
    for epoch, numbers in wanted.items():
        assert board[epoch] == pytest.approx(numbers, rel=1e-6)


def test_custom_logger_gets_metrics_and_is_finalised(tmp_path):
    logger = Remembering()
    pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", loggers=[logger])
    assert dict(logger.told) == expected(tmp_path / "run")
    assert logger.ended == ["success"]
    logger = Remembering()
    interrupted_after(1, tmp_path / "lost", loggers=[logger])
    assert logger.ended == ["failed"]


def test_estimator_accepts_fabric_loggers(tmp_path):
    model = joao.JOAO(epochs=2, augmentations=["node_drop", "identity"], loggers=[CSVLogger(tmp_path, "", "csv")])
    model.fit(GRAPHS)
    model.save(tmp_path / "run")
    assert read_table(tmp_path) == expected(tmp_path / "run")


def test_failure_before_the_first_checkpoint_leaves_no_log(tmp_path, monkeypatch):
    whole = Pretraining._train_epoch

    def fail_in_the_second(self, *arguments):
        if self.epoch == 1:
            assert (tmp_path / "run" / "csv" / "metrics.csv").exists()
            raise UserError("nan")
        return whole(self, *arguments)

    monkeypatch.setattr(Pretraining, "_train_epoch", fail_in_the_second)
    with refused("nan"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", loggers=["csv"])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
def test_only_the_first_of_several_processes_writes(tmp_path, launcher):
    folder = tmp_path / "run"
    words = [
        "-m",
        "joao",
        "pretrain",
        "MUTAG",
        "--epochs",
        "2",
        "--out",
        str(folder),
        "--logger",
        "csv",
        "--device",
        "cpu",
    ]
    words += ["--set", 'augmentations=["node_drop", "identity"]', "--quiet"]
    several = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *words]
    subprocess.run(
        [sys.executable, *(several if launcher == "torchrun" else [*words, "--devices", "2"])],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    assert read_table(folder) == expected(folder)


def test_names_are_valid_in_tensorboard():
    epoch = EpochMetrics(1, 2.0, [[0.5, 0.0], [0.25, 0.25]], None, [[1, 1], [1, 1]], 1.0, 3.0)
    found = scalars(epoch, ["node_drop(strength=0.1)", "identity"])
    assert found == {
        "loss": 2.0,
        "graphs_per_second": 3.0,
        "probability/node_drop_strength_0.1-node_drop_strength_0.1": 0.5,
        "probability/node_drop_strength_0.1-identity": 0.0,
        "probability/identity-node_drop_strength_0.1": 0.25,
        "probability/identity-identity": 0.25,
    }


def test_method_without_pairs_logs_only_loss_and_rate():
    epoch = EpochMetrics(1, 2.0, [[1.0]], None, [[4]], 1.0, 3.0)
    assert scalars(epoch, ["identity"]) == {"loss": 2.0, "graphs_per_second": 3.0}


@pytest.mark.parametrize(
    ("loggers", "values"),
    [
        (["tensorbord"], ["'tensorbord'", "'tensorboard'", "csv"]),
        ([3], [3, "log_metrics", "finalize"]),
        (["csv"], ["'csv'"]),
    ],
)
def test_unknown_logs_are_rejected(loggers, values):
    with refused(*values):
        pretrain(RECIPE, GRAPHS, device="cpu", loggers=loggers)


def test_missing_tensorboard_is_reported_with_a_fix(tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else there(name))
    with refused("pip install tensorboard", "csv"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", loggers=["tensorboard"])
    assert not (tmp_path / "run").exists()
