"""Runs commands apart from the tests: with a limit of memory, a deadline, and a look at what they took.

A command runs in a fork of this process, which has everything loaded already, so that a run costs milliseconds. What
starts processes of its own, or needs another environment from its first line on, runs in a new interpreter instead.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joao import UserError

GIGABYTE = 1 << 30
MOST_TAKEN = 7 * GIGABYTE // 2  # bytes that a command can take before the system refuses more
DEADLINE = 10.0  # seconds in which every input is read or refused


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; below 0 the signal that ended it, None where it had to be killed at the deadline.
        peak: bytes it took at most, beyond those that it began with.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    peak: int = 0

    @property
    def complaints(self) -> list[str]:
        """The lines on standard error that are neither notices nor progress."""
        return [line for line in self.err.splitlines() if line.strip() and not line.startswith("joao: note: ")]


def run(
    *arguments: object,
    program: str = "joao",
    folder: Path | None = None,
    environment: Mapping[str, str | None] | None = None,
    before: Callable[[], object] | None = None,
    deadline: float = DEADLINE,
    memory: int = MOST_TAKEN,
) -> Ended:
    """Runs ``joao`` with these arguments in a fork.

    Args:
        arguments: of the command line.
        program: ``joao`` or ``repro``.
        folder: to run it in.
        environment: variables to set, or to remove where they are None.
        before: called in the fork, before the command.
        deadline: seconds after which it is killed.
        memory: bytes that it may take beyond those it begins with.
    """

    def command() -> None:
        sys.argv = [program, *map(str, arguments)]
        if before is not None:
            before()
        runpy.run_module(program, run_name="__main__", alter_sys=False)

    return call(command, folder=folder, environment=environment, deadline=deadline, memory=memory)


def call(
    function: Callable[[], object],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str | None] | None = None,
    deadline: float = DEADLINE,
    memory: int = MOST_TAKEN,
) -> Ended:
    """Calls ``function`` in a fork; a :class:`joao.UserError` ends it as it ends a command, with code 2 and a line."""
    with tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        child, taken_before, started = _fork(function, out, err, folder, environment, memory)
        status, usage = _waited(child, started + deadline)
        seconds = time.monotonic() - started
        code = None if status is None else os.waitstatus_to_exitcode(status)
        peak = 0 if usage is None else max(0, usage.ru_maxrss * 1024 - taken_before)
        return Ended(code, *(path.read_text(encoding="utf-8", errors="replace") for path in (out, err)), seconds, peak)


def start(function: Callable[[], object], folder: Path, **options: Any) -> int:
    """Begins a call in a fork without waiting for it; gives the number of the process. See :func:`stop`."""
    child, _, _ = _fork(function, folder / "out", folder / "err", None, options.get("environment"), MOST_TAKEN)
    return child


def stop(child: int) -> None:
    """Ends what :func:`start` began, if it has not ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def command(*arguments: object, program: str = "joao") -> Callable[[], None]:
    """The command line with these arguments, as a function for :func:`start`."""

    def function() -> None:
        sys.argv = [program, *map(str, arguments)]
        runpy.run_module(program, run_name="__main__", alter_sys=False)

    return function


def _fork(
    function: Callable[[], object],
    out: Path,
    err: Path,
    folder: Path | None,
    environment: Mapping[str, str | None] | None,
    memory: int,
) -> tuple[int, int, float]:
    """The child, the bytes that it began with, and when."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    taken, started = _status("VmRSS"), time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python warn of forks beside threads
        child = os.fork()
    if child:
        return child, taken, started
    code = 1
    try:
        faulthandler.disable()
        os.setsid()
        for path, number in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, value in (environment or {}).items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if folder is not None:
            os.chdir(folder)
        most = _status("VmSize") + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except UserError as error:
        code = 2
        sys.stderr.write(f"joao: {error}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _waited(child: int, deadline: float) -> tuple[int | None, Any]:
    while time.monotonic() < deadline:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            return status, usage
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return None, os.wait4(child, 0)[2]


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def begin(
    *arguments: object,
    folder: Path,
    environment: Mapping[str, str | None] | None = None,
    through: Sequence[str] = (),
    script: Path | None = None,
) -> subprocess.Popen[str]:
    """Starts ``python -m joao`` with these arguments, or a script, in a new interpreter and a session of its own.

    Args:
        arguments: of the command line.
        folder: to run it in.
        environment: variables to set, or to remove where they are None.
        through: a command that starts it, such as ``unshare -m``.
        script: to run instead of joao.
    """
    variables = {name: value for name, value in os.environ.items() if name not in (environment or {})}
    variables |= {name: value for name, value in (environment or {}).items() if value is not None}
    what = ["-m", "joao"] if script is None else [str(script)]
    return subprocess.Popen(
        [*through, sys.executable, *what, *map(str, arguments)],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], deadline: float) -> Ended:
    """Waits for what :func:`begin` started, and kills it and all that it started at the deadline."""
    started = time.monotonic()
    try:
        out, err = process.communicate(timeout=deadline)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return Ended(code, out, err, time.monotonic() - started)


def children_of(process: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text(encoding="ascii").split())
    return sorted(found)


def command_line(process: int) -> str:
    """Of a running process; empty where it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def workers_of(process: int) -> list[int]:
    """The processes that were spawned to work, without the one that only tracks resources."""
    return [child for child in children_of(process) if "spawn_main" in command_line(child)]


def assert_one_line(ended: Ended, code: int = 2) -> None:
    """It ended with ``code`` and one line on standard error."""
    assert ended.code == code, (ended.code, ended.seconds, ended.err[-1500:])
    assert len(ended.complaints) == 1, ended.err[-1500:]
    assert ended.complaints[0].startswith("joao: "), ended.err[-1500:]


def assert_refused_or_read(ended: Ended) -> None:
    """It ended well, or with one line; never by a signal, at the deadline, or with a traceback."""
    assert ended.code in (0, 2), (ended.code, ended.seconds, ended.err[-1500:])
    if ended.code == 2:
        assert_one_line(ended)


def assert_bounded(ended: Ended, most: int = GIGABYTE) -> None:
    """It took little memory, whether it was refused or not."""
    assert ended.peak <= most, f"{ended.peak / GIGABYTE:.2f} GB, code {ended.code}: {ended.err[-300:]}"
    assert ended.code is not None, f"still running after {ended.seconds:.0f} s"
    assert_refused_or_read(ended)


def run_each(
    cases: Sequence[tuple[Callable[[], object], Sequence[object]]],
    *,
    program: str = "joao",
    folder: Path | None = None,
    deadline: float = 120.0,
) -> list[Ended]:
    """Runs many commands one after another in a single fork, each after its preparation; for hundreds of odd files."""
    with tempfile.TemporaryDirectory() as kept:
        found = Path(kept, "found")

        def all_of_them() -> None:
            with found.open("w", encoding="utf-8") as file:
                for prepare, arguments in cases:
                    prepare()
                    file.write(json.dumps(_run_here(program, arguments)) + "\n")
                    file.flush()

        whole = call(all_of_them, folder=folder, deadline=deadline)
        ends = [Ended(*json.loads(line)) for line in found.read_text(encoding="utf-8").splitlines()]
        assert len(ends) == len(cases), (whole.code, whole.err[-1500:], cases[len(ends)][1])
        return ends


def _run_here(program: str, arguments: Sequence[object]) -> tuple[int, str, str, float]:
    out, err, code, started = io.StringIO(), io.StringIO(), 0, time.monotonic()
    sys.argv = [program, *map(str, arguments)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(program, run_name="__main__", alter_sys=False)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue(), time.monotonic() - started
