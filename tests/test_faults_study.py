"""The study of faults: its page is that of its record, every fault is in it, and none ends in a traceback."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("faults_study", ROOT / "repro/studies" / "faults.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "results/faults.json").read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_record(study, record):
    assert (ROOT / "results/faults.md").read_text(encoding="utf-8") == study.page(record)


def test_every_fault_has_a_row(study, record):
    assert [row["name"] for row in record["rows"]] == [fault.__name__ for fault in study.FAULTS]


def test_every_fault_is_told_in_lines_of_joao_and_loses_nothing(record):
    for row in record["rows"]:
        lines = row["said"].splitlines()
        assert all(line.startswith("joao: ") for line in lines), row
        assert len(lines) <= 2, row
        assert not any(word in row["kept"] for word in ("DIFFER", "GONE", "CHANGED", "WRITTEN ANYWAY")), row
    codes = {row["name"]: row["code"] for row in record["rows"]}
    assert (codes["ctrl_c"], codes["sigterm"], codes["sigkill"], codes["disk_full"]) == (130, 143, -9, 2)
