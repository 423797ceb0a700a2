"""The targets of the fuzzer take their seeds, see faults, and are all in the record."""

import json
import warnings
from pathlib import Path
from random import Random

import pytest

from fuzz.mutation import mutate
from fuzz.run import NAMES
from fuzz.targets import (
    _PACKED,
    TARGETS,
    Target,
    find_fault,
    join_parts,
    json_from_packed,
    packed_from_json,
    split_parts,
)
from joao.core.errors import UserError
from joao.data import sources
from joao.data.formats import FileFormat

ROOT = Path(__file__).parents[2]
OF_RUNS = ("run", "finetuned_run", "exported", "exported_as_it_is", "report", "finetuned_report", "compare_record")
OF_RUNS += ("paper_record",)
RUNS = json.loads((ROOT / "repro/records/fuzzing.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_seeds_and_their_truncations_have_no_fault(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", "off")
    target = TARGETS[name]
    for seed in target.seeds:
        target.read(seed, fresh(tmp_path / "whole"))  # without an error
        for length in range(0, len(seed), max(1, len(seed) // 12)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert find_fault(target, seed[:length], tmp_path / "cut") is None


def fresh(folder):
    folder.mkdir(exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return folder


@pytest.mark.parametrize("error", [KeyError("a"), UserError("")])
def test_fuzzer_detects_a_fault(error, tmp_path):
    def read(data, folder):
        raise error

    assert find_fault(Target(read, ()), b"", tmp_path / "files") is not None


def test_fuzzer_detects_excessive_memory(tmp_path, monkeypatch):
    def endless(*arguments):
        raise MemoryError

    def read(data, folder):
        (folder / "a.jsonl").write_bytes(data)
        sources.read(folder / "a.jsonl")

    monkeypatch.setenv("JOAO_CACHE", "off")
    monkeypatch.setattr(FileFormat, "read", endless)
    assert isinstance(find_fault(Target(read, ()), b"{}", tmp_path / "files"), MemoryError)


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_by_structure_have_no_fault(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", "off")
    for number in range(20):
        random = Random(number)
        seed = random.choice(TARGETS[name].seeds)
        data = mutate(seed, random, lambda some: some[: len(some) // 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert find_fault(TARGETS[name], data, tmp_path / "files") is None


def test_mutated_json_remains_json():
    seed, changed = b'{"edges": [[0, 1]], "label": {"a": null}}', 0
    for number in range(200):
        data = mutate(seed, Random(number), bytes)
        changed += data != seed
        json.loads(data)  # also if keys are repeated, or numbers are infinite
    assert changed > 100


def test_values_of_packed_files_round_trip():
    for content in map(json_from_packed, _PACKED):
        assert json_from_packed(packed_from_json(content)) == content


def test_parts_round_trip_and_stay_in_their_folder():
    parts = {"raw/edge": b"1,2\n", "index.json": b"{}\n\n"}
    assert split_parts(join_parts(parts)) == parts
    assert split_parts(join_parts({"../a": b"", "/etc/b": b"x", "a b": b""})) == {"etc/b": b"x"}


def test_the_last_run_of_every_target_found_no_fault():
    assert set(NAMES) == {*TARGETS, *OF_RUNS}
    last = {name: found for run in RUNS for name, found in run["targets"].items()}
    for name in NAMES:
        assert last[name]["faults"] == []
        assert last[name]["executions"] > 500
    assert sum(run["executions"] for run in RUNS) >= 1_000_000
