"""``joao embed``: a file with one row per graph."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from joao.baselines import BASELINES
from joao.data import read
from joao.data.names import BUNDLED
from joao.runs.trained import load_run
from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions

MUTAG = read(BUNDLED / "MUTAG.zip")


def test_npz_and_csv_contain_the_embeddings(joao, mutag_run, tmp_path):
    expected = load_run(mutag_run, device="cpu").embed(MUTAG).numpy()
    for name in ("all.npz", "all.csv"):
        outcome = joao("embed", mutag_run, "MUTAG", "--out", name)
        assert (outcome.code, outcome.err) == (0, "")
        assert_mentions(outcome.out.splitlines()[0], name, 188, 303)
        assert last_command(outcome) == ["evaluate", str(mutag_run), "MUTAG"]
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["embeddings"], expected)
    with (tmp_path / "all.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    np.testing.assert_array_equal(np.array([line[2:] for line in lines], dtype=np.float64).astype(np.float32), expected)
    assert [line[1] for line in lines] == [MUTAG.class_names[number] for number in MUTAG.classes]


def test_json(joao, mutag_run):
    outcome = joao("embed", mutag_run, "MUTAG", "--out", "all.csv", "--json")
    assert json.loads(outcome.out) == {"file": "all.csv", "graphs": 188, "dimensions": 303}


def test_quiet_prints_nothing(joao, mutag_run, tmp_path):
    outcome = joao("embed", mutag_run, "MUTAG", "--out", "all.csv", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert (tmp_path / "all.csv").exists()


def test_one_graph_with_unknown_node_labels(joao, tmp_path):
    def write(name, *labels):
        graphs = [{"edges": [[0, 1]], "node_labels": [label, label]} for label in labels]
        (tmp_path / name).write_text("\n".join(map(json.dumps, graphs)))

    write("some.jsonl", "C", "N", "O")
    write("one.jsonl", "Xe")
    assert joao("pretrain", "some.jsonl", "--out", "run", "--epochs", 1).code == 0
    outcome = joao("embed", "run", "one.jsonl", "--out", "one.csv")
    assert_noted(outcome, "joao: note: one: ", "2")
    assert outcome.out.splitlines()[-1].endswith(" pandas.read_csv('one.csv', index_col='graph')")
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 2


def test_rows_of_baselines_beside_the_embeddings(joao, mutag_run, tmp_path):
    counts = BASELINES["wl"]().fit_transform(MUTAG)
    profile = BASELINES["ldp"]().fit_transform(MUTAG)
    outcome = joao("embed", mutag_run, "MUTAG", "--out", "all.npz", "--with", "wl,ldp", "--json")
    assert json.loads(outcome.out)["with"] == {"wl": counts.shape[1], "ldp": profile.shape[1]}
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        parts = file["wl_data"], file["wl_indices"], file["wl_indptr"]
        np.testing.assert_array_equal(csr_array(parts, shape=file["wl_shape"]).toarray(), counts.toarray())
        np.testing.assert_array_equal(file["ldp"], profile)
    assert joao("embed", mutag_run, "MUTAG", "--out", "all.csv", "--with", "wl").code == 0
    with (tmp_path / "all.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header[305:307] == ["wl0", "wl1"]
    np.testing.assert_array_equal(np.array([line[305:] for line in lines], dtype=float), counts.toarray())
    outcome = joao("embed", mutag_run, "MUTAG", "--out", "more.npz", "--with", "wx")
    assert outcome.code != 0
    assert_mentions(outcome.err, "--with", "wx", "wl")
    assert not (tmp_path / "more.npz").exists()


@pytest.mark.parametrize("name", ["wide.csv", "wide.parquet"])
def test_rows_that_are_too_wide_are_refused_before_the_encoder_runs(joao, mutag_run, tmp_path, monkeypatch, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr("joao.runs.result_files.MOST_COLUMNS", 100)
    monkeypatch.setattr("joao.runs.trained.TrainedEncoder.embed", lambda *_: pytest.fail("the encoder ran"))
    width = BASELINES["wl"]().fit_transform(MUTAG).shape[1]
    assert_refused(joao("embed", mutag_run, "MUTAG", "--out", name, "--with", "histogram,wl"), "--with wl", width, 100)
    assert not (tmp_path / name).exists()


def test_options_that_need_a_folder_or_a_file(joao, mutag_run, tmp_path):
    before = sorted(tmp_path.iterdir())
    for name, words in {
        "a.csv": ["--workers", 2],
        "b.npz": ["--engine", "ray"],
        "c.parquet": ["--part-rows", 5],
        "folder": ["--with", "wl"],
        "other": ["--engine", "slurm"],
        "-": [],
    }.items():
        outcome = joao("embed", mutag_run, "MUTAG", "--out", name, *words)
        assert_refused(outcome, {"other": "slurm", "-": "'-'"}.get(name) or words[0])
    assert sorted(tmp_path.iterdir()) == before


def test_folder_and_file_of_parquet(joao, mutag_run, mutag_tuned, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["embed", mutag_run, "MUTAG", "--out", "parts", "--part-rows", 100]
    outcome = joao(*words, "--json")
    facts = {"folder": "parts", "rows": 188, "failures": 0, "parts": 2}
    assert json.loads(outcome.out) == {**facts, "computed": 2}
    assert json.loads(joao(*words, "--json").out) == {**facts, "computed": 0}
    assert_refused(joao("embed", mutag_run, "MUTAG", "--out", "parts"), "parts", "part_rows", 100, 16384)
    assert joao("embed", mutag_run, "MUTAG", "--out", "one.parquet", "--with", "ldp").code == 0
    one = parquet.read_table(tmp_path / "one.parquet")
    assert one.column_names == ["row", "id", "class", "embedding", "ldp"]
    expected = load_run(mutag_run, device="cpu").embed(MUTAG).numpy()
    np.testing.assert_array_equal(np.array(one["embedding"].to_pylist(), dtype=np.float32), expected)
    assert one["class"].to_pylist() == MUTAG.labels.tolist()
    assert joao("predict", mutag_tuned, "MUTAG", "--out", "predicted").code == 0
    assert joao("predict", mutag_tuned, "MUTAG", "--out", "predicted.parquet").code == 0
    folder, file = (parquet.read_table(tmp_path / name) for name in ("predicted", "predicted.parquet"))
    assert folder.replace_schema_metadata().equals(file.replace_schema_metadata())
    assert folder.column_names == ["row", "id", "predicted", "p_-1", "p_1"]


def test_a_folder_without_a_valid_molecule_is_an_error_that_keeps_the_list(joao):
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    Path("named.csv").write_text("smiles,structure\nA1,CCO\nA2,CCN\n")
    outcome = joao("embed", "molecules", "named.csv", "--out", "parts", "--device", "cpu", "--quiet")
    assert_refused(outcome, "named.csv", "2 rows", "_failures.csv", "--smiles")
    assert Path("parts/_failures.csv").read_text().count("\n") == 3
    right = joao("embed", "molecules", "named.csv", "--smiles", "structure", "--out", "others", "--device", "cpu")
    assert right.code == 0
