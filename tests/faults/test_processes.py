"""Processes that are killed while they start, as the system does when memory is short, and what they listen to."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.faults.conftest import graph_lines
from tests.faults.harness import assert_one_line, begin, children_of, end, workers_of

START_UP = 60.0  # seconds that an interpreter may need on a busy machine until it starts others


def _kill_a_worker(process: subprocess.Popen[str], which: int, after: float) -> None:
    """Kills one of the spawned processes, so many seconds after it was seen."""
    limit = time.monotonic() + START_UP
    while time.monotonic() < limit and process.poll() is None:
        if len(workers := workers_of(process.pid)) > which:
            time.sleep(after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[which], signal.SIGKILL)
            return
        time.sleep(0.002)
    raise AssertionError(f"no worker was started: {process.poll()}")


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """Labelled graphs of more bytes than a pipe holds."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    path.write_text(graph_lines(2000))
    return path


@pytest.mark.parametrize("after", [0.0, 0.5])
def test_compare_tells_of_a_process_that_is_killed_while_it_starts(after, large, tmp_path):
    """The other methods go on."""
    options = ["--methods", "wl,histogram", "--partitions", 1, "--folds", 2, "--jobs", 2]
    process = begin("compare", large, *options, folder=tmp_path)
    _kill_a_worker(process, 0, after)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    limit = time.monotonic() + 10
    while not any("failed: wl" in line for line in lines) and time.monotonic() < limit:
        time.sleep(0.05)
    is_told, is_running = any("failed: wl" in line for line in lines), process.poll() is None
    end(process, 0)
    assert is_told, lines
    assert is_running
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize("which", [0, 1])
def test_pretrain_ends_when_a_process_is_killed_while_it_starts(which, large, tmp_path):
    process = begin("pretrain", large, "--out", "run", "--devices", 2, "--device", "cpu", folder=tmp_path)
    _kill_a_worker(process, which, 0.1)
    ended = end(process, 10)
    assert ended.code is not None, "it hangs"
    assert_one_line(ended, code=1)
    assert not workers_of(process.pid)


def test_reading_molecules_ends_when_a_process_is_killed_while_it_starts(tmp_path):
    pytest.importorskip("rdkit")
    rows = ["smiles", *("C" * (20 + number % 7) for number in range(30_000))]
    (tmp_path / "molecules.csv").write_text("\n".join(rows) + "\n")
    process = begin("data", "molecules.csv", folder=tmp_path)
    _kill_a_worker(process, 0, 0.0)
    ended = end(process, 10)
    assert ended.code is not None, "it hangs"
    assert_one_line(ended)


def _listening(processes: list[int]) -> set[str]:
    """Addresses on which these processes wait for connections, as the kernel has them in hexadecimal."""
    inodes = set()
    for number in processes:
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{number}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes |= {*re.findall(r"socket:\[(\d+)\]", os.readlink(handle))}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and cells[9] in inodes:
                    found.add(cells[1].split(":")[0])
    return found


def _is_loopback(address: str) -> bool:
    """Of 127.0.0.0/8, ::1, or the former written as the latter."""
    words = [bytes.fromhex(address[first : first + 8])[::-1] for first in range(0, len(address), 8)]
    if len(words) == 1:
        return words[0][0] == 127
    whole = b"".join(words)
    return whole == bytes(15) + b"\1" or (whole[:12] == bytes(10) + b"\xff\xff" and whole[12] == 127)


def _family(process: int) -> list[int]:
    children = children_of(process)
    return [process, *(each for child in children for each in _family(child))]


def test_processes_on_one_machine_listen_to_this_machine_alone(graphs, tmp_path):
    process = begin(
        "pretrain", graphs, "--out", "run", "--devices", 2, "--device", "cpu", "--epochs", 40, folder=tmp_path
    )
    found: set[str] = set()
    limit = time.monotonic() + START_UP
    while process.poll() is None and time.monotonic() < limit:
        found |= _listening(_family(process.pid))
        time.sleep(0.02)
    ended = end(process, 10)
    assert ended.code == 0, ended.err
    assert not [address for address in found if not _is_loopback(address)]


NO_OBJECTS = '''
"""Trains in two processes, each of which notes when torch unpickles what another one sent."""
import os
import runpy
from pathlib import Path

import torch.distributed.distributed_c10d as collectives

before = collectives._tensor_to_object


def noted(*arguments, **options):
    Path(os.environ["NOTES"], f"unpickled-{os.getpid()}").touch()
    return before(*arguments, **options)


collectives._tensor_to_object = noted

if __name__ == "__main__":
    runpy.run_module("joao", run_name="__main__")
'''


def test_processes_unpickle_nothing_that_came_over_the_network(graphs, tmp_path):
    script, notes = tmp_path / "train.py", tmp_path / "notes"
    script.write_text(NO_OBJECTS)
    notes.mkdir()
    options = ["--out", "run", "--devices", 2, "--device", "cpu", "--epochs", 2]
    process = begin("pretrain", graphs, *options, folder=tmp_path, environment={"NOTES": str(notes)}, script=script)
    ended = end(process, 2 * START_UP)
    assert ended.code == 0, ended.err
    assert not list(notes.iterdir())


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_processes_on_one_machine_ask_no_name_server(graphs, tmp_path):
    """With a name server of our own, in a copy of the file system's tree, which is asked nothing."""
    try:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.53", 53))
    except OSError as error:
        pytest.skip(f"no name server can be set up: {error}")
    server.settimeout(0.2)
    asked: list[bytes] = []
    is_over = threading.Event()

    def listen() -> None:
        while not is_over.is_set():
            with contextlib.suppress(TimeoutError):
                asked.append(server.recv(512))

    listener = threading.Thread(target=listen)
    listener.start()
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\noptions timeout:1 attempts:1\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    mounts = f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && mount --bind {tmp_path}/hosts /etc/hosts"
    through = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    try:
        options = ["--out", "run", "--devices", 2, "--device", "cpu", "--epochs", 2]
        ended = end(begin("pretrain", graphs, *options, folder=tmp_path, through=through), 2 * START_UP)
    finally:
        is_over.set()
        listener.join()
        server.close()
    if "mount" in ended.err and ended.code != 0:
        pytest.skip("no files can be mounted here")
    assert ended.code == 0, ended.err
    assert not asked
