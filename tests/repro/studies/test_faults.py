"""The study of faults: its page is that of its record, every fault is in it, and none ends in a traceback."""

import pytest

from repro.studies import faults as study
from repro.studies.common import read_record


@pytest.fixture(scope="module")
def record():
    return read_record("faults")


def test_every_fault_has_a_row(record):
    assert [row["name"] for row in record["rows"]] == [fault.__name__ for fault in study.FAULTS]


def test_every_fault_is_reported_by_joao_and_loses_nothing(record):
    for row in record["rows"]:
        lines = row["said"].splitlines()
        assert all(line.startswith("joao: ") for line in lines), row
        assert len(lines) <= 2, row
        assert not any(word in row["kept"] for word in ("DIFFER", "GONE", "CHANGED", "WRITTEN ANYWAY")), row
    codes = {row["name"]: row["code"] for row in record["rows"]}
    assert (codes["ctrl_c"], codes["sigterm"], codes["sigkill"], codes["disk_full"]) == (130, 143, -9, 2)
