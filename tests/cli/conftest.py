"""Run the command line in this process, each test in its own folder."""

import contextlib
import io
import json
import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from joao.cli import inputs, main
from joao.core import plots
from joao.core import progress as _progress
from joao.data import names as _download
from joao.evaluation import svm
from joao.runs import scoring
from repro.cli import options as _options
from tests.messages import assert_mentions


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run_joao(*arguments, err=None):
    """Run ``joao`` with these arguments; return its exit code and output."""
    return run_command(main.app, "joao", arguments, err)


def run_command(app, name, arguments, err=None):
    """Run a command line in this process; ``err`` is a file to use as standard error."""
    out, told = io.StringIO(), io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err or told):
            try:
                main.run(app, name)
            except SystemExit as exit:
                code = exit.code or 0
    return Outcome(code, out.getvalue(), told.getvalue())


def assert_refused(outcome, *values):
    """Exit code 2, and on standard error one line that mentions all ``values``."""
    assert outcome.code == 2
    assert outcome.err.startswith(("joao: ", "repro: "))
    assert outcome.err.count("\n") == 1
    assert_mentions(outcome.err, *values)


def assert_noted(outcome, *values):
    """Exit code 0, and on standard error one notice that mentions all ``values``."""
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("joao: note: ")
    assert outcome.err.count("\n") == 1
    assert_mentions(outcome.err, *values)


def last_command(outcome):
    """The words after ``joao`` in the last line of the output."""
    _, found, command = outcome.out.splitlines()[-1].rpartition("joao ")
    assert found
    return shlex.split(command)


def make_quick(patch, draws=False):
    """One process, one value of C instead of seven, no progress lines and, unless it ``draws``, an empty picture."""
    for module in (_options, inputs):
        patch.setattr(module, "all_cores", lambda: 1)
    patch.setattr(svm, "C_GRID", (1.0,))
    if not draws:
        patch.setattr(plots, "draw_policy", lambda table, drawn, title, path: path.touch())
    patch.setattr(_progress, "SECONDS_BETWEEN_LINES", math.inf)
    patch.delenv("JOAO_DATA", raising=False)
    patch.delenv("JOAO_CACHE", raising=False)
    patch.setenv("COLUMNS", "200")
    patch.setenv("NO_COLOR", "1")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Run quickly in an empty folder, without network, user cache and local data."""
    make_quick(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    monkeypatch.setattr(_download, "ADDRESS", (tmp_path / "nowhere").as_uri() + "/{name}.zip")
    monkeypatch.setattr(_download, "SCHEMES", ("file",))


@pytest.fixture
def one_partition(monkeypatch):
    """``joao evaluate`` scores one partition instead of five."""
    monkeypatch.setitem(scoring.evaluate.__kwdefaults__, "partitions", [0])


@pytest.fixture(scope="session")
def joao():
    return run_joao


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """The output of ``joao quickstart``, and its folder."""
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch, draws=True)
        return run_joao("quickstart", "--out", folder), folder


@pytest.fixture(scope="session")
def mutag_run(started):
    """The run folder of the quickstart."""
    return started[1]


def graph(**rows):
    return json.dumps({"edges": [[0, 1], [1, 2]], "num_nodes": 3, **rows})


def write_graphs(path, *lines):
    Path(path).write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture
def labelled(tmp_path):
    """24 small graphs of two classes, in a file in the working folder."""
    lines = []
    for number in range(24):
        size = 3 + number % 5
        edges = [[node, node + 1] for node in range(size - 1)] + ([[0, size - 1]] if number % 2 else [])
        lines.append(json.dumps({"edges": edges, "num_nodes": size, "label": number % 2}))
    return Path(write_graphs(tmp_path / "labelled.jsonl", *lines)).name


@pytest.fixture
def unlabelled(tmp_path):
    return Path(write_graphs(tmp_path / "unlabelled.jsonl", *[graph() for _ in range(4)])).name


@pytest.fixture(scope="session")
def tuned(mutag_run, tmp_path_factory):
    """The output of ``joao finetune`` on the run of the quickstart, and its folder."""
    folder = tmp_path_factory.mktemp("finetune") / "tuned"
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        return run_joao("finetune", mutag_run, "MUTAG", "--out", folder, "--epochs", 3, "--device", "cpu"), folder


@pytest.fixture(scope="session")
def mutag_tuned(tuned):
    """The folder of the fine-tuned run."""
    return tuned[1]
