"""``joao quickstart``."""

import json
import re

import numpy as np

from joao.config.recipe import make_recipe, read_recipe
from joao.data import read
from joao.data.names import BUNDLED
from joao.evaluation.folds import fold_hash, folds
from joao.runs.scoring import REFERENCES
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions


def test_output_files(started):
    outcome, folder = started
    assert_noted(outcome, "MUTAG", "gin", "4 columns", "encoder=gine")  # the only notice
    assert sorted(path.name for path in folder.iterdir()) == [
        *("embeddings.npz", "evaluation.json", "metrics.jsonl", "policy.png"),
        *("recipe.toml", "run.json", "weights.safetensors"),
    ]
    for name in ("evaluation.json", "embeddings.npz", "policy.png"):
        assert str(folder / name) in outcome.out
    assert (folder / "policy.png").read_bytes().startswith(b"\x89PNG")


def test_printed_scores_are_those_of_the_record(started):
    outcome, folder = started
    record = json.loads((folder / "evaluation.json").read_text())
    shown = re.findall(r"│ .+? +│ +([\d.]+)", outcome.out)
    means = [f"{100 * record[name]['mean']:.2f}" for name in (*REFERENCES, "run")]
    assert shown == ["66.49", *means]
    gain = record["gain over untrained"]
    assert_mentions(outcome.out, *(f"{100 * gain[key]:+.2f}" for key in ("mean", "low", "high")), "95 %")


def test_the_record_has_five_shared_partitions(started):
    record = json.loads((started[1] / "evaluation.json").read_text())
    classes = read(BUNDLED / "MUTAG.zip").classes
    expected = [fold_hash(folds(classes, partition)) for partition in range(5)]
    for name in ("run", "untrained", "untrained_initial", "histogram"):
        assert [part["fold_hash"] for part in record[name]["partitions"]] == expected
    assert record["run"]["mean"] > record["chance"]


def test_embeddings_are_in_the_order_of_the_data(started):
    dataset = read(BUNDLED / "MUTAG.zip")
    with np.load(started[1] / "embeddings.npz", allow_pickle=False) as file:
        assert file["embeddings"].shape == (188, 303)
        np.testing.assert_array_equal(file["classes"], dataset.classes)


def test_the_recipe_is_the_default(started):
    assert read_recipe(started[1] / "recipe.toml") == make_recipe({"data": "MUTAG"})


def test_it_ends_with_a_suggested_command(started):
    assert last_command(started[0]) == ["pretrain", "my_graphs.jsonl", "--out", "runs/mine"]
    assert started[0].out.count("joao pretrain") == 1


def test_existing_files_are_not_overwritten(joao, tmp_path):
    (tmp_path / "file").write_text("precious")
    outcome = joao("quickstart", "--out", "file/run")
    assert_refused(outcome, "joao: file/run: ", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
