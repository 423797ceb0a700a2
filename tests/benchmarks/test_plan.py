import os

import pytest

from joao.core.errors import UserError
from repro.benchmarks.plan import NAMES, Plan, threads_of


def test_without_names_all_workloads_are_meant_and_none_twice():
    assert Plan().names == NAMES
    assert Plan(workloads=("NCI1", "COLLAB", "NCI1")).names == ("NCI1", "COLLAB")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": ("NCI",)}, "bench: unknown workload 'NCI'. Did you mean 'NCI1'?"),
        ({"devices": ("gpu",)}, "bench: device must be one of auto, cpu, cuda, got 'gpu'."),
        ({"repeats": 0}, "bench: repeats must be at least 1, got 0."),
        ({"repeats": -3}, "bench: repeats must be at least 1, got -3."),
        ({"width": 0}, "bench: width must be at least 1, got 0."),
        ({"layers": -1}, "bench: layers must be at least 1, got -1."),
        ({"batch_size": 1}, "bench: batch_size must be at least 2, got 1."),
        ({"threads": ()}, "bench: needs a device, and one thread or more."),
    ],
)
def test_nonsense_is_told(options, message):
    with pytest.raises(UserError) as error:
        Plan(**options)
    assert str(error.value).startswith(message)


def test_threads_as_a_user_writes_them():
    cores = len(os.sched_getaffinity(0))
    assert threads_of("all") == (cores,)
    assert threads_of("1, 3,3") == (1, 3)
    for text in ("", "0", "-1", "two", "1.5", "1,,2", "99999"):
        with pytest.raises(UserError, match="threads must be 'all' or a number from 1 to 1024"):
            threads_of(text)
