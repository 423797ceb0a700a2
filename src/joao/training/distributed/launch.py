"""Where a process stands among those of a training, as whatever started them says; torch is not needed to know.

Starting the processes of a training on this machine, and noticing at once when one of them is gone."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from joao.core.errors import ProcessLost, UserError
from joao.core.processes import exit_with_parent
from joao.training.distributed.place import ProcessLayout

PATIENCE = 3.0  # seconds in which the process that starts the others must have noticed that one of its own is gone

Send = Callable[[object], None]


def run_in_processes(function: Callable[..., None], arguments: Sequence[Any], place: ProcessLayout) -> Iterator[Any]:
    """Calls ``function(send, *arguments)`` in a new process for each device of this machine; yields what they send.

    Their environment says to Lightning which they are and where they meet. This one does not take part. It raises what
    one of them raises and, when one dies, :class:`joao.core.errors.ProcessLost`; in any case none of them outlives it.

    Args:
        function: one that other processes can import.
        arguments: that can be pickled.
        place: this process's, which starts the others.
    """
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "NODE_RANK": "0"}
    environment = meeting if place.num_nodes == 1 else {}  # for several machines, a person has said it
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, tuple[SpawnProcess, int]] = {}
    started: list[SpawnProcess] = []
    try:
        for number in range(place.devices):
            here, there = context.Pipe(duplex=False)
            own = environment | {"LOCAL_RANK": str(number)}
            process = context.Process(target=_work, args=(function, arguments, own, there), daemon=True)
            _start(process)
            there.close()  # so that the end of the process is the end of the pipe
            running[here] = process, number
            started.append(process)
        while running:
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                try:
                    told = connection.recv()
                except (EOFError, OSError):
                    process, number = running.pop(connection)
                    process.join()
                    if process.exitcode:
                        raise ProcessLost(
                            f"process {number} (of 0 to {place.devices - 1}) {_end_of(process.exitcode)}."
                        ) from None
                    continue
                if isinstance(told, BaseException):
                    raise told
                yield told
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
    return port


def _start(process: SpawnProcess) -> None:
    try:
        process.start()
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise UserError(f"devices: a part of your own cannot be sent to another process ({error}).") from error


def _end_of(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _work(
    function: Callable[..., None], arguments: Sequence[Any], environment: dict[str, str], parent: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    exit_with_parent()
    os.environ.update(environment)
    try:
        function(parent.send, *arguments)
    except ProcessLost as lost:
        # If it was on this machine, the parent knows better which it was and ends this one meanwhile.
        time.sleep(PATIENCE)
        parent.send(lost)
    except (UserError, MemoryError) as error:
        parent.send(error)
    except Exception:
        parent.send(RuntimeError(f"process {environment['LOCAL_RANK']}:\n{traceback.format_exc()}"))
