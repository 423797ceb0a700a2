import pytest

from joao.training.distributed.launch import ProcessLayout, find_process_layout
from tests.messages import refused

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
def test_the_place_is_what_the_environment_says(asked, environment, expected):
    assert find_process_layout(*asked, environment=environment) == expected


def test_what_is_not_said_is_as_before():
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
    ],
)
def test_what_does_not_fit_is_said(asked, environment, values):
    with refused(*values):
        find_process_layout(*asked, environment=environment)
