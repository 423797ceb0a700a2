"""Oracle: the same search in Python, see tests/runs/test_neighbors.py."""

import csv
import json

import numpy as np
import pytest

import joao as package
from tests.cli.conftest import assert_refused
from tests.messages import assert_mentions


def lines(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_hits(joao, tmp_path):
    pytest.importorskip("rdkit")
    library = ["CCO", "CCCO", "c1ccccc1", "CCN", "Oc1ccccc1"]
    (tmp_path / "library.csv").write_text("id,smiles\n" + "".join(f"m{n},{text}\n" for n, text in enumerate(library)))
    (tmp_path / "query.smi").write_text("CCCCO butanol\nC( broken\n")
    words = ("--query", "query.smi", "--k", 2, "--device", "cpu")
    outcome = joao("neighbors", "molecules", "library.csv", *words, "--out", "hits.csv")
    assert outcome.code == 0
    assert "1 of 2 rows" in outcome.err
    assert_mentions(outcome.err, "line 2", "C(")
    found = package.neighbors(library, ["CCCCO"], k=2, device="cpu")
    expected = [(str(rank), f"m{row}", library[row]) for rank, row in enumerate(found.rows[0], 1)]
    hits = lines(tmp_path / "hits.csv")
    assert [(hit["rank"], hit["neighbor"], hit["smiles"]) for hit in hits] == expected
    assert {(hit["query"], hit["query_smiles"]) for hit in hits} == {("butanol", "CCCCO")}
    assert np.allclose([float(hit["similarity"]) for hit in hits], found.similarities[0], atol=1e-6)
    outcome = joao("neighbors", "molecules", "library.csv", "--by", "ecfp", "--outliers", "--out", "o.csv", "--json")
    assert json.loads(outcome.out) == {"file": "o.csv", "queries": 5, "library": 5, "k": 4, "by": "ecfp", "exact": True}
    assert len(lines(tmp_path / "o.csv")) == 5


@pytest.mark.parametrize("text", ["OCCC", "C/C=C/C", "c1ccccc1O"])
def test_query_may_be_a_smiles(joao, tmp_path, text):
    pytest.importorskip("rdkit")
    library = ["CCO", "CCCO", "CC=CC", "CCN", "Oc1ccccc1"]
    (tmp_path / "library.smi").write_text("\n".join(library))
    words = ["neighbors", "molecules", "library.smi", "--by", "ecfp", "--k", 1, "--query"]
    assert joao(*words, text, "--out", "hits.csv").code == 0
    found = package.neighbors(library, [text], k=1, by="ecfp")
    assert [(hit["query_smiles"], hit["smiles"]) for hit in lines(tmp_path / "hits.csv")] == [
        (text, library[found.rows[0, 0]])
    ]
    assert_refused(joao(*words, "C(", "--out", "other.csv"), "C(", "SMILES")
    (tmp_path / "CCO").mkdir()  # a path comes first
    assert_refused(joao(*words, "./CCO", "--out", "other.csv"), "CCO")


def test_interrupted(joao, mutag_run, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("joao.runs.neighbors.neighbors", interrupt)
    stopped = joao("neighbors", mutag_run, "MUTAG", "--out", "hits.csv")
    assert stopped.code == 130
    assert_mentions(stopped.err, "Nothing")
    assert not (tmp_path / "hits.csv").exists()


def test_other_graphs_and_parquet(joao, mutag_run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert joao("neighbors", mutag_run, "MUTAG", "--k", 3, "--out", "hits.parquet", "--device", "cpu").code == 0
    table = parquet.read_table(tmp_path / "hits.parquet").to_pydict()
    assert list(table) == ["query", "rank", "neighbor", "similarity"]
    assert len(table["query"]) == 3 * 188
    assert all(query != other for query, other in zip(table["query"], table["neighbor"], strict=True))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("MUTAG", "--out", "a.txt"), [".txt", ".csv"]),
        (("MUTAG", "--out", "a.csv", "--by", "nope"), ["'nope'"]),
        (("MUTAG", "--out", "a.csv", "--by", "ecfp"), ["SMILES"]),
        (("nosuch.csv", "--out", "a.csv"), ["nosuch.csv"]),
        (("MUTAG", "--query", "nosuch.smi", "--out", "a.csv"), ["nosuch.smi"]),
    ],
)
def test_invalid_input(joao, mutag_run, words, values):
    assert_refused(joao("neighbors", mutag_run, *words), *values)
