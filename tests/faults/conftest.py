"""What tests of faults share: an environment of their own, and runs that are trained once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import joao
from tests.faults.harness import run

LOADED = joao.read, joao.JOAO, joao.JOAOClassifier, joao.compare, joao.load  # now, so that forks need not


def pytest_collection_modifyitems(items):
    """Many tests start commands and would run until a deadline if a fault came back."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No cache, no data of the machine, and an empty folder to work in."""
    monkeypatch.delenv("JOAO_DATA", raising=False)
    monkeypatch.setenv("JOAO_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def graph_lines(count: int = 24, **more: object) -> str:
    """Small graphs of two classes as JSON lines."""
    lines = []
    for number in range(count):
        size = 3 + number % 5
        edges = [[node, node + 1] for node in range(size - 1)] + ([[0, size - 1]] if number % 2 else [])
        lines.append(json.dumps({"edges": edges, "num_nodes": size, "label": number % 2, **more}))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def graphs(tmp_path_factory) -> Path:
    """24 labelled graphs in a file."""
    path = tmp_path_factory.mktemp("graphs") / "graphs.jsonl"
    path.write_text(graph_lines())
    return path


@pytest.fixture(scope="session")
def trained(graphs, tmp_path_factory) -> Path:
    """The folder of a finished run on these graphs. It is shared: copy it to change it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    ended = run("pretrain", graphs, "--out", folder, "--epochs", 2, "--device", "cpu", deadline=120)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="session")
def tuned(trained, graphs, tmp_path_factory) -> Path:
    """The folder of a fine-tuned run on these graphs. It is shared likewise."""
    folder = tmp_path_factory.mktemp("tuned") / "tuned"
    ended = run("finetune", trained, graphs, "--out", folder, "--epochs", 2, "--device", "cpu", deadline=120)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory) -> Path:
    """The export of the finished run. It is shared likewise."""
    path = tmp_path_factory.mktemp("exported") / "model.safetensors"
    ended = run("export", trained, "--out", path, deadline=60)
    assert ended.code == 0, ended.err
    return path


@pytest.fixture(scope="session")
def store(graphs, tmp_path_factory) -> Path:
    """A store of shards of these graphs. It is shared likewise."""
    folder = tmp_path_factory.mktemp("store") / "graphs.joao"
    ended = run("pack", graphs, "--out", folder, "--shard-graphs", 10, deadline=60)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="session")
def is_root() -> bool:
    return os.geteuid() == 0
