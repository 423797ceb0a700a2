"""Worker processes that are started and watched here, and functions that map over items in them."""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self, TypeVar

from joao.core.errors import UserError, short_repr
from joao.core.signals import block_interrupts

PATIENCE = 3.0  # seconds that a terminated process has to end, before it is killed


def all_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ended(NamedTuple):
    """The last message of a process: its exit code, or minus the signal that ended it."""

    code: int

    def __str__(self) -> str:
        return (
            f"ended with exit code {self.code}" if self.code >= 0 else f"was ended by {signal.Signals(-self.code).name}"
        )


class Processes:
    """New processes, which are watched from the moment they are started and end with the context.

    They are spawned: forked ones would inherit the locks of the caller's threads. They ignore Ctrl-C, and end when this
    process ends, even if it is killed.

    ``multiprocessing`` writes the arguments of a process into a pipe of 64 KiB, and waits forever if the process dies
    before it has read them. So a process starts with a few bytes, and its call follows through a connection of which
    only that process has the other end: if it dies, writing fails.
    """

    def __init__(self) -> None:
        self.running: dict[Connection, tuple[int, SpawnProcess, threading.Thread]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for _, process, _ in self.running.values():
            process.terminate()
        for connection, (_, process, sender) in self.running.items():
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
            sender.join()
            connection.close()

    def start(self, number: int, call: bytes, environment: Mapping[str, str] | None = None) -> None:
        """Start a process that makes a ``call`` of :func:`pickle_call`; its messages carry ``number``."""
        context = multiprocessing.get_context("spawn")
        own_end, process_end = context.Pipe()
        process = context.Process(target=_run, args=(process_end, dict(environment or {})), daemon=True)
        with block_interrupts():
            process.start()
        process_end.close()
        sender = threading.Thread(target=_send_call, args=(own_end, call), daemon=True)
        sender.start()
        self.running[own_end] = number, process, sender

    def messages(self) -> Iterator[tuple[int, Any, Connection]]:
        """Yield what the processes send, each with its number and connection, until all have ended.

        A process that fails sends its exception. The last message of every process is :class:`Ended`.
        """
        while self.running:
            for connection in wait(list(self.running)):
                assert isinstance(connection, Connection)
                number, process, sender = self.running[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    sender.join()
                    del self.running[connection]
                    connection.close()
                    message = Ended(process.exitcode or 0)
                yield number, message, connection


def pickle_call(function: Callable[..., None], *arguments: Any) -> bytes:
    """Pickle a call ``function(connection, *arguments)`` for another process, which must be able to import it."""
    return pickle.dumps((function, arguments))


def _send_call(connection: Connection, call: bytes) -> None:
    with suppress(OSError):  # the process has died, which its last message reports
        connection.send_bytes(call)


def _run(connection: Connection, environment: Mapping[str, str]) -> None:
    """Receive a call and make it, in the new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    parent = multiprocessing.parent_process()
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()
    os.environ.update(environment)
    try:
        function, arguments = pickle.loads(connection.recv_bytes())
        function(connection, *arguments)
    except Exception as error:
        with suppress(OSError):  # the parent has ended
            connection.send(portable_error(error))


def portable_error(error: Exception) -> Exception:
    """An error that another process can unpickle, with its traceback as a note unless it is the user's."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, UserError):
        error.add_note(f"In another process:\n{text}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its class needs other arguments
        return RuntimeError(text)
    return error


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


Item = TypeVar("Item")
Result = TypeVar("Result")


class _Note(NamedTuple):
    """A message of a process about the item that it is computing."""

    number: int
    content: Any


def map_in_processes(
    compute: Callable[..., Result],
    items: Iterable[Item],
    jobs: int,
    begin: Callable[[], None] | None = None,
    on_note: Callable[[int, Any], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Compute each item in one of ``jobs`` processes, which call ``begin`` first; yield results with the item's index.

    With ``on_note``, ``compute`` gets a function as its second argument. What it passes to that function arrives at
    ``on_note`` with the item's index.

    Raises:
        UserError: if a process dies; names its item.
    """
    waiting = enumerate(items)
    with Processes() as processes:
        call = pickle_call(_compute_items, compute, begin, on_note is not None)
        for number in range(jobs):
            processes.start(number, call)
        computing: dict[Connection, Item] = {}
        for _, message, connection in processes.messages():
            if isinstance(message, Exception):
                raise message
            if isinstance(message, Ended):
                at = f" (at {short_repr(computing[connection])})" if connection in computing else ""
                raise UserError(
                    f"one of {jobs} worker processes {message}{at}. If memory is short, use fewer processes. In a "
                    "script, guard calls with if __name__ == '__main__':. With jobs=1 or --workers 1, none are started."
                )
            if isinstance(message, _Note):
                assert on_note is not None
                on_note(*message)
                continue
            # The message is a result, or None from a process that is ready for its first item.
            computing.pop(connection, None)
            item = next(waiting, None)
            if item is not None:
                computing[connection] = item[1]
                with suppress(OSError):  # the process has died, which its last message reports
                    connection.send(item)
            if message is not None:
                yield message
            if not computing and item is None:
                return


def _compute_items(
    connection: Connection, compute: Callable[..., Any], begin: Callable[[], None] | None, sends_notes: bool
) -> None:
    if begin is not None:
        begin()
    connection.send(None)  # ready
    while True:  # until the parent ends this process
        number, item = connection.recv()
        notes = [lambda content, number=number: connection.send(_Note(number, content))] if sends_notes else []
        connection.send((number, compute(item, *notes)))


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
    jobs = min(jobs, len(chunks))
    results = map_in_processes(compute, chunks, jobs) if jobs > 1 else enumerate(map(compute, chunks))
    for chunk, result in zip(chunks, in_order(results), strict=True):
        if on_chunk is not None:
            on_chunk(len(chunk))
        yield result


def in_order(numbered: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results in the order of their numbers, from 0; early ones are kept in memory until it is their turn.

    >>> list(in_order([(1, "b"), (0, "a"), (2, "c")]))
    ['a', 'b', 'c']
    """
    early: dict[int, Result] = {}
    number = 0
    for index, result in numbered:
        early[index] = result
        while number in early:
            yield early.pop(number)
            number += 1
