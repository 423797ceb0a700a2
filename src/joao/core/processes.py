"""Processes that work for this one.

Long lists worked through a piece at a time, in one process or several.

Many independent pieces of work, in one process or several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import TypeVar

from joao.core.errors import UserError


def silence_lightning() -> None:
    """Keeps Lightning's advice on devices and precision out of what this process prints."""
    try:
        from lightning_fabric import _logger
    except ImportError:  # the same code inside the larger package
        from lightning.fabric import _logger  # type: ignore[no-redef]
    _logger.setLevel("WARNING")


@contextmanager
def worker_pool(jobs: int, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """New processes, which are not forked: a caller may have threads, whose locks they would inherit locked.

    They end with this process, also where it is killed. One that ends early is told in a line.

    Args:
        jobs: how many.
        begin: what each does first.
    """
    spawn = multiprocessing.get_context("spawn")
    others = {*multiprocessing.active_children()}
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin, initargs=(begin,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            for worker in {*multiprocessing.active_children()} - others:  # which may wait for ever to be heard
                worker.terminate()
            raise UserError(
                f"one of {jobs} processes ended early. Is memory short? Fewer jobs need less. "
                "In a script, calls with jobs belong under if __name__ == '__main__':. With jobs=1 there are none."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def exit_with_parent() -> None:
    """Called in a new process: it ends when the one that began it does, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:  # there is one
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _begin(begin: Callable[[], None] | None) -> None:
    exit_with_parent()
    if begin is not None:
        begin()


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_chunks(
    compute: Callable[[Sequence[Item]], Result],
    items: Sequence[Item],
    *,
    jobs: int = 1,
    size: int = 512,
    on_chunk: Callable[[int], None] | None = None,
) -> Iterator[Result]:
    """Yields ``compute`` of every ``size`` items, in their order.

    Args:
        compute: a function that other processes can import.
        items: what is cut into chunks.
        jobs: processes. They change neither the chunks nor their order.
        size: items of a chunk; the last one has what is left.
        on_chunk: told how many items each finished chunk had, for a progress bar.
    """
    if jobs < 1:
        raise UserError(f"jobs must be at least 1, got {jobs}.")
    chunks = [items[first : first + size] for first in range(0, len(items), size)]
    if min(jobs, len(chunks)) <= 1:
        yield from _told(chunks, map(compute, chunks), on_chunk)
        return
    with worker_pool(min(jobs, len(chunks))) as pool:
        # Not pool.map, which stumbles over a process that ends early while others wait.
        tasks = deque(pool.submit(compute, chunk) for chunk in chunks)
        yield from _told(chunks, (tasks.popleft().result() for _ in chunks), on_chunk)


def _told(
    chunks: Iterable[Sequence[Item]], results: Iterable[Result], on_chunk: Callable[[int], None] | None
) -> Iterator[Result]:
    for chunk, result in zip(chunks, results, strict=True):
        if on_chunk is not None:
            on_chunk(len(chunk))
        yield result


Work = TypeVar("Work")


def run_tasks(compute: Callable[[Work], object], works: Sequence[Work], jobs: int) -> Iterator[Work]:
    """Does every piece of work and yields it when it is done.

    Args:
        compute: a function that other processes can import.
        works: the pieces.
        jobs: processes, one thread each; they do not change the result.
    """
    if jobs == 1:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums of several threads round differently
        try:
            for work in works:
                compute(work)
                yield work
        finally:
            torch.set_num_threads(threads)
        return
    with worker_pool(jobs, _begin_work) as pool:
        with block_interrupts():
            tasks = {pool.submit(compute, work): work for work in works}
        try:
            for task in as_completed(tasks):
                task.result()
                yield tasks[task]
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():  # what they have not finished is computed again
                child.terminate()
            raise


def _begin_work() -> None:
    """What a new process does first."""
    import torch

    torch.set_num_threads(1)
    silence_lightning()


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Ctrl-C inside is heard of afterwards, and not at all by processes that are started inside: it is for this one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
