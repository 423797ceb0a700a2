"""Processes that work for this one."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

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
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin, initargs=(begin,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            raise UserError(
                f"one of {jobs} processes ended early. Is memory short? Try fewer jobs. "
                "In a script, calls with jobs belong under if __name__ == '__main__':. With jobs=1 there are none."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[[], None] | None) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
