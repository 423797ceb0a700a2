"""Methods one after another in this process, or each in a process of its own, several at a time."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from joao.comparison.work import Piece, Task, pieces, reason_of
from joao.reproduce.processes import without_interrupts
from joao.training.device import silence_lightning
from joao.workers import end_with_parent


class Done(NamedTuple):
    """A seed of a method that is done, or else why the method cannot go on."""

    method: str
    piece: Piece | None = None
    failure: str = ""


class MethodError(Exception):
    """A fault of the program in the process of a method, with what was printed of it there."""


def in_this_process(tasks: Sequence[Task]) -> Iterator[Done]:
    """Does every task; one that fails is told of, and the others go on."""
    for task in tasks:
        try:
            for piece in pieces(task):
                yield Done(task.method, piece)
        except Exception as error:
            reason = reason_of(error)
            if reason is None:
                raise
            yield Done(task.method, failure=reason)


def in_own_processes(tasks: Sequence[Task], at_once: int) -> Iterator[Done]:
    """The same, with every task in a new process, so that its memory is its own; as they are done."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(tasks), dict[Connection, tuple[SpawnProcess, str]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                task = waiting.pop(0)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(task, there), daemon=True)
                with without_interrupts():
                    process.start()
                there.close()  # so that the end of the process is the end of the pipe
                running[here] = process, task.method
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                process, method = running[connection]
                try:
                    told = connection.recv()
                except EOFError:
                    process.join()
                    told = f"its process ended before its time (exit code {process.exitcode}); was memory short?"
                if isinstance(told, MethodError):
                    raise told
                if isinstance(told, dict):
                    yield Done(method, told)
                    continue
                del running[connection]
                connection.close()
                process.join()
                if told is not None:
                    yield Done(method, failure=told)
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _work(task: Task, parent: Connection) -> None:
    """Sends every piece; at the end, None or why it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked
    end_with_parent()
    silence_lightning()
    try:
        for piece in pieces(task):
            parent.send(piece)
        parent.send(None)
    except Exception as error:
        reason = reason_of(error)
        parent.send(MethodError(f"{task.method}:\n{traceback.format_exc()}") if reason is None else reason)
