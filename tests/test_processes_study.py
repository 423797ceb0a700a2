"""The study of processes: what it counts as a difference, and that its page is that of its record."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("processes_study", ROOT / "repro/studies" / "processes.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "results/processes.json").read_text(encoding="utf-8"))


def test_differences_by_hand(study):
    one = {"loss": 2.0, "table": np.array([[0.5, 0.5]]), "weights": np.array([1.0, 2.0])}
    other = {"loss": 2.5, "table": np.array([[0.4, 0.6]]), "weights": np.array([1.0, 1.5])}
    (found,) = study.differences([one], [other])
    expected = {"step": 1, "loss": 0.25, "table": 0.1, "weights": 0.5, "mean weight": 0.25}
    assert found == pytest.approx(expected)


def test_the_page_is_that_of_the_record(study, record):
    assert (ROOT / "results/processes.md").read_text(encoding="utf-8") == study.page(record)


def test_what_the_documents_say_of_the_record(record):
    """In float64 two processes are one, but for rounding; a killed training is resumed bit for bit, after seconds."""
    exact = [row for row in record["step by step"] if row["compared"] == "one process and two, float64"]
    assert {row["method"] for row in exact} == {"joao", "joaov2"}
    assert max(step["weights"] for row in exact for step in row["steps"]) < 1e-5
    assert all(row["resumed weights equal bit for bit"] and row["exit code"] == 1 for row in record["killed"])
    assert max(row["seconds until the command ended"] for row in record["killed"]) < 20
