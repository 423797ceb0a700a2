"""The progress of a pre-training, with and without a terminal."""

import contextlib
import os
import pty
import threading

import pytest
from rich.console import Console

from joao.cli.output import Output
from joao.core import progress as _progress
from joao.core.progress import Progress
from joao.runs.logs import TrainingView
from joao.training.metrics import BatchMetrics, EpochMetrics
from tests.messages import assert_mentions

# node_drop at 0.1 and at 0.2, then identity: by augmentation 0.3, 0.6, 0.1 and 0.
TABLE = [[0.1, 0.1, 0.3], [0.05, 0.05, 0.3], [0.1, 0.0, 0.0]]
POOL = ("node_drop(strength=0.1)", "node_drop(strength=0.2)", "identity")


def epoch(number, seconds=2.0, losses=TABLE):
    return EpochMetrics(number, 3.25, TABLE, losses, [[0] * 3] * 3, seconds, 1234.5)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when it is set."""
    now = [100.0]
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 10.0)
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def shown(view, width=100):
    console = Console(width=width, record=True, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(view)
    console.file.close()
    return console.export_text()


def test_before_the_first_epoch(clock):
    text = shown(TrainingView(Progress(), 20, "graphs", POOL))
    assert "0/20" in text
    assert "-:--:--" in text
    assert "+" not in text


@pytest.mark.parametrize("width", [60, 100])
def test_all_fields_are_shown(clock, width):
    view = TrainingView(Progress(), 20, "graphs", POOL)
    for number, seconds in [(4, 2.0), (5, 50.0), (6, 3.0)]:  # a resumed run begins anywhere
        view.on_epoch(epoch(number, seconds))
    lines = shown(view, width).splitlines()
    assert lines[0].split()[:2] == ["epoch", "6/20"]
    assert "0:00:42" in lines[0]  # 14 more of 3 s, the median
    assert lines[0].count("━") == 9  # six of twenty epochs, in a bar of 30 signs; without colours the rest is blank
    assert lines[1].split() == ["loss", "3.250", "1,234", "graphs/s"]
    assert [line.split()[:4] for line in lines[3:]] == [
        ["node_drop", "+", "identity", "0.60"],
        ["node_drop", "+", "node_drop", "0.30"],
        ["identity", "+", "node_drop", "0.10"],
        ["identity", "+", "identity", "0.00"],
    ]


def test_time_left_decreases_to_zero(clock):
    view = TrainingView(Progress(), 20, "graphs", POOL)
    view.on_epoch(epoch(10))
    clock[0] += 5
    assert view.time_left() == "0:00:15"
    clock[0] += 500
    assert view.time_left() == "0:00:00"


def test_pairs_are_shown_only_if_the_policy_learns(clock):
    view = TrainingView(Progress(), 20, "graphs", POOL)
    view.on_epoch(epoch(1, losses=None))
    assert view.top_pairs(5) == []
    assert "pairs" not in shown(view)


def test_lines_without_a_terminal(clock, capsys):
    view = TrainingView(Progress(), 5, "molecules", POOL)
    for number in range(1, 6):
        clock[0] += 6
        view.on_epoch(epoch(number, 6.0))
    # every ten seconds at most, and not at the end, of which the command tells itself
    lines = capsys.readouterr().err.splitlines()
    for line, done, left in zip(lines, ("2/5", "4/5"), ("0:00:18", "0:00:06"), strict=True):
        assert line.startswith("joao: ")
        assert_mentions(line, done, "3.250", "1,234 molecules/s", left, "node_drop + identity 0.60")


@pytest.mark.parametrize("output", [Output(quiet=True), Output(quiet=False, as_json=True)])
def test_quiet_and_json_print_no_lines(clock, capsys, output):
    view = TrainingView(output.shown, 5, "graphs", POOL)
    clock[0] += 60
    view.on_epoch(epoch(1))
    assert capsys.readouterr().err == ""


def test_state_inside_an_epoch(clock, capsys):
    view = TrainingView(Progress(), 5, "graphs", POOL)
    view.on_epoch(epoch(1))
    clock[0] += 11
    view.on_batch(BatchMetrics(2, 1000, 4000, 2.75, 98765.4, 75.0))
    line = capsys.readouterr().err
    assert_mentions(line, "2/5", "1,000/4,000", "2.750", "98,765 graphs/s", "0:01:15")
    clock[0] += 5
    lines = shown(view).splitlines()
    assert "0:01:10" in lines[0]
    assert lines[0].count("━") + lines[0].count("╸") == 8  # one and a quarter of five epochs, in a bar of 30: 7.5
    view.on_epoch(epoch(2))
    assert "1,000/4,000" not in shown(view)


def test_every_epoch_is_logged(clock, caplog, capsys):
    caplog.set_level("INFO", "joao")
    view = TrainingView(Progress(lines=False), 5, "graphs", POOL)
    for number in range(1, 6):
        view.on_epoch(epoch(number))
    assert [(each.name, each.levelname) for each in caplog.records] == [("joao", "INFO")] * 5
    assert_mentions(caplog.messages[3], "4/5", "3.250")
    assert capsys.readouterr().err == ""


def test_a_logged_line_is_not_printed_again(clock, caplog, capsys):
    Progress().line("not enabled")
    caplog.set_level("INFO", "joao")
    Progress().line("100 % enabled")
    assert capsys.readouterr().err == "joao: not enabled\n"
    assert caplog.messages == ["100 % enabled"]


@pytest.mark.parametrize("quiet", [False, True])
def test_live_view_in_a_terminal(joao, labelled, quiet, monkeypatch):
    """The command itself, with a terminal of 80 columns as standard error."""
    here, there = pty.openpty()
    seen = []

    def watch():
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(here, 4096):
                seen.append(piece)

    watcher = threading.Thread(target=watch)
    watcher.start()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    with os.fdopen(there, "w") as terminal:
        words = ["pretrain", labelled, "--out", "run", "--epochs", "3", *(["--quiet"] if quiet else [])]
        assert joao(*words, err=terminal).code == 0
    watcher.join()
    os.close(here)
    shown = b"".join(seen).decode()
    assert [word in shown for word in ("epoch", "loss", "graphs/s", " + ")] == [not quiet] * 4
