"""Worker processes that finish, fail or hang (they do not import torch, so they start fast), and their layout."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from joao.core.errors import ProcessLost, UserError
from joao.training.distributed.launch import RENDEZVOUS, ProcessLayout, find_process_layout, run_in_processes
from tests.messages import refused

THREE = ProcessLayout(3, is_worker=False)


def tell(send, word):
    assert Path(os.environ[RENDEZVOUS]).parent.stat().st_mode & 0o777 == 0o700
    send((word, os.environ["LOCAL_RANK"], os.environ[RENDEZVOUS]))


def second_dies(send, how):
    if os.environ["LOCAL_RANK"] == "1":
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)
    time.sleep(600)


def second_raises(send, error):
    if os.environ["LOCAL_RANK"] == "1":
        raise error
    time.sleep(600)


@pytest.fixture(autouse=True)
def nobody_stays():
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) == before


def test_workers_get_their_rank_and_meet_in_a_private_folder():
    words, ranks, places = zip(*sorted(run_in_processes(tell, ["hello"], THREE)), strict=True)
    assert (set(words), ranks, len(set(places))) == ({"hello"}, ("0", "1", "2"), 1)
    assert not Path(places[0]).parent.exists()  # removed at the end


@pytest.mark.parametrize(("how", "end"), [("killed", "SIGKILL"), ("exit", "code 7")])
def test_a_dead_worker_ends_all(how, end):
    with refused("process 1", "2", end, error=ProcessLost):
        list(run_in_processes(second_dies, [how], THREE))


def test_user_errors_of_a_worker_are_raised():
    with pytest.raises(UserError, match=r"^wrong input\.$"):
        list(run_in_processes(second_raises, [UserError("wrong input.")], THREE))


def test_other_errors_of_a_worker_are_raised_with_traceback():
    with pytest.raises(KeyError, match="made up") as raised:
        list(run_in_processes(second_raises, [KeyError("made up")], THREE))
    assert "second_raises" in "".join(raised.value.__notes__)


def test_a_lost_machine_is_reported():
    with pytest.raises(ProcessLost, match="gone"):
        list(run_in_processes(second_raises, [ProcessLost("gone.")], THREE))


def test_arguments_that_cannot_be_pickled_are_rejected():
    with refused("devices", "<lambda>"):
        list(run_in_processes(tell, [lambda: None], THREE))


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3", "RANK": "4", "LOCAL_RANK": "1"}
SLURM = {
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NAME": "train",
}
MACHINES = {"MASTER_ADDR": "first", "MASTER_PORT": "1234", "NODE_RANK": "1"}


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        ((None, None), {}, ProcessLayout()),
        ((2, None), {}, ProcessLayout(2, 1, is_worker=False)),
        ((2, None), {"LOCAL_RANK": "1"}, ProcessLayout(2, 1, 1, 1)),
        ((2, 2), MACHINES, ProcessLayout(2, 2, 2, is_worker=False)),
        ((2, 2), MACHINES | {"LOCAL_RANK": "1"}, ProcessLayout(2, 2, 3, 1)),
        ((None, None), TORCHRUN, ProcessLayout(3, 2, 4, 1)),
        ((3, 2), TORCHRUN, ProcessLayout(3, 2, 4, 1)),
        ((2, 2), SLURM, ProcessLayout(2, 2, 3, 1)),
        ((None, None), SLURM, ProcessLayout()),  # a program that does not care, inside a job
        ((2, None), SLURM | {"SLURM_JOB_NAME": "bash"}, ProcessLayout(2, 1, is_worker=False)),
    ],
)
def test_the_layout_follows_the_environment(asked, environment, expected):
    assert find_process_layout(*asked, environment=environment) == expected


def test_missing_values_use_the_default():
    assert find_process_layout(default=(2, 1), environment={}) == ProcessLayout(2, 1, is_worker=False)
    assert find_process_layout(1, default=(2, 1), environment={}) == ProcessLayout()
    assert find_process_layout(default=(2, 1), environment=TORCHRUN) == ProcessLayout(3, 2, 4, 1)


@pytest.mark.parametrize(
    ("asked", "environment", "values"),
    [
        ((0, None), {}, ["devices", 1, 0]),
        ((2, None), TORCHRUN, ["devices", 2, "torchrun", 3]),
        ((2, 3), SLURM, ["num_nodes", 3, "SLURM", 2]),
        ((2, 2), {}, ["2 machines", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"]),
        ((2, 2), MACHINES | {"NODE_RANK": "2"}, ["NODE_RANK", 2]),
        ((2, 2), MACHINES | {"NODE_RANK": "one"}, ["NODE_RANK", "'one'"]),
        ((4, None), {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train"}, ["SLURM", "--ntasks-per-node"]),
        ((10**9, None), {}, ["devices", 10**9]),
        ((2, None), {"LOCAL_RANK": "7"}, [7, 2]),
        ((2, 2), MACHINES | {"MASTER_PORT": "none"}, ["MASTER_PORT", "'none'"]),
        ((2, None), SLURM | {"SLURM_NTASKS_PER_NODE": "9" * 5000}, ["SLURM_NTASKS_PER_NODE"]),
        ((2, None), SLURM | {"SLURM_NTASKS": "x", "SLURM_NNODES": ""}, ["SLURM_NNODES", "''"]),
        ((None, None), TORCHRUN | {"LOCAL_WORLD_SIZE": "0"}, ["LOCAL_WORLD_SIZE", "'0'"]),
        ((None, None), TORCHRUN | {"RANK": "6"}, ["torchrun", 6]),
    ],
)
def test_inconsistent_layouts_are_rejected(asked, environment, values):
    with refused(*values):
        find_process_layout(*asked, environment=environment)


@pytest.mark.parametrize("stored", [0, 10**9])
def test_a_run_cannot_ask_for_any_number_of_processes(stored):
    """``run.json`` may come from a stranger, and its number of processes is the default of ``--resume``."""
    with refused("devices", stored):
        find_process_layout(default=(stored, 1), environment={})
