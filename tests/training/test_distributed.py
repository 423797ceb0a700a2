"""Two processes against one: what they compute together, how they train, and what is left when one is killed.

All trainings are in float64: there, differences are those of rounding, and stay so.
"""

import json
import multiprocessing
import os
import signal
import time

import pytest
import torch

from joao.core.errors import ProcessLost
from joao.data.synthetic import random_graphs
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.training.distributed.group import ProcessGroup
from joao.training.distributed.launch import find_process_layout, run_in_processes
from tests.messages import assert_mentions
from tests.training.two_processes import (
    KILLED,
    TRAININGS,
    gradients_through_gather,
    normalised,
    own_tensors,
    read_tensors,
    together,
    trained_step_by_step,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}  # rounding of float64 where nothing amplifies it


@pytest.fixture(scope="module")
def dataset():
    return random_graphs(24, 8, 2.5, seed=3)


@pytest.fixture(scope="module")
def killed(quick_start, dataset, tmp_path_factory):
    """A training in two processes of which one was killed: its folder, what was raised, and after how many seconds."""
    folder, before, killed_at = tmp_path_factory.mktemp("killed") / "run", set(multiprocessing.active_children()), []

    def kill_the_second(metrics):
        if metrics.epoch == 3:
            started = sorted(process.pid for process in set(multiprocessing.active_children()) - before)
            killed_at.append(time.monotonic())
            os.kill(started[1], signal.SIGKILL)

    with pytest.raises(ProcessLost) as raised:
        pretrain(KILLED, dataset, folder=folder, checkpoint_every=2, device="cpu", devices=2, on_epoch=kill_the_second)
    seconds = time.monotonic() - killed_at[0]
    assert set(multiprocessing.active_children()) == before
    left = Run.open(folder).read_checkpoint()
    return folder, str(raised.value), seconds, left


@pytest.fixture(scope="module")
def told(killed, dataset, tmp_path_factory):
    """What two processes sent, by rank, the resumed run's and the undisturbed run's folders."""
    undisturbed = tmp_path_factory.mktemp("undisturbed") / "run"
    answers = dict(run_in_processes(together, (killed[0], undisturbed, dataset), find_process_layout(2)))
    return answers[0], answers[1], killed[0], undisturbed


@pytest.mark.parametrize(("count", "size"), [(6, 2), (7, 2), (1, 2), (2, 3), (0, 4), (1000, 7)])
def test_shards_partition_a_batch_evenly(count, size):
    parts = [ProcessGroup(rank, size).shard(count) for rank in range(size)]
    assert [place for part in parts for place in range(count)[part]] == list(range(count))
    sizes = {len(range(count)[part]) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_gradients_through_gather_equal_those_of_one_process(told):
    expected = gradients_through_gather()
    for answer in told[:2]:
        assert answer["gather"]["loss"] == pytest.approx(expected["loss"], rel=1e-14)
        torch.testing.assert_close(torch.tensor(answer["gather"]["map"]), torch.tensor(expected["map"]))
    found = torch.tensor(told[0]["gather"]["rows"] + told[1]["gather"]["rows"], dtype=torch.float64)
    torch.testing.assert_close(found, torch.tensor(expected["rows"], dtype=torch.float64), **EXACT)


@pytest.mark.parametrize(
    ("name", "rows", "momentum"), [("norm", 7, 0.1), ("norm of one process's rows", 4, None)], ids=["both", "one"]
)
def test_batch_norm_uses_the_rows_of_all_processes(told, name, rows, momentum):
    expected = normalised(rows, (rows,), momentum=momentum)
    first, second = (answer[name] for answer in told[:2])
    for key in ("y", "x gradient"):
        torch.testing.assert_close(torch.tensor(first[key] + second[key]), torch.tensor(expected[key]), **EXACT)
    for each in (first, second):
        assert each["kind"] == "BatchNorm1d"  # afterwards
        assert each["state"].keys() == expected["state"].keys()
        assert each["state"]["num_batches_tracked"] == expected["state"]["num_batches_tracked"]
        for key in ("weight gradient", "bias gradient"):
            torch.testing.assert_close(torch.tensor(each[key]), torch.tensor(expected[key]), **EXACT)
        for key, value in expected["state"].items():
            torch.testing.assert_close(torch.tensor(each["state"][key]), torch.tensor(value), **EXACT)


def test_gradients_are_averaged_and_unused_parameters_have_none(told):
    assert told[0]["averaged"] == told[1]["averaged"] == [[1.5, 1.5], [4.0, 4.0], None]


def test_collectives_of_objects(told):
    for answer in told[:2]:
        expected = [read_tensors(own_tensors(rank)) for rank in range(2)]
        assert (answer["mean"], answer["broadcast"], answer["all gathered"]) == ([1.0], expected[0], expected)


@pytest.mark.parametrize("name", TRAININGS)
def test_two_processes_train_like_one(told, name):
    expected, found = trained_step_by_step(name), told[0]["trainings"][name]
    assert len(found["steps"]) == len(expected["steps"]) == 4 * len(expected["epochs"])  # batches of 6, 6, 6 and 3
    for one, two in zip(expected["steps"], found["steps"], strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-9)
        torch.testing.assert_close(torch.tensor(two["table"]), torch.tensor(one["table"]), rtol=0, atol=1e-8)
        for key, value in one["weights"].items():
            torch.testing.assert_close(torch.tensor(two["weights"][key]), torch.tensor(value), rtol=0, atol=1e-6)
    for one, two in zip(expected["epochs"], found["epochs"], strict=True):
        assert two[0] == pytest.approx(one[0], rel=1e-9)
        assert two[3] == one[3]
        assert (two[2] is None) == (one[2] is None)


@pytest.mark.parametrize("name", TRAININGS)
def test_both_processes_agree_bit_for_bit(told, name):
    assert told[0]["trainings"][name] == told[1]["trainings"][name]
    assert "SyncedBatchNorm1d" not in told[0]["trainings"][name]["names"]


def test_a_checkpoint_inside_an_epoch_covers_all_processes(told):
    assert [answer["kept_inside_an_epoch"] for answer in told[:2]] == [True, True]


def test_a_killed_process_ends_the_training_with_a_checkpoint(killed):
    _, message, seconds, left = killed
    assert_mentions(message, "process 1", "SIGKILL")
    assert seconds < 10
    assert int(left["position"][0]) >= 2


def test_resuming_after_a_kill_is_exact(told):
    resumed, undisturbed = (Run.open(folder) for folder in told[2:])
    assert (undisturbed.info.devices, undisturbed.info.num_nodes) == (2, 1)
    assert resumed.weights().keys() == undisturbed.weights().keys()
    for name, value in undisturbed.weights().items():
        assert torch.equal(resumed.weights()[name], value), name
    lines = [[json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()] for each in told[2:]]
    for one, other in zip(*lines, strict=True):
        assert all(one[key] == other[key] for key in ("epoch", "loss", "probabilities", "pair_losses", "drawn"))
