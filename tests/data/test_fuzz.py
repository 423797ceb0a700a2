"""The targets of the fuzzer take their seeds, see faults, and are all in the record."""

import json
import warnings
from pathlib import Path

import pytest

from fuzz.run import NAMES
from fuzz.targets import TARGETS, Target, fault, joined, parts_of
from joao.core.errors import UserError
from joao.data import sources
from joao.data.formats import FileFormat

ROOT = Path(__file__).parents[2]
RUNS = json.loads((ROOT / "repro/records/fuzzing.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read_and_what_is_left_of_them_is_told(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", "off")
    target = TARGETS[name]
    for seed in target.seeds:
        target.read(seed, fresh(tmp_path / "whole"))  # without an error
        for length in range(0, len(seed), max(1, len(seed) // 12)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert fault(target, seed[:length], tmp_path / "cut") is None


def fresh(folder):
    folder.mkdir(exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return folder


@pytest.mark.parametrize("error", [KeyError("a"), UserError("two\nlines")])
def test_a_fault_is_seen(error, tmp_path):
    def read(data, folder):
        raise error

    assert fault(Target(read, ()), b"", tmp_path / "files") is not None


def test_a_file_that_takes_all_memory_is_seen(tmp_path, monkeypatch):
    def endless(file_format, path):
        raise MemoryError

    def read(data, folder):
        (folder / "a.jsonl").write_bytes(data)
        sources.read(folder / "a.jsonl")

    monkeypatch.setenv("JOAO_CACHE", "off")
    monkeypatch.setattr(FileFormat, "read", endless)
    assert isinstance(fault(Target(read, ()), b"{}", tmp_path / "files"), MemoryError)


def test_parts_come_back_and_stay_in_their_folder():
    parts = {"raw/edge": b"1,2\n", "index.json": b"{}\n\n"}
    assert parts_of(joined(parts)) == parts
    assert parts_of(joined({"../a": b"", "/etc/b": b"x", "a b": b""})) == {"etc/b": b"x"}


def test_the_record_has_every_target_and_ended_without_a_fault():
    last = RUNS[-1]
    assert set(last["targets"]) == set(NAMES) == {*TARGETS, "run", "finetuned_run", "exported", "exported_as_it_is"}
    assert last["faults"] == 0
    assert all(each["executions"] > 500 for each in last["targets"].values())
    assert sum(run["seconds"] for run in RUNS) >= 600
