"""Oracles: neighbourhoods counted by hand, RDKit's sparse fingerprints folded by a loop, scikit-learn's forests."""

import numpy as np
import pytest

from joao.baselines.forests import FOREST, LARGEST, Forests, molecule_columns
from tests.messages import refused

Chem = pytest.importorskip("rdkit.Chem")
SMILES = ["CCO", "c1ccccc1", "[Na+].[Cl-]", "C", "CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)O", "C[C@@H](N)O", "CCO"]


def fingerprints(smiles):
    return molecule_columns(smiles, ["ecfp"])["ecfp"]


def by_loop(text):
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    counts = np.zeros(2048, dtype=int)
    whole = GetMorganGenerator(radius=2, fpSize=2048).GetSparseCountFingerprint(Chem.MolFromSmiles(text))
    for code, count in whole.GetNonzeroElements().items():
        counts[code % 2048] += count
    return counts


def test_counts_match_the_folded_sparse_fingerprint():
    found = fingerprints(SMILES)
    assert (found.shape, found.dtype) == ((8, 2048), np.float32)
    for row, text in enumerate(SMILES):
        assert found[row].tolist() == by_loop(text).tolist(), text


def test_neighbourhoods_match_a_hand_computation():
    # Benzene: 6 atoms, each alike at radius 0, 1 and 2.
    assert sorted(fingerprints(["c1ccccc1"])[0][fingerprints(["c1ccccc1"])[0] > 0].tolist()) == [6, 6, 6]
    # Methane has a single neighbourhood; a salt that of each ion.
    assert fingerprints(["C", "[Na+].[Cl-]"]).sum(axis=1).tolist() == [1, 2]


def test_mirror_images_and_repeats_have_equal_fingerprints():
    found = fingerprints(SMILES)
    assert (found[5] == found[6]).all()
    assert (found[0] == found[7]).all()
    assert (found[0] != found[1]).any()


def test_counts_are_capped_at_255():
    assert fingerprints(["C" * 300]).max() == 255
    assert by_loop("C" * 300).max() > 255


def test_no_molecules():
    assert fingerprints([]).shape == (0, 2048)


@pytest.mark.parametrize("text", ["C(", "", "c1cccc1"])
def test_unparsable_molecule_is_named(text, capfd):
    with refused("fingerprints", 1, f"'{text}'", "RDKit"):
        fingerprints(["CCO", text])
    assert capfd.readouterr() == ("", "")


def test_descriptors_match_rdkit_one_by_one():
    from rdkit.Chem import Descriptors

    found = molecule_columns(SMILES, ["descriptors", "ecfp"])
    assert found["descriptors"].shape == (8, len(Descriptors.descList))
    assert (found["ecfp"] == fingerprints(SMILES)).all()
    for row, text in enumerate(SMILES):
        for column, (name, compute) in enumerate(Descriptors.descList):
            expected = compute(Chem.MolFromSmiles(text))
            expected = 0 if np.isnan(expected) else min(max(expected, -LARGEST), LARGEST)
            assert found["descriptors"][row, column] == np.float32(expected), (text, name)


def test_several_processes_give_the_same_columns(jobs_here):
    smiles = SMILES * 40  # two chunks
    alone, shared = (molecule_columns(smiles, ["ecfp"], jobs=jobs)["ecfp"] for jobs in (1, 2))
    assert (alone == shared).all()
    assert jobs_here == [2]
    with refused(259, "'C('", "RDKit"):
        fingerprints([*smiles[:259], "C("])


@pytest.fixture
def table():
    """Columns, and labels of three tasks: one with missing labels, one that is constant, one without labels."""
    draw = np.random.default_rng(0)
    columns = draw.normal(size=(90, 5)).astype(np.float32)
    labels = np.stack([columns[:, 0] + columns[:, 1], np.full(90, 3), np.full(90, np.nan)], axis=1).astype(np.float32)
    labels[::7, 0] = np.nan
    return columns, labels


@pytest.mark.parametrize("kind", ["binary", "numbers"])
def test_forests_predict_as_those_of_scikit_learn(table, kind):
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    columns, labels = table
    settings = FOREST[kind] | {"n_estimators": 20}
    if kind == "binary":
        labels[:, 0] = np.where(np.isnan(labels[:, 0]), np.nan, labels[:, 0] > 0)
        labels[:, 1] = 1
    known = ~np.isnan(labels[:60, 0])
    if kind == "binary":
        forest = RandomForestClassifier(**settings, random_state=4).fit(columns[:60][known], labels[:60, 0][known])
        expected = forest.predict_proba(columns[60:])[:, 1]
    else:
        forest = RandomForestRegressor(**settings, random_state=4).fit(columns[:60][known], labels[:60, 0][known])
        expected = forest.predict(columns[60:])
    found = Forests.fit(columns[:60], labels[:60], kind, 4, settings).predict(columns[60:])
    assert found[:, 0] == pytest.approx(expected, abs=1e-12)
    assert (found[:, 1] == (1 if kind == "binary" else 3)).all()
    assert (found[:, 2] == 0).all()
    assert np.ptp(expected) > 0.1


@pytest.mark.parametrize("kind", ["binary", "numbers"])
def test_stored_forests_predict_as_those_of_scikit_learn(table, kind, tmp_path):
    from safetensors.torch import load_file, save_file
    from sklearn.ensemble import RandomForestRegressor

    columns, labels = table
    labels = np.where(np.isnan(labels), np.nan, labels > 1).astype(np.float32) if kind == "binary" else labels
    settings = FOREST[kind] | {"n_estimators": 20}
    grown = Forests.fit(columns[:60], labels[:60], kind, 4, settings)
    save_file(grown.to_tensors(), tmp_path / "forest.safetensors")
    loaded = Forests.from_tensors(load_file(tmp_path / "forest.safetensors"), kind, 3)
    assert (loaded.predict(columns) == grown.predict(columns)).all()
    assert (loaded.depth, loaded.num_columns) == (grown.depth, 5)
    if kind == "numbers":
        known = ~np.isnan(labels[:60, 0])
        forest = RandomForestRegressor(**settings, random_state=4).fit(columns[:60][known], labels[:60, 0][known])
        assert loaded.predict(columns[60:])[:, 0] == pytest.approx(forest.predict(columns[60:]), abs=1e-12)
    with refused(5, 4, "RDKit"):
        loaded.predict(columns[:, :4])


def cycle(tensors):
    tensors["right"][0] = 0


def two_parents(tensors):
    inner = np.flatnonzero(tensors["feature"] >= 0)
    tensors["right"][int(inner[1])] = tensors["right"][int(inner[0])].item()


def foreign_column(tensors):
    tensors["feature"][0] = 5


def not_a_number(tensors):
    tensors["number"][0] = np.nan


def unknown_task(tensors):
    tensors["task"][0] = 3


def negative_root(tensors):
    tensors["root"][0] = -1


def missing_part(tensors):
    del tensors["right"]


def other_type(tensors):
    tensors["right"] = tensors["right"].long()


@pytest.mark.parametrize(
    "damage", [cycle, two_parents, foreign_column, not_a_number, unknown_task, negative_root, missing_part, other_type]
)
def test_damaged_forests_are_refused(table, damage):
    columns, labels = table
    tensors = Forests.fit(columns, labels, "numbers", 0, FOREST["numbers"] | {"n_estimators": 3}).to_tensors()
    Forests.from_tensors(tensors, "numbers", 3)
    damage(tensors)
    with pytest.raises(ValueError, match="forest"):
        Forests.from_tensors(tensors, "numbers", 3)
