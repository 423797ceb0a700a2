"""Files that say two things, or what cannot be kept, are refused or kept apart, never read as something else."""

from __future__ import annotations

import json
import shutil

import pytest

import joao
from tests.faults.harness import assert_one_line, call, run


@pytest.mark.parametrize(
    ("file", "key"), [("run.json", '"num_graphs": '), ("run.json", '"finished": '), ("finetune.json", '"kind": ')]
)
def test_repeated_keys_of_a_run_are_refused(file, key, tuned, graphs, tmp_path):
    shutil.copytree(tuned, tmp_path / "tuned")
    path = tmp_path / "tuned" / file
    text = path.read_text()
    value = text.split(key, 1)[1].split(",", 1)[0].split("\n", 1)[0]
    path.write_text(text.replace(key, f"{key}{value},\n {key}", 1))
    assert json.loads(path.read_text()) == json.loads(text)
    assert_one_line(run("predict", "tuned", graphs, "--out", "out.csv"))


def test_repeated_keys_of_a_store_are_refused(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    path = tmp_path / "store" / "index.json"
    path.write_text(path.read_text().replace('"name": ', '"name": "other",\n "name": ', 1))
    assert_one_line(run("data", "store"))


TABLES = {
    "too much": lambda table: [[2 * value for value in row] for row in table],
    "nothing": lambda table: [[0.0 for _ in row] for row in table],
    "negative": lambda table: [[-0.5, table[0][1] + 0.5 + table[0][0], *table[0][2:]], *table[1:]],
    "large": lambda table: [[1e300 for _ in row] for row in table],
}


@pytest.mark.parametrize("how", TABLES)
def test_a_table_of_pairs_that_is_no_distribution_is_refused(how, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["probabilities"] = TABLES[how](lines[-1]["probabilities"])
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert_one_line(run("report", "run", "--out", "out.html"))
    assert_one_line(run("export", "run", "--out", "model.safetensors"))
    assert_one_line(call(lambda: repr(joao.load(tmp_path / "run", device="cpu").policy_)))


@pytest.mark.parametrize("new", [-1, 0.5, 1e300])
def test_pairs_that_were_drawn_are_counts(new, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["drawn"][0][0] = new
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert_one_line(run("report", "run", "--out", "out.html"))
