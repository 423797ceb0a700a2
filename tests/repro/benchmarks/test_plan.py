import os

import pytest

from repro.benchmarks.plan import NAMES, Plan, threads_of
from tests.messages import refused


def test_default_is_every_workload_once():
    assert Plan().names == NAMES
    assert Plan(workloads=("NCI1", "COLLAB", "NCI1")).names == ("NCI1", "COLLAB")


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"workloads": ("NCI",)}, ["'NCI'", "'NCI1'"]),
        ({"devices": ("gpu",)}, ["device", "auto, cpu, cuda", "'gpu'"]),
        ({"repeats": 0}, ["repeats", 1, 0]),
        ({"repeats": -3}, ["repeats", 1, -3]),
        ({"width": 0}, ["width", 1, 0]),
        ({"layers": -1}, ["layers", 1, -1]),
        ({"batch_size": 1}, ["batch_size", 2, 1]),
        ({"threads": ()}, ["device", "thread"]),
        ({"precision": "bf16"}, ["precision", "bf16-mixed", "'bf16'"]),
        ({"precision": "bf16-mixed"}, ["bf16-mixed", "32-true"]),
    ],
)
def test_invalid_plans_are_rejected(options, values):
    with refused("bench", *values):
        Plan(**options)


def test_threads_option_is_parsed():
    cores = len(os.sched_getaffinity(0))
    assert threads_of("all") == (cores,)
    assert threads_of("1, 3,3") == (1, 3)
    for text in ("", "0", "-1", "two", "1.5", "1,,2", "99999"):
        with refused("threads", "'all'", 1024):
            threads_of(text)
