"""Packed files with numbers that are none, and names of classes that are not one for each class."""

from __future__ import annotations

import numpy as np
import pytest

import joao
from tests.data.packed_files import ABOUT, three_graphs, write_packed
from tests.faults.harness import assert_one_line, assert_refused_or_read, call, run

ROWS = {"node_attributes": 6, "edge_attr": 6, "targets": 3}


def _with_numbers(path, name, value):
    numbers = np.arange(ROWS[name], dtype=np.float32)[:, None]
    numbers[1] = value
    return write_packed(path, {**three_graphs(), name: numbers}, target_names=["task"] * (name == "targets"))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ROWS)
def test_numbers_that_are_none_are_refused(name, value, tmp_path):
    path = _with_numbers(tmp_path / "numbers.safetensors", name, value)
    if name == "targets" and np.isnan(value):  # not measured
        assert np.isnan(joao.read(path).targets[1])
        return
    assert_one_line(run("data", path))
    assert_one_line(run("pretrain", path, "--out", "run", "--epochs", 1))


def test_finite_numbers_are_read(tmp_path):
    for name in ROWS:
        assert len(joao.read(_with_numbers(tmp_path / f"{name}.safetensors", name, 0.5))) == 3


def _twelve(path, classes, names):
    """Twelve graphs of two nodes and an edge, in classes."""
    count = 12
    arrays = {
        "first_node": np.full(count, 2),
        "first_edge": np.full(count, 2),
        "source": np.array([1, 0] * count),
        "degrees": np.ones(2 * count, dtype=np.int64),
        "node_labels": np.array([[number % 3] for number in range(2 * count)]),
        "classes": np.array(classes),
    }
    return write_packed(path, arrays, class_names=names, counts={**ABOUT["counts"], "graphs": count})


NAMES = {
    "unused": ([0, 2] * 6, ["a", "never", "c"]),
    "last unused": ([0, 1] * 6, ["a", "b", "never"]),
    "repeated": ([0, 1] * 6, ["a", "a"]),
    "repeated and unused": ([0, 1] * 6, ["a", "b", "a"]),
    "one of two": ([0] * 12, ["a", "b"]),
    "empty": ([0, 1] * 6, ["a", ""]),
}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("command", ["data", "compare", "finetune"])
def test_names_of_classes_are_one_for_each_class_or_told_of(command, what, trained, tmp_path):
    path = _twelve(tmp_path / "classes.safetensors", *NAMES[what])
    arguments = {
        "data": ("data", path),
        "finetune": ("finetune", trained, path, "--out", "out", "--epochs", 1),
    }
    if command == "compare":
        ended = call(lambda: joao.compare(path, ["histogram"], partitions=1, folds=2), deadline=30)
    else:
        ended = run(*arguments[command], deadline=30)
    assert_refused_or_read(ended)


def test_repeated_names_of_classes_are_refused(tmp_path):
    """Two classes of one name cannot be told apart: whoever predicts it says nothing."""
    assert_one_line(run("data", _twelve(tmp_path / "classes.safetensors", *NAMES["repeated"])))


def test_classes_that_no_graph_has_are_not_learned(tmp_path):
    """A name of which no graph is must not become an output of a classifier, nor a class of a score."""
    path = _twelve(tmp_path / "classes.safetensors", *NAMES["unused"])

    def look():
        model = joao.JOAOClassifier(epochs=1, device="cpu").fit(path, None)
        assert [*map(str, model.classes_)] == ["a", "c"]

    ended = call(look, deadline=30)
    assert_refused_or_read(ended)
