"""Oracle: brute force over all pairs in float64, and RDKit's own Tanimoto similarity."""

import sys

import numpy as np
import pytest

import joao
from joao.core.errors import UserError
from joao.runs import neighbors as module
from joao.runs.trained import load_run, model_path
from tests.messages import refused

Chem = pytest.importorskip("rdkit.Chem")

SMILES = [
    f"{'C' * (1 + number % 7)}{end}" for number, end in enumerate(["O", "N", "Cl", "c1ccccc1", "C(=O)O", "#N", "F"] * 6)
]


@pytest.fixture(scope="module")
def encoder():
    return load_run(model_path("molecules"), device="cpu")


def cosines(encoder, queries, library):
    a, b = (encoder.embed(joao.read(each)).double().numpy() for each in (queries, library))
    a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b))
    return a @ b.T


def tanimoto(queries, library):
    from rdkit import DataStructs
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    made = GetMorganGenerator(radius=2, fpSize=2048)
    a, b = ([made.GetFingerprint(Chem.MolFromSmiles(text)) for text in each] for each in (queries, library))
    return np.array([DataStructs.BulkTanimotoSimilarity(one, b) for one in a])


def assert_best(found, expected):
    """The similarities are the largest ones, in order, and belong to the rows."""
    k = found.rows.shape[1]
    np.testing.assert_allclose(found.similarities, -np.sort(-expected, axis=1)[:, :k], atol=2e-6)
    np.testing.assert_allclose(np.take_along_axis(expected, found.rows, axis=1), found.similarities, atol=2e-6)
    assert all(len({*rows}) == k for rows in found.rows.tolist())


@pytest.mark.parametrize("by", ["encoder", "ecfp"])
@pytest.mark.parametrize("block", [5, 1 << 14])
def test_neighbours_equal_brute_force(encoder, monkeypatch, by, block):
    monkeypatch.setattr(module, "BLOCK_ROWS", block)
    monkeypatch.setattr(module, "_QUERIES_AT_ONCE", 3)
    queries = ["CCCCO", "c1ccccc1CC", "CCN", "OCC#N"]
    expected = cosines(encoder, queries, SMILES) if by == "encoder" else tanimoto(queries, SMILES)
    found = joao.neighbors(SMILES, queries, encoder, k=7, by=by)
    assert_best(found, expected)
    assert {*found.found} == {*found.rows.ravel().tolist()}
    assert all(found.found[row].smiles == SMILES[row] for row in found.found)
    within = cosines(encoder, SMILES, SMILES) if by == "encoder" else tanimoto(SMILES, SMILES)
    np.fill_diagonal(within, -2)
    found = joao.neighbors(SMILES, model=encoder, k=7, by=by)
    assert_best(found, within)
    outliers = [line["query"] for line in found.outliers()]
    assert outliers == [str(row) for row in np.argsort(found.similarities[:, 6], kind="stable")]


def test_index_finds_nearly_the_same(encoder, monkeypatch):
    pytest.importorskip("usearch")
    monkeypatch.setattr(module, "MOST_EXACT_ROWS", 10)
    for by, expected in (("encoder", cosines(encoder, SMILES, SMILES)), ("ecfp", tanimoto(SMILES, SMILES))):
        np.fill_diagonal(expected, -2)
        with pytest.warns(joao.JoaoNotice):
            found = joao.neighbors(SMILES, model=encoder, k=5, by=by)
        best = -np.sort(-expected, axis=1)[:, :5]
        assert not found.exact
        assert np.isclose(found.similarities, best, atol=0.01).mean() > 0.95


def test_missing_index(monkeypatch, encoder):
    monkeypatch.setattr(module, "MOST_EXACT_ROWS", 10)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(UserError, match="pip install usearch"):
        joao.neighbors(SMILES, model=encoder, by="ecfp")


def test_rows_count_failures_and_small_libraries_give_fewer(encoder):
    with pytest.warns(joao.JoaoNotice) as notices:
        found = joao.neighbors(["CCO", "C(", "CCN"], ["CCO", ""], encoder, k=5)
    assert (found.rows.tolist(), found.similarities[0, 0].round(5), found.num_graphs) == ([[0, 2]], 1, 2)
    assert len(notices) == 2  # library and query
    assert found.to_pandas()["smiles"].tolist() == ["CCO", "CCN"]


@pytest.mark.parametrize("wrong", [{"k": 0}, {"k": 2.0}, {"by": "nope"}, {"library": ["CCO"]}, {"library": ["C("]}])
def test_invalid_arguments(encoder, wrong):
    with pytest.raises(UserError):
        joao.neighbors(**{"library": SMILES, "model": encoder, **wrong})


def test_lists_without_a_valid_molecule(tmp_path, monkeypatch):
    """The name of a list in memory is not a path: a file of that name is not read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "molecules").mkdir()
    with refused("molecules", "1 row", "C(", "valid SMILES"):
        joao.neighbors(SMILES, ["C("], by="ecfp")
    with refused("molecules", "2 rows", "C("):
        joao.neighbors(["C(", "x"], ["CCO"], by="ecfp")
    (tmp_path / "molecules").rmdir()
    rows = joao.embed(["C(", "x"], "molecules", device="cpu")
    assert rows.shape == (2, 2560)
    assert np.isnan(rows).all()
