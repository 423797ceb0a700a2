"""Processes that work for this one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from joao.core.processes import worker_pool
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
        "from joao.core.processes import worker_pool\n"
        "def wait(name):\n"
        "    pathlib.Path('begun').write_text(str(os.getpid()))\n"
        "    pathlib.Path('begun').rename(name)\n"
        "    time.sleep(300)\n"
        "if __name__ == '__main__':\n"
        "    with worker_pool(1) as pool:\n"
        "        pool.submit(wait, 'at work').result()\n"
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


def test_one_that_is_killed_is_told_in_a_line():
    with refused("1 worker", "jobs=1", "__main__"), worker_pool(1) as pool:
        pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).result()


def test_each_begins_with_what_is_asked():
    with worker_pool(1, begin=_begin) as pool:
        assert pool.submit(os.getenv, "JOAO_TEST_WORKER").result() == "begun"
    assert "JOAO_TEST_WORKER" not in os.environ


def _begin():
    os.environ["JOAO_TEST_WORKER"] = "begun"
