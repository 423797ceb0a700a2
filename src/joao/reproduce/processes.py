"""Many independent pieces of work, in one process or several."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch

from joao.training.device import silence_lightning
from joao.workers import workers

Work = TypeVar("Work")


def done_one_by_one(compute: Callable[[Work], object], works: Sequence[Work], jobs: int) -> Iterator[Work]:
    """Does every piece of work and yields it when it is done.

    Args:
        compute: a function that other processes can import.
        works: the pieces.
        jobs: processes, one thread each; they do not change the result.
    """
    if jobs == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums of several threads round differently
        try:
            for work in works:
                compute(work)
                yield work
        finally:
            torch.set_num_threads(threads)
        return
    with workers(jobs, _begin) as pool:
        with without_interrupts():
            tasks = {pool.submit(compute, work): work for work in works}
        try:
            for task in as_completed(tasks):
                task.result()
                yield tasks[task]
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():  # what they have not finished is computed again
                child.terminate()
            raise


def _begin() -> None:
    """What a new process does first."""
    torch.set_num_threads(1)
    silence_lightning()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Ctrl-C inside is heard of afterwards, and not at all by processes that are started inside: it is for this one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
