"""Map a function over items in worker processes, started and watched here, or on a Ray cluster. Signals that stop a
training."""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple, Self, TypeVar

from joao.core.errors import UserError, one_line, suggest

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
        connection.send(_portable(error))


def _portable(error: Exception) -> Exception:
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
        UserError: if a process dies.
    """
    waiting = enumerate(items)
    with Processes() as processes:
        call = pickle_call(_compute_items, compute, begin, on_note is not None)
        for number in range(jobs):
            processes.start(number, call)
        busy = 0
        for _, message, connection in processes.messages():
            if isinstance(message, Exception):
                raise message
            if isinstance(message, Ended):
                raise UserError(
                    f"one of {jobs} worker processes died. If memory is short, use fewer jobs. In a script, guard "
                    "calls with if __name__ == '__main__':. With jobs=1, no processes are started."
                )
            if isinstance(message, _Note):
                assert on_note is not None
                on_note(*message)
                continue
            # The message is a result, or None from a process that is ready for its first item.
            if message is not None:
                busy -= 1
            item = next(waiting, None)
            if item is not None:
                busy += 1
                with suppress(OSError):  # the process has died, which its last message reports
                    connection.send(item)
            if message is not None:
                yield message
            if not busy and item is None:
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


ENGINES = ("local", "ray")
MOST_LOSSES = 10  # workers that may die while they compute the same item, before the item is to blame


def check_engine(engine: str) -> None:
    """Raise an error for an unknown engine, or if Ray is missing."""
    if engine not in ENGINES:
        raise UserError(f"engine: unknown engine '{engine}'. {suggest(engine, ENGINES)}")
    if engine == "ray":
        _import_ray()


def map_on(
    engine: str,
    compute: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    *,
    on_gpu: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Compute each item and yield the results as they are finished, with the item's index.

    Args:
        engine: ``local``, or ``ray``, see :func:`map_on_ray`.
        compute: other processes must be able to import it.
        items: read as workers become free.
        workers: number of processes. By default 1 with ``local``, and one per core or GPU of the cluster with ``ray``.
        on_gpu: whether each worker of Ray needs a GPU instead of a core.
    """
    check_engine(engine)
    if engine == "ray":
        return map_on_ray(compute, items, workers, on_gpu=on_gpu)
    if workers is not None and workers > 1:
        return map_in_processes(compute, items, workers)
    return enumerate(map(compute, items))


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray reports its use to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise it warns about a future default
    try:
        import ray
    except ImportError:
        raise UserError("engine: ray is not installed: pip install 'joao[ray]'") from None
    return ray


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Connect to the Ray cluster of this process, of ``RAY_ADDRESS`` or of ``ray start`` on this machine.

    Without any, one is started on this machine. A connection of the user stays open. Yields the package.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        fix = "Start it, correct RAY_ADDRESS, or unset it to start Ray on this machine."
        raise UserError(f"engine: cannot connect to the Ray cluster ({one_line(error)}). {fix}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def map_on_ray(
    compute: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    begin: Callable[[], None] | None = None,
    *,
    on_gpu: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Like :func:`map_in_processes`, but in actors on a Ray cluster (:func:`ray_cluster`), which may die.

    Each actor has one core or GPU and restarts when its process or machine dies. Its item then goes to the next free
    actor, so that a cluster that has lost machines finishes with the others.
    """
    kind = "GPU" if on_gpu else "CPU"
    waiting = enumerate(items)
    lost: deque[tuple[int, Item]] = deque()
    losses: Counter[int] = Counter()
    actors: list[Any] = []
    with ray_cluster() as ray:
        count = workers or int(ray.cluster_resources().get(kind, 0))
        if count < 1:
            raise UserError(f"engine: the Ray cluster has no {kind}. Give the number of workers to wait for.")
        options = {"num_cpus": int(not on_gpu), "num_gpus": int(on_gpu), "max_restarts": -1}
        call = ray.put((compute, begin))

        def start(actor: Any) -> Any:
            return actor.begin.options(max_task_retries=-1).remote(call)  # if it restarts, it answers later

        try:
            actors = [ray.remote(**options)(_RayWorker).remote() for _ in range(count)]
            pending: dict[Any, tuple[Any, tuple[int, Item] | None]] = {start(each): (each, None) for each in actors}
            idle: list[Any] = []
            while True:
                while idle and (item := lost.popleft() if lost else next(waiting, None)) is not None:
                    actor = idle.pop()
                    pending[actor.compute.remote(item[1])] = actor, item
                if idle and not any(item for _, item in pending.values()):
                    return
                if not pending:
                    raise UserError("engine: all Ray workers have died for good. Run the same command again.")
                (reference,), _ = ray.wait(list(pending), num_returns=1)
                actor, item = pending.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:  # joao is missing there, or has another version
                    raise UserError(f"engine: a Ray worker cannot run joao ({one_line(error.cause)}).") from error
                except ray.exceptions.RayError as error:
                    if item is None:
                        continue  # it will not restart
                    losses[item[0]] += 1
                    if losses[item[0]] >= MOST_LOSSES:
                        raise UserError(
                            f"engine: item {item[0]} ended {MOST_LOSSES} workers ({one_line(error)}). If memory is "
                            "short, use smaller parts or fewer workers per machine."
                        ) from error
                    lost.append(item)
                    pending[start(actor)] = actor, None
                    continue
                idle.append(actor)
                if isinstance(result, Exception):
                    raise result
                if item is not None:
                    yield item[0], result
        finally:
            for actor in actors:
                ray.kill(actor)


class _RayWorker:
    """Computes items in an actor. Errors are returned, because Ray would put its own traceback into them."""

    _compute: Callable[[Any], Any] | None = None

    def begin(self, call: tuple[Callable[[Any], Any], Callable[[], None] | None]) -> None:
        """Take the functions, which are not arguments of the constructor: Ray may lose those before a restart."""
        self._compute, begin = call
        if begin is not None:
            begin()

    def compute(self, item: Any) -> Any:
        if self._compute is None:  # it has restarted since it began, and must begin again
            os._exit(1)
        try:
            return self._compute(item)
        except Exception as error:
            return _portable(error)


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


class StopRequest:
    """Whether the user has asked the program to stop; true after the first signal.

    With ``at_once``, the first signal already raises KeyboardInterrupt.
    """

    def __init__(self, notify: Callable[[str], None], at_once: bool = False) -> None:
        self.signal = 0
        self._notify, self._at_once = notify, at_once

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """The exit code by the shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; a second Ctrl-C raises KeyboardInterrupt."""
        stop_now = self._at_once or (self.signal and number == signal.SIGINT)
        self.signal = self.signal or number
        if stop_now:
            raise KeyboardInterrupt
        self._notify(f"{signal.Signals(number).name}: stopping after this step. Press Ctrl-C to stop at once.")


@contextmanager
def catch_stop_signals(
    notify: Callable[[str], None],
    at_once: bool = False,
    enabled: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a :class:`StopRequest`; outside the main thread, signals are left alone."""
    stop = StopRequest(notify, at_once)
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
