"""Oracle: the same work by a plain loop."""

import os
import subprocess
import sys

import pytest

from joao.core.processes import map_chunks
from tests.data.refusals import assert_told, refused


def doubled(items):
    return [2 * item for item in items]


def ends_its_process(items):
    os._exit(1)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("num", [0, 1, 4, 5, 9])
def test_every_item_is_in_one_chunk_in_order(jobs, num):
    told = []
    found = list(map_chunks(doubled, list(range(num)), jobs=jobs, size=4, on_chunk=told.append))
    assert [item for chunk in found for item in chunk] == [2 * item for item in range(num)]
    assert told == [len(chunk) for chunk in found]
    assert all(len(chunk) == 4 for chunk in found[:-1])


def test_no_processes_is_refused():
    with refused("jobs", 1, 0):
        list(map_chunks(doubled, [1], jobs=0))


def test_a_process_that_ends_early_is_told():
    with refused(2, "__name__ == '__main__'"):
        list(map_chunks(ends_its_process, [1, 2], jobs=2, size=1))


def test_a_process_that_ends_early_while_thousands_wait_is_told_and_nothing_stays(tmp_path):
    (tmp_path / "work.py").write_text(
        "import os\n"
        "from joao.core.processes import map_chunks\n"
        "from joao.core.errors import UserError\n"
        "def large(items):\n"
        "    return bytes(100_000) if items != [500] else os._exit(1)\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        list(map_chunks(large, list(range(20_000)), jobs=2, size=1))\n"
        "    except UserError as error:\n"
        "        print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "work.py"], cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1
    assert_told(ended.stdout, 2, "__name__ == '__main__'")
