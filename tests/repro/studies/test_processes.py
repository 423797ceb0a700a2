"""The study of processes: what it counts as a difference, and that its page is that of its record."""

import numpy as np
import pytest

from repro.studies import processes as study
from repro.studies.common import read_record


@pytest.fixture(scope="module")
def record():
    return read_record("processes")


def test_differences_match_a_hand_computation():
    one = {"loss": 2.0, "table": np.array([[0.5, 0.5]]), "weights": np.array([1.0, 2.0])}
    other = {"loss": 2.5, "table": np.array([[0.4, 0.6]]), "weights": np.array([1.0, 1.5])}
    (found,) = study.differences([one], [other])
    expected = {"step": 1, "loss": 0.25, "table": 0.1, "weights": 0.5, "mean weight": 0.25}
    assert found == pytest.approx(expected)


def test_record_supports_the_documents(record):
    """In float64 two processes are one, but for rounding; a killed training is resumed bit for bit, after seconds."""
    exact = [row for row in record["step by step"] if row["compared"] == "one process and two, float64"]
    assert {row["method"] for row in exact} == {"joao", "joaov2"}
    assert max(step["weights"] for row in exact for step in row["steps"]) < 1e-5
    assert all(row["resumed weights equal bit for bit"] and row["exit code"] == 1 for row in record["killed"])
    assert max(row["seconds until the command ended"] for row in record["killed"]) < 20
