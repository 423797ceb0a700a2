"""Progress lines of long commands without a terminal."""

import re

import pytest

from joao.cli.output import Output
from joao.core import progress as _progress

SECONDS = _progress.SECONDS_BETWEEN_LINES


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when it is set."""
    now = [100.0]
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", SECONDS)
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def ten_steps(clock, output, **options):
    """Ten of them, four seconds each."""
    with output.progress("scoring", 10, **options) as bar:
        for step in range(10):
            clock[0] += 4
            bar.advance(f"step {step}")


def test_one_line_every_ten_seconds(clock, capsys):
    ten_steps(clock, Output(quiet=False))
    assert capsys.readouterr() == (
        "",
        "joao: scoring: 3 of 10, 0:00:28 left, step 2\njoao: scoring: 6 of 10, 0:00:16 left, step 5\n"
        "joao: scoring: 9 of 10, 0:00:04 left, step 8\n",
    )


def test_quick_work_prints_no_lines(clock, capsys):
    with Output(quiet=False).progress("scoring", 200) as bar:
        for _ in range(200):
            bar.advance()
    assert capsys.readouterr() == ("", "")


def test_total_set_later(clock, capsys):
    with Output(quiet=False).progress("reading", None) as bar:
        clock[0] += 11
        bar.add(1000, 4000)
    assert capsys.readouterr().err == "joao: reading: 1,000 of 4,000\n"


@pytest.mark.parametrize("options", [{"quiet": True}, {"quiet": False, "as_json": True}])
def test_quiet_and_json_print_no_progress(clock, capsys, options):
    ten_steps(clock, Output(**options))
    assert capsys.readouterr() == ("", "")


def test_lines_can_be_switched_off(clock, capsys):
    ten_steps(clock, Output(quiet=False), in_lines=False)
    assert capsys.readouterr() == ("", "")


def test_progress_counts_folds(joao, labelled, monkeypatch):
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.0)
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    outcome = joao("evaluate", "run", "--folds", 2)
    told = [line for line in outcome.err.splitlines() if "scoring" not in line]
    states = [line.split(", ") for line in outcome.err.splitlines() if "scoring" in line]
    notes = [parts for parts in states if any(part.startswith("embedding") for part in parts)]
    assert len(notes) == 6  # the run and five references
    lines = [parts[0] for parts in states if parts not in notes]
    assert lines == [f"joao: scoring: {fold} of 60" for fold in range(1, 61)]  # 6 scores x 5 x 2
    assert len(told) == 5  # one line per partition, with the scores so far
    shown = re.search(r"this run +│ +([\d.]+ ± [\d.]+)", outcome.out)
    assert f"this run {shown[1]}" in told[-1]


def test_progress_counts_epochs_of_fine_tuning(joao, labelled, monkeypatch):
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.0)
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    outcome = joao("finetune", "run", labelled, "--out", "tuned", "--epochs", 3)
    assert [line.split(", ")[0] for line in outcome.err.splitlines()] == [
        f"joao: fine-tuning: {epoch} of 3" for epoch in (1, 2, 3)
    ]
