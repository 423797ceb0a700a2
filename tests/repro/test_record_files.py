"""Record files: sorted lines that several processes can write, and that a killed process cannot damage."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from repro.record_files import RecordFile
from tests.messages import refused


def key(record):
    return f"{record['data']}/{record['seed']}"


def record(data, seed, score=0.5):
    return {"data": data, "seed": seed, "score": score}


@pytest.fixture
def file(tmp_path):
    return RecordFile(tmp_path / "new" / "table.jsonl", key)


def test_missing_file_is_an_empty_table(file):
    assert file.read() == []
    assert file.get("A/0") is None
    with refused(file.path, "A/0"):
        file["A/0"]


def test_records_are_sorted(file):
    wanted = [record("A", 0), record("A", 1), record("B-2", 0), record("B", 0)]  # by folder, then name
    wanted.sort(key=lambda each: key(each).split("/"))
    for each in reversed(wanted):
        file.write(each)
    assert file.read() == wanted
    assert [json.loads(line) for line in file.path.read_text().splitlines()] == wanted
    assert file["B/0"] == record("B", 0)


def test_record_replaces_its_key_and_keeps_other_lines(file):
    file.write(record("A", 0), record("B", 0))
    lines = file.path.read_text().splitlines()
    lines[0] = '{"seed": 0,   "data": "A"}'  # another layout
    file.path.write_text("\n".join(lines) + "\n")
    file.write(record("B", 0, score=0.75))
    assert file.path.read_text().splitlines() == [lines[0], json.dumps(record("B", 0, score=0.75))]


def test_changed_file_is_read_again(file):
    file.write(record("A", 0))
    assert file["A/0"]["score"] == 0.5
    file.write(record("A", 0, score=0.25))
    assert file["A/0"]["score"] == 0.25


@pytest.mark.parametrize("content", ["{", "[]", "3", "{}", '{"data": "A"}', "\n"])
def test_damaged_line_is_named(file, content):
    file.write(record("A", 0))
    with file.path.open("a") as opened:
        opened.write(content + "\n")
    with refused(file.path, "line 2"):
        file.read()


def test_duplicate_key_is_rejected(file):
    file.write(record("A", 0))
    file.path.write_text(2 * file.path.read_text())
    with refused("line 2", "A/0"):
        file.read()


def test_record_of_other_settings_is_rejected(file):
    assert not file.is_current("A/0", {"score": 0.5}, "JOAO on A")
    file.write(record("A", 0))
    assert file.is_current("A/0", {"score": 0.5, "seed": 0}, "JOAO on A")
    with refused(file.path, "A/0", "score", "JOAO on A"):
        file.is_current("A/0", {"score": 0.25}, "JOAO on A")


def write_many(path, data, count):
    for seed in range(count):
        RecordFile(path, key).write(record(data, seed))


def test_concurrent_writes_lose_nothing(file):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_many, args=(file.path, data, 20)) for data in "ABC"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert {key(each) for each in file.read()} == {f"{data}/{seed}" for data in "ABC" for seed in range(20)}


def test_killed_process_leaves_a_complete_file(file):
    process = multiprocessing.get_context("fork").Process(target=write_many, args=(file.path, "A", 10_000))
    process.start()
    while len(file.read()) < 5:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    found = file.read()
    assert [each["seed"] for each in found] == sorted((each["seed"] for each in found), key=str)
    file.write(record("B", 0))  # the lock was released
    assert len(file.read()) == len(found) + 1
