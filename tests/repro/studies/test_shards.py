"""The study of graphs in shards: its page by hand, what the documents say of it, and that it runs."""

import sys

import pytest

from repro.studies import shards as study
from repro.studies.common import PAGES, read_record


@pytest.fixture
def record():
    return read_record("shards")


def test_record_supports_the_documents(record):
    """Memory is flat: a thousand times the graphs, and less than a fifth more anonymous memory."""
    sizes = [row["graphs"] for row in record["sizes"]]
    assert sizes[-1] == 1000 * sizes[0] == 10_000_000
    peaks = [row["shards"]["anonymous at most"] for row in record["sizes"]]
    assert max(peaks) < 1.2 * min(peaks)
    in_memory = [row["memory"]["anonymous at most"] for row in record["sizes"] if "memory" in row]
    assert in_memory[-1] > 3 * peaks[-1]


def test_assumed_gpu_speed_is_in_the_benchmarks():
    tables = (PAGES / "benchmarks/tables.md").read_text()
    assert any("H200" in line and f"| {study.H200:,} |" in line for line in tables.splitlines())


def test_arithmetic_matches_a_hand_computation(record):
    packing = {"bytes": 1000, "CPU seconds": 2.0, "shards": 5, "index bytes": 500}
    record |= {"batch": 10, "shard graphs": 1000, "window": 100}
    record["sizes"] = [{"graphs": 10, "packing": packing, "shards": {"opening seconds": 1.0}}]
    record["speed"]["graphs per CPU second"]["batches"]["shards"] = 50.0
    record["networks"] = {"graphs": {"parameters": 10**6, "width": 100}, "molecules": {"parameters": 4, "width": 1}}
    told = [row[1] for row in study.billion(record, graphs=10**7, ranks=4)]
    assert "1 GB" in told  # 100 bytes a graph
    assert "10,000 files" in told
    assert "1.0 MB" in told  # of index.json
    assert "555.6 CPU hours" in told
    assert "0.0 MB" in told  # 4 x 10 x 100 bytes read a step
    assert "6.00 MB (gin), 0.00 MB (molecule_gin)" in told  # gradients
    assert any(each.startswith("0.0 MB (gin)") for each in told)  # projections


@pytest.mark.slow
def test_study_runs(own_folders, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PAGES", tmp_path)
    words = ["shards", "--sizes", "600,2600", "--steps", "3", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    found = read_record("shards")
    assert [row["packing"]["shards"] for row in found["sizes"]] == [1, 1]
    # In memory and in shards, the same steps.
    assert all(row["shards"]["loss"] == row["memory"]["loss"] for row in found["sizes"])
    assert found["pass"]["graphs"] == 2600
    assert (tmp_path / "shards.png").stat().st_size > 5000
