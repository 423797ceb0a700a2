"""``--standardise`` on the command line. Oracle: the same command on a table whose molecules are parents by hand."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import assert_refused, last_command
from tests.messages import assert_mentions, mentions

pytest.importorskip("rdkit")

CHAINS = [f"{'C' * length}{ring}" for ring in ("C1CC1", "C1CCC1", "c1ccccc1", "c1ccncc1") for length in range(6)]
ACIDS = [f"O=C(O){chain}" for chain in CHAINS]
SALTS = [f"O=C([O-]){chain}.[Na+]" for chain in CHAINS]
QUICK = ("--epochs", 1, "--device", "cpu")
SMALL = ("--set", "encoder.width=8", "--set", "encoder.layers=2", *QUICK)


def write_table(path, smiles, labels=None, parts=None):
    labels = [len(text) % 7 for text in smiles] if labels is None else labels
    lines = zip(range(len(smiles)), smiles, labels, parts or ["train"] * len(smiles), strict=True)
    path.write_text(
        "id,smiles,value,part\n" + "".join(f"m{n},{text},{label},{part}\n" for n, text, label, part in lines)
    )
    return path


def rows(path):
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return write_table(folder / "salts.csv", SALTS), write_table(folder / "acids.csv", ACIDS)


@pytest.fixture(scope="module")
def run(joao, tables):
    folder = tables[0].with_name("run")
    outcome = joao("pretrain", tables[0], "--standardise", "--out", folder, *SMALL)
    assert outcome.code == 0, outcome.err
    return folder, outcome


@pytest.fixture(scope="module")
def tuned(joao, tables):
    folder = tables[0].with_name("tuned")
    outcome = joao("finetune", "molecules", tables[0], "--standardise", "--out", folder, "--split", "random", *QUICK)
    assert outcome.code == 0, outcome.err
    return folder, outcome


def test_pretraining_is_that_of_the_parents(joao, run, tables):
    folder, outcome = run
    assert any(mentions(line, "24 of 24") for line in outcome.err.splitlines())
    parents = folder.with_name("run-parents")
    assert joao("pretrain", tables[1], "--standardise", "--out", parents, *SMALL, "--quiet").code == 0
    assert (folder / "weights.safetensors").read_bytes() == (parents / "weights.safetensors").read_bytes()
    assert tomllib.loads((folder / "recipe.toml").read_text())["standardise"] is True
    plain = folder.with_name("run-plain")
    assert joao("pretrain", tables[1], "--out", plain, *SMALL, "--quiet").code == 0
    assert "standardise" not in (plain / "recipe.toml").read_text()
    assert_refused(joao("pretrain", "--resume", folder, "--standardise"), "--resume")


def test_recipe_standardises(joao, run, tmp_path):
    folder, _ = run
    again = tmp_path / "again"
    assert joao("pretrain", "--recipe", folder / "recipe.toml", "--out", again, "--device", "cpu", "--quiet").code == 0
    assert (folder / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes()


def test_embedding_follows_the_encoder(joao, run, tables, tmp_path):
    folder, _ = run
    outcome = joao("embed", folder, tables[0], "--out", tmp_path / "salts.csv", "--device", "cpu")
    assert outcome.code == 0
    assert_mentions(outcome.err, "24 of 24")
    joao("embed", folder, tables[1], "--out", tmp_path / "acids.csv", "--device", "cpu")
    joao("embed", folder, tables[0], "--no-standardise", "--out", tmp_path / "plain.csv", "--device", "cpu")
    assert rows(tmp_path / "salts.csv") == rows(tmp_path / "acids.csv") != rows(tmp_path / "plain.csv")
    assert "--standardise" in last_command(outcome)


def test_parts_follow_the_encoder_and_refuse_another_setting(joao, run, tables, tmp_path):
    folder, _ = run
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["embed", folder, tables[0], "--out", tmp_path / "parts", "--part-rows", 10, "--device", "cpu"]
    outcome = joao(*words, "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert_mentions(outcome.err, "24 of 24")
    found = np.array(parquet.read_table(tmp_path / "parts")["embedding"].to_pylist())
    joao("embed", folder, tables[1], "--out", tmp_path / "acids.npz", "--device", "cpu")
    np.testing.assert_allclose(found, np.load(tmp_path / "acids.npz")["embeddings"], atol=1e-5)
    manifest = json.loads((tmp_path / "parts" / "_manifest.json").read_text())
    assert manifest["made from"]["standardise"] is True
    refusal = joao(*words, "--no-standardise")
    assert refusal.code == 2
    assert_mentions(refusal.err.splitlines()[-1], "standardise", "True")
    plain = ["embed", folder, tables[0], "--out", tmp_path / "plain", "--no-standardise", "--workers", 1]
    assert joao(*plain, "--device", "cpu").code == 0
    manifest = json.loads((tmp_path / "plain" / "_manifest.json").read_text())
    assert "standardise" not in manifest["made from"]
    assert_refused(joao(*plain[:-3], "--standardise", "--workers", 1, "--device", "cpu"), "standardise")


def test_prediction_follows_the_model(joao, tuned, tables, tmp_path):
    folder, _ = tuned
    for name, table in zip(("salts", "acids"), tables, strict=True):
        assert joao("predict", folder, table, "--out", tmp_path / f"{name}.csv", "--device", "cpu").code == 0
    assert rows(tmp_path / "salts.csv") == rows(tmp_path / "acids.csv")
    outcome = joao("predict", folder, tables[0], "--no-standardise", "--out", tmp_path / "plain.csv", "--device", "cpu")
    assert rows(tmp_path / "plain.csv") != rows(tmp_path / "salts.csv")
    assert any(mentions(line, "standardised") for line in outcome.err.splitlines())


def test_prediction_keeps_every_row(joao, tuned, tmp_path):
    folder, _ = tuned
    table = write_table(tmp_path / "new.csv", [SALTS[3], "C1C", ACIDS[3], "CCO", SALTS[3]])
    assert joao("predict", folder, table, "--out", tmp_path / "new-predicted.csv", "--device", "cpu").code == 0
    header, *found = rows(tmp_path / "new-predicted.csv")
    assert [row[0] for row in found] == ["m0", "m1", "m2", "m3", "m4"]
    assert found[0][1:] == found[2][1:] == found[4][1:] != found[3][1:]
    assert found[1][1:] == [""] * (len(header) - 1)


def test_duplicates_are_merged_where_labels_are_learned(joao, tmp_path):
    table = write_table(tmp_path / "twice.csv", [*SALTS, *ACIDS], [1.0] * 12 + [2.0] * 12 + [3.0] * 24)
    how = ["--out", tmp_path / "run", "--split", "random", "--json", *QUICK]
    outcome = joao("finetune", "molecules", table, "--standardise", *how)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["train_graphs"] + found["validation_graphs"] == 24
    assert any(mentions(line, "24 rows") and mentions(line, "24 labels") for line in outcome.err.splitlines())
    info = json.loads((tmp_path / "run" / "finetune.json").read_text())["info"]
    assert info["learned_per_task"]["value"][0] == pytest.approx(2.25, abs=0.2)  # of 2 and 2.5


def test_model_of_plain_molecules_does_not_standardise(joao, tables, tmp_path):
    outcome = joao("embed", "molecules", tables[0], "--out", tmp_path / "plain.csv", "--device", "cpu")
    assert outcome.code == 0
    assert "standardise" not in outcome.err
    assert "--standardise" not in last_command(outcome)


def test_comparison_merges_within_the_parts_of_a_given_split(joao, tmp_path):
    smiles = [*SALTS, *ACIDS[:6]]
    parts = [*(["train"] * 18 + ["test"] * 6), *(["train"] * 3 + ["test"] * 3)]
    table = write_table(tmp_path / "split.csv", smiles, None, parts)
    how = ["--task", "value", "--split", "part", "--epochs", 1, "--jobs", 1, "--device", "cpu", "--json"]
    outcome = joao("compare", table, "--standardise", *how)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["sizes"][0][0] == [17, 1, 9]  # a tenth of the training molecules is for validation
    assert any(mentions(line, "3 rows") and mentions(line, "3 molecules") for line in outcome.err.splitlines())


def test_report_shows_the_graphs_of_a_standardised_run(joao, run, tuned, tmp_path):
    for folder, _ in (run, tuned):
        outcome = joao("report", folder, "--out", tmp_path / f"{folder.name}.html")
        assert outcome.code == 0, outcome.err
        assert "no map" not in outcome.err
        assert SALTS[0] not in (tmp_path / f"{folder.name}.html").read_text()


def test_packed_molecules_are_standardised(joao, run, tables, tmp_path):
    pytest.importorskip("pyarrow")
    for out in ("m.safetensors", "m.joao"):
        assert joao("pack", tables[0], "--standardise", "--out", tmp_path / out, "--quiet").code == 0
        outcome = joao("embed", run[0], tmp_path / out, "--out", tmp_path / f"{out}.npz", "--device", "cpu")
        assert outcome.code == 0, outcome.err
        joao("pack", tables[0], "--out", tmp_path / f"plain-{out}", "--quiet")
        words = ["embed", run[0], tmp_path / f"plain-{out}", "--out", tmp_path / "x.npz", "--device", "cpu"]
        outcome = joao(*words)
        assert outcome.code == 2
        assert_mentions(outcome.err.splitlines()[-1], "standardise")
        assert joao(*words[:-3], tmp_path / f"{out}-x.npz", "--no-standardise", "--device", "cpu").code == 0


def test_graphs_are_refused(joao):
    assert_refused(joao("data", "MUTAG", "--standardise"), "MUTAG")
