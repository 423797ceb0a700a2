"""Processes that work for this one."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from joao.errors import UserError


@contextmanager
def workers(jobs: int, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
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


def end_with_parent() -> None:
    """Called in a new process: it ends when the one that began it does, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:  # there is one
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _begin(begin: Callable[[], None] | None) -> None:
    end_with_parent()
    if begin is not None:
        begin()
