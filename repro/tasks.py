"""Run independent tasks in several processes or on a Ray cluster. Imports little: every process imports it first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from joao.core.engines import map_on_ray
from joao.core.processes import map_in_processes

Task = TypeVar("Task")


def run_tasks(
    compute: Callable[[Task], object], tasks: Sequence[Task], jobs: int | None, engine: str = "local"
) -> Iterator[Task]:
    """Run ``compute`` on every task in ``jobs`` processes, and yield each task when it is finished.

    Other processes must be able to import ``compute``. Each has one thread: sums of several threads round differently.
    With the engine ``ray``, the processes are actors of a Ray cluster, by default one per core.
    """
    finished: Iterable[tuple[int, None]] | None = None
    if engine == "ray":
        finished = map_on_ray(partial(_ignore_result, compute), tasks, jobs, _use_one_thread)
    elif jobs is not None and jobs > 1:
        finished = map_in_processes(partial(_ignore_result, compute), tasks, jobs, _use_one_thread)
    if finished is not None:
        for number, _ in finished:
            yield tasks[number]
        return
    with torch_threads(1):
        for task in tasks:
            compute(task)
            yield task


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Use this number of torch threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _ignore_result(compute: Callable[[Task], object], task: Task) -> None:
    compute(task)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
