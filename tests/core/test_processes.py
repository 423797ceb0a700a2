"""Processes that work for this one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from joao.core.processes import Ended, Processes, map_in_processes, pickle_call
from tests.messages import refused


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_they_end_when_the_process_that_they_work_for_is_killed(tmp_path):
    (tmp_path / "work.py").write_text(
        "import os, pathlib, time\n"
        "from joao.core.processes import map_in_processes\n"
        "def wait(name):\n"
        "    pathlib.Path('begun').write_text(str(os.getpid()))\n"
        "    pathlib.Path('begun').rename(name)\n"
        "    time.sleep(300)\n"
        "if __name__ == '__main__':\n"
        "    list(map_in_processes(wait, ['at work'], 1))\n"
    )
    with subprocess.Popen([sys.executable, "work.py"], cwd=tmp_path) as killed:
        while not (tmp_path / "at work").exists():
            assert killed.poll() is None
            time.sleep(0.05)
        worker = int((tmp_path / "at work").read_text())
        assert is_there(worker)
        killed.kill()
    try:
        for _ in range(600):
            if not is_there(worker):
                return
            time.sleep(0.05)
        pytest.fail("still there after half a minute")
    finally:
        if is_there(worker):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "end"), [("os.kill(os.getpid(), 9)", "SIGKILL"), ("os._exit(3)", "3"), ("os._exit(0)", "0")]
)
def test_a_worker_that_dies_is_told_in_a_line_with_its_item(code, end):
    with refused("1 worker", end, "bad = 1", "jobs=1", "__main__"):
        list(map_in_processes(exec, ["good = 1", f"bad = 1; import os; {code}"], 1))


def test_begin_runs_in_each_process_and_items_keep_their_numbers():
    found = dict(map_in_processes(os.getenv, ["JOAO_TEST_WORKER", "no such name"] * 4, 2, begin=_begin))
    assert found == {number: "begun" if number % 2 == 0 else None for number in range(8)}
    assert "JOAO_TEST_WORKER" not in os.environ


def _begin():
    os.environ["JOAO_TEST_WORKER"] = "begun"


def _square_with_note(number, say):
    say(f"squaring {number}")
    return number**2


def test_notes_arrive_with_the_number_of_their_item_before_its_result():
    notes = {}
    for number, square in map_in_processes(_square_with_note, [5, 6, 7], 2, on_note=notes.__setitem__):
        assert notes[number] == f"squaring {number + 5}"
        assert square == (number + 5) ** 2
    assert notes.keys() == {0, 1, 2}


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first}{second}")


def _raise_odd(item):
    raise Odd("can", "not")


@pytest.mark.parametrize(("function", "item", "kind"), [(len, 3, TypeError), (_raise_odd, 3, RuntimeError)])
def test_exceptions_arrive_with_their_traceback(function, item, kind):
    """The second one cannot be unpickled: its class takes other arguments."""
    with pytest.raises(kind) as raised:
        list(map_in_processes(function, [item], 1))
    told = "".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert "Traceback" in told
    assert "_compute_items" in told


def _sleep(connection, ballast):
    time.sleep(600)


@pytest.mark.parametrize("size", [10, 10_000_000])  # a pipe holds 65,536 bytes
def test_a_process_that_is_killed_while_it_starts_is_noticed(size):
    started = time.monotonic()
    with Processes() as processes:
        processes.start(7, pickle_call(_sleep, bytes(size)))
        ((_, process, _),) = processes.running.values()
        process.kill()
        ((number, message, _),) = processes.messages()
    assert (number, message) == (7, Ended(-signal.SIGKILL))
    assert "SIGKILL" in str(message)
    assert time.monotonic() - started < 10


def test_processes_end_with_the_context():
    with Processes() as processes:
        for number in range(2):
            processes.start(number, pickle_call(_sleep, bytes(10_000_000)))
        identifiers = [process.pid for _, process, _ in processes.running.values()]
    assert not any(map(is_there, identifiers))
