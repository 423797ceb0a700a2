"""A training that is killed goes on to the same weights; and the page of the full study is that of its record."""

import random

import pytest

from repro.studies import kills as study
from repro.studies import other_kills
from repro.studies.common import read_record


@pytest.fixture(scope="module")
def record():
    return read_record("kills")


@pytest.mark.slow
def test_three_kills():
    tally = study.study("joao", "fork", 3, random.Random(5))
    assert (tally.kills, tally.torn, tally.unlike) == (3, [], 0)
    assert tally.runs >= 1


def test_torn_file_is_counted(tmp_path):
    """Nothing is found in the study because there is nothing, and not because it does not look."""
    tally = study.Tally("joao", "fork")
    folder = tmp_path / "run"
    (folder).mkdir()
    (folder / "run.json").write_text('{"format": 1')
    study.look(tally, folder)
    assert len(tally.torn) == 1


def test_record_supports_the_documents(record):
    rows = record["rows"]
    assert sum(row["kills"] for row in rows if row["how"] == "fork") >= 100
    assert sum(row["kills"] - row["before_the_run"] for row in rows if row["how"] == "command") >= 4
    assert sum(row["while_writing"] for row in rows) >= 10
    assert all(row["torn"] == [] and row["unlike"] == 0 and row["runs"] > 0 for row in rows)


def test_workers_and_folders_of_the_record(record):
    assert sum(len(row["reactions"]) for row in record["workers"]) >= 50
    assert all(row["wrong"] == [] and max(row["reactions"]) < 10 for row in record["workers"])
    assert all(row["wrong"] == [] for row in record["folders"])
    assert record["folders"][0]["kills"] >= 50


def test_folder_that_lies_is_counted(tmp_path):
    """A run that says that it is finished and cannot be loaded, and one that cannot be made again."""
    row = other_kills.FolderKills("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    other_kills.look(row, tmp_path / "run", lambda: None, other_kills._is_finetuned)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "left").touch()
    other_kills.look(row, tmp_path / "other", lambda: None, lambda folder: False)
    assert (row.kills, row.complete, row.incomplete, len(row.wrong)) == (2, 1, 1, 2)
