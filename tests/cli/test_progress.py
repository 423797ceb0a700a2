"""What a command that takes its time tells where there is no terminal."""

import pytest

from joao.cli import output as _output
from joao.cli.output import Output

SECONDS = _output.SECONDS_BETWEEN_LINES


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless it is set."""
    now = [100.0]
    monkeypatch.setattr(_output, "SECONDS_BETWEEN_LINES", SECONDS)
    monkeypatch.setattr(_output.time, "monotonic", lambda: now[0])
    return now


def ten_steps(clock, output, **options):
    """Ten of them, two seconds each."""
    with output.progress("scoring", 10, **options) as bar:
        for step in range(10):
            clock[0] += 2
            bar.advance(f"step {step}")


def test_a_line_every_five_seconds_at_most(clock, capsys):
    ten_steps(clock, Output(quiet=False))
    assert capsys.readouterr() == (
        "",
        "joao: scoring: 3 of 10, step 2\njoao: scoring: 6 of 10, step 5\njoao: scoring: 9 of 10, step 8\n",
    )


def test_what_is_quick_says_nothing(clock, capsys):
    with Output(quiet=False).progress("scoring", 200) as bar:
        for _ in range(200):
            bar.advance()
    assert capsys.readouterr() == ("", "")


def test_a_total_that_is_known_later(clock, capsys):
    with Output(quiet=False).progress("reading", None) as bar:
        clock[0] += 6
        bar.add(1000, 4000)
    assert capsys.readouterr().err == "joao: reading: 1000 of 4000\n"


@pytest.mark.parametrize("options", [{"quiet": True}, {"quiet": False, "as_json": True}])
def test_quiet_and_json_have_none(clock, capsys, options):
    ten_steps(clock, Output(**options))
    assert capsys.readouterr() == ("", "")


def test_a_command_with_lines_of_its_own_has_no_others(clock, capsys):
    ten_steps(clock, Output(quiet=False), in_lines=False)
    assert capsys.readouterr() == ("", "")


def test_every_fold_counts(joao, labelled, monkeypatch):
    monkeypatch.setattr(_output, "SECONDS_BETWEEN_LINES", 0.0)
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    outcome = joao("evaluate", "run", "--folds", 2)
    assert outcome.err.splitlines() == [f"joao: scoring: {fold} of 40" for fold in range(1, 41)]  # 4 scores x 5 x 2


def test_every_epoch_of_a_fine_tuning_counts(joao, labelled, monkeypatch):
    monkeypatch.setattr(_output, "SECONDS_BETWEEN_LINES", 0.0)
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    outcome = joao("finetune", "run", labelled, "--out", "tuned", "--epochs", 3)
    assert [line.split(", ")[0] for line in outcome.err.splitlines()] == [
        f"joao: fine-tuning: {epoch} of 3" for epoch in (1, 2, 3)
    ]
