"""An unexpected exception is one line, an exit code of its own, and a file with the traceback."""

import re
from pathlib import Path

import pytest

from joao.cli import data, main
from tests.messages import assert_mentions


@pytest.fixture
def broken(monkeypatch):
    def fail(*arguments):
        raise KeyError("something\nthat nobody expected")

    monkeypatch.setattr(data, "_list_or_clear", fail)


def test_a_bug_is_one_line_and_a_file(joao, broken):
    outcome = joao("data")
    assert outcome.code == main.BUG
    assert outcome.err.count("\n") == 1
    (path,) = re.findall(r"/\S+joao-error-\S+\.txt", outcome.err)
    traceback = Path(path).read_text()
    Path(path).unlink()
    assert_mentions(traceback, "Traceback", "in fail", "KeyError")


def test_a_bug_on_a_full_disk_is_one_line(joao, broken, monkeypatch):
    def full(**names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(main.tempfile, "mkstemp", full)
    outcome = joao("data")
    assert outcome.code == main.BUG
    assert outcome.err.count("\n") == 1
    assert_mentions(outcome.err, "KeyError", "No space left on device")
