"""Several processes read, cache, train and report on the same files at the same time."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from joao.data import cache, read
from joao.runs.folder import Run
from tests.cli.conftest import run_joao

OPTIONS = ("--epochs", 3, "--device", "cpu", "--set", "encoder.width=4", "--json")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file of graphs that is large enough for the cache."""
    lines = [
        json.dumps({"edges": [[0, 1 + number % 7]], "num_nodes": 2 + number % 7, "label": number % 2})
        for number in range(400)
    ]
    (tmp_path / "graphs.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "MIN_SOURCE_BYTES", 1)
    return "graphs.jsonl"


def at_once(work, count, tmp_path):
    """Run ``work(number)`` in forked processes at the same time; returns their results."""
    context = multiprocessing.get_context("fork")
    gate, told = context.Barrier(count), context.Queue()

    def do(number):
        gate.wait()
        try:
            told.put((number, work(number)))
        except BaseException as error:
            told.put((number, repr(error)))

    processes = [context.Process(target=do, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    answers = dict(told.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return [answers[number] for number in range(count)]


def test_processes_share_one_cache_file(source, tmp_path):
    def keep(number):
        found = set()
        for _ in range(5):  # as often as one has written it, another one finds it gone and writes it again
            found.add((read(f"./{source}").fingerprint, *read(f"./{source}").notices))
            for path in cache.sizes() if number % 2 else ():
                if path.suffix == ".packed":
                    path.unlink(missing_ok=True)
        return found

    answers = at_once(keep, 4, tmp_path)
    alone = read(f"./{source}")
    assert answers == [{(alone.fingerprint,)}] * 4
    assert all(path.suffix == ".packed" for path in cache.sizes())


@pytest.mark.slow
def test_concurrent_trainings_and_a_report(source, tmp_path):
    assert run_joao("pretrain", source, "--out", "done", *OPTIONS).code == 0
    cache.clear()

    def work(number):
        if number == 2:
            return run_joao("report", "done", "--out", "page.html")
        return run_joao("pretrain", source, "--out", f"run{number}", *OPTIONS)

    answers = at_once(work, 3, tmp_path)
    assert [(answer.code, answer.err) for answer in answers] == [(0, "")] * 3
    assert Path("page.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    expected = Run.open(tmp_path / "done").weights()
    for number in range(2):
        found = Run.open(tmp_path / f"run{number}").weights()
        assert {name: value.tolist() for name, value in found.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
    assert os.listdir(tmp_path / "cache" / "packed") == [path.name for path in cache.sizes()]
