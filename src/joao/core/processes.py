"""Worker processes: map a function over chunks, and run independent tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import TypeVar

from joao.core.errors import UserError


@contextmanager
def worker_pool(jobs: int, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes. They are spawned: forked ones would inherit the locks of the caller's threads.

    They call ``begin`` first, and end with this process, even if it is killed. A worker that dies raises a
    :class:`UserError`.
    """
    spawn = multiprocessing.get_context("spawn")
    others = {*multiprocessing.active_children()}
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_start, initargs=(begin,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            for worker in {*multiprocessing.active_children()} - others:  # they might wait forever
                worker.terminate()
            raise UserError(
                f"one of {jobs} worker processes died. If memory is short, use fewer jobs. In a script, guard calls "
                "with if __name__ == '__main__':. With jobs=1, no processes are started."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def exit_with_parent() -> None:
    """Make this process end when its parent ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _start(begin: Callable[[], None] | None) -> None:
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
    """Yield ``compute(chunk)`` for chunks of ``size`` items, in order. Other processes must be able to import it.

    The number of processes, ``jobs``, does not affect the result. ``on_chunk`` is called with the number of items of
    each finished chunk, for a progress bar.
    """
    if jobs < 1:
        raise UserError(f"jobs must be at least 1, got {jobs}.")
    chunks = [items[first : first + size] for first in range(0, len(items), size)]
    with ExitStack() as stack:
        results: Iterable[Result] = map(compute, chunks)
        if min(jobs, len(chunks)) > 1:
            pool = stack.enter_context(worker_pool(min(jobs, len(chunks))))
            # Not pool.map, which hangs if a process dies while others wait.
            tasks = deque(pool.submit(compute, chunk) for chunk in chunks)
            results = (tasks.popleft().result() for _ in chunks)
        for chunk, result in zip(chunks, results, strict=True):
            if on_chunk is not None:
                on_chunk(len(chunk))
            yield result


Task = TypeVar("Task")


def run_tasks(compute: Callable[[Task], object], tasks: Sequence[Task], jobs: int) -> Iterator[Task]:
    """Run ``compute`` on every task in ``jobs`` processes, and yield each task when it is finished.

    Other processes must be able to import ``compute``. Each has one thread: sums of several threads round differently.
    """
    if jobs == 1:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for task in tasks:
                compute(task)
                yield task
        finally:
            torch.set_num_threads(threads)
        return
    with worker_pool(jobs, _initialize) as pool:
        with block_interrupts():
            futures = {pool.submit(compute, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():  # unfinished tasks are run again later
                child.terminate()
            raise


def _initialize() -> None:
    import torch

    torch.set_num_threads(1)


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes started inside ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
