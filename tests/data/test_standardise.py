"""Standardised molecules. Oracles: parents written by hand, RDKit's steps one by one, and naive loops."""

import dataclasses
import math

import networkx
import numpy as np
import pytest

import joao
from joao.core.errors import JoaoNotice
from joao.data import cache
from joao.data.dataset import Standardised, concatenate_datasets
from joao.data.duplicates import merge_duplicates
from joao.data.formats.packed import read_packed, write_packed
from joao.data.formats.smiles import Columns
from joao.data.molecules import ReadOptions, is_standardised, make_molecules
from joao.data.shards.writer import BlockSource, pack_shards
from tests.messages import assert_mentions, refused

pytest.importorskip("rdkit")

# As written, and its charge parent by hand.
PARENTS = {
    "CC(=O)[O-].[Na+]": "CC(=O)O",
    "OC(C)=O": "CC(=O)O",
    "c1ccccc1[NH3+].[Cl-]": "Nc1ccccc1",
    "C[N+](C)(C)CC([O-])=O": "C[N+](C)(C)CC(=O)[O-]",  # cannot be neutralised without another molecule
    "CN(=O)=O": "C[N+](=O)[O-]",
    "C(C)O": "CCO",
    "OC(=O)C[NH3+]": "NCC(=O)O",
    "F/C=C/[C@H](Cl)Br.O": "F/C=C/[C@H](Cl)Br",
}
TABLE = "id,smiles,active,value\na,CC(=O)[O-].[Na+],1,5\nb,OC(C)=O,0,6\nc,C1CC,1,1\nd,CCO,1,\ne,c1ccccc1[NH3+],0,2\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "salts.csv"
    path.write_text(TABLE)
    return path


def quiet(dataset):
    """The data set without notices, which are warnings."""
    return dataclasses.replace(dataset, notices=())


def same_graphs(one, other):
    assert one.fingerprint == other.fingerprint
    assert one.smiles == other.smiles


def test_parents_are_those_by_hand():
    found = joao.read([*PARENTS], standardise=True)
    same_graphs(found, joao.read([*PARENTS.values()]))
    assert found.standardised == Standardised(8, changed=4, lost_atoms=3)
    assert is_standardised(found.featuriser)
    assert joao.read([*PARENTS]).standardised is None


def test_parents_are_those_of_rdkit_step_by_step():
    from rdkit import Chem
    from rdkit.Chem.MolStandardize import rdMolStandardize

    for text, found in zip(PARENTS, joao.read([*PARENTS], standardise=True).smiles, strict=True):
        fragment = rdMolStandardize.LargestFragmentChooser().choose(rdMolStandardize.Cleanup(Chem.MolFromSmiles(text)))
        assert found == Chem.MolToSmiles(rdMolStandardize.Cleanup(rdMolStandardize.Uncharger().uncharge(fragment)))


def test_metals_are_counted_as_lost():
    found = joao.read(["[Na]OC", "[Pt](Cl)(Cl)(N)N"], standardise=True)
    assert found.smiles[0] == "CO"
    assert found.standardised == Standardised(2, 2, 2)


def test_standardising_again_changes_nothing():
    once = joao.read([*PARENTS], standardise=True)
    again = joao.read(list(once.smiles), standardise=True)
    same_graphs(once, again)
    assert again.standardised == Standardised(8, 0, 0)


def test_rows_names_labels_and_failures_stay(table):
    found, plain = joao.read(table, standardise=True), joao.read(table)
    assert found.smiles == ("CC(=O)O", "CC(=O)O", "CCO", "Nc1ccccc1")
    assert found.graph_names == plain.graph_names == ("a", "b", "d", "e")
    np.testing.assert_array_equal(found.targets, plain.targets)
    assert found.failures == plain.failures
    assert (found.failures[0].line, found.failures[0].text) == (4, "C1CC")
    (notice,) = found.notices
    assert_mentions(notice, "salts", "2 of 4", "1 of them", "1 repeat")
    assert plain.notices == ()


def test_what_cannot_be_standardised_is_a_failure_with_its_text(monkeypatch):
    from rdkit.Chem.MolStandardize import rdMolStandardize

    original = rdMolStandardize.ChargeParent

    def fail(molecule):
        if molecule.GetNumAtoms() == 2:
            raise RuntimeError
        return original(molecule)

    monkeypatch.setattr(rdMolStandardize, "ChargeParent", fail)
    found = joao.read(["CCO", "CC", "C(", "CCN", "C" * 2049], standardise=True)
    assert found.rows.tolist() == [0, 3]
    first, second, third = found.failures
    assert (third.row, third.text) == (4, "C" * 2049)
    assert_mentions(third.reason, 2049, 2048)
    assert (first.row, first.text) == (1, "CC")
    assert "standardise" in first.reason
    assert (second.row, second.text) == (2, "C(")
    assert second.reason == joao.read(["CCO", "C("]).failures[0].reason
    assert found.standardised == Standardised(2, 0, 0)


def test_several_processes_give_the_same(jobs_here):
    smiles = [*PARENTS] * 150
    one, several = (make_molecules("m", smiles, options=ReadOptions(jobs, standardise=True)) for jobs in (1, 2))
    same_graphs(one, several)
    assert one.standardised == several.standardised == Standardised(1200, 600, 450)
    assert jobs_here == [2]


def test_rdkit_molecules_are_standardised():
    from rdkit import Chem

    same_graphs(joao.read([*map(Chem.MolFromSmiles, PARENTS)], standardise=True), joao.read([*PARENTS.values()]))


def test_packed_molecules_know_that_they_are_standardised(table, tmp_path):
    path, plain = tmp_path / "m.safetensors", tmp_path / "plain.safetensors"
    found = joao.read(table, standardise=True)
    write_packed(path, found)
    write_packed(plain, joao.read(table))
    same_graphs(read_packed(path), found)
    same_graphs(joao.read(path, standardise=True), found)
    with refused("salts", "standardise"):
        joao.read(plain, standardise=True)
    same_graphs(joao.read(found, standardise=True), found)
    with refused("salts"):
        joao.read(joao.read(table), standardise=True)


def test_graphs_cannot_be_standardised():
    with refused("MUTAG", "no molecules"):
        joao.read("MUTAG", standardise=True)
    with refused("standardise"):
        joao.read([networkx.path_graph(3)], standardise=True)


def test_cache_keeps_both_forms_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "MIN_SOURCE_BYTES", 1)
    path = tmp_path / "some.csv"
    path.write_text("smiles\n" + "".join(f"{'C' * (1 + number % 40)}[O-].[Na+]\n" for number in range(50)))
    for _ in range(2):  # the second time from the cache
        plain, standard = joao.read(path), joao.read(path, standardise=True)
        assert plain.smiles[0] == "C[O-].[Na+]"
        assert standard.smiles[0] == "CO"
        assert not is_standardised(plain.featuriser)
        assert is_standardised(standard.featuriser)
        assert_mentions(standard.notices[0], "50 of 50", "10 repeat")


def test_shards_are_standardised_once(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("smiles\n" + "".join(f"{text}\n" for text in PARENTS))
    source = BlockSource(path, None, Columns(), ReadOptions(standardise=True))
    shards = pack_shards([source], tmp_path / "m.joao", "m", shard_graphs=3)
    assert shards.whole().smiles == tuple(PARENTS.values())
    assert is_standardised(shards.featuriser)
    (notice,) = shards.notices
    assert_mentions(notice, "4 of 8", "3 of them")
    assert joao.read(tmp_path / "m.joao", standardise=True).fingerprint == shards.fingerprint
    plain = BlockSource(path, None, Columns(), ReadOptions())
    assert plain.stamp != source.stamp
    plain_shards = pack_shards([plain], tmp_path / "plain.joao", "plain")
    with refused("plain"):
        joao.read(tmp_path / "plain.joao", standardise=True)
    mixed = concatenate_datasets([shards.whole(), plain_shards.whole()])
    assert not is_standardised(mixed.featuriser)


def merge_naively(smiles, labels):
    """Labels by structure in the order of their first occurrence."""
    merged = {}
    for text in smiles:
        rows = [row for row, other in zip(labels, smiles, strict=True) if other == text]
        columns = []
        for task in range(len(labels[0])):
            known = [row[task] for row in rows if not math.isnan(row[task])]
            is_binary = all(row[task] in (0, 1) for row in labels if not math.isnan(row[task]))
            if not known or (is_binary and len({*known}) > 1):
                columns.append(math.nan)
            else:
                columns.append(sum(known) / len(known))
        merged[text] = columns
    return merged


def test_merged_labels_are_those_of_a_loop():
    generator = np.random.default_rng(0)
    smiles = ["C" * number for number in generator.integers(1, 8, 40)]
    labels = np.stack([generator.integers(0, 2, 40), generator.normal(size=40), generator.integers(0, 2, 40)], axis=1)
    labels = labels.astype(np.float32)
    labels[generator.random(labels.shape) < 0.5] = np.nan
    dataset = dataclasses.replace(
        joao.read(smiles, standardise=True), targets=labels, target_names=("active", "value", "toxic")
    )
    merged, kept, notice = merge_duplicates(dataset)
    expected = merge_naively(smiles, labels.tolist())
    assert merged.smiles == tuple(expected)
    assert kept.tolist() == [smiles.index(text) for text in expected]
    np.testing.assert_allclose(merged.targets, list(expected.values()), rtol=1e-6)
    groups = [labels[[other == text for other in smiles]] for text in expected]
    differ = [sum(len({*of[~np.isnan(of[:, task]), task]}) > 1 for of in groups) for task in range(3)]
    assert differ[0] + differ[2] > 0
    assert_mentions(notice, f"{40 - len(expected)} rows", f"{differ[1]} labels", f"{differ[0] + differ[2]} labels")


def test_classes_that_contradict_each_other_are_missing():
    read = joao.read(["CCO", "OCC", "CCO", "C", "C", "N", "CN"], standardise=True)
    classes = np.array([2, -1, 2, 0, 1, -1, 0])
    merged, _, notice = merge_duplicates(dataclasses.replace(read, classes=classes, class_names=("x", "y", "z")))
    assert merged.smiles == ("CCO", "C", "N", "CN")
    assert merged.classes.tolist() == [2, -1, -1, 0]
    assert_mentions(notice, "3 rows", "1 molecule")


def test_molecules_of_different_parts_are_not_merged():
    dataset = joao.read(["CCO", "OCC", "CCO", "C"], standardise=True)
    merged, kept, notice = merge_duplicates(dataset, ["train", "train", "test", "test"])
    assert kept.tolist() == [0, 2, 3]
    assert merged.smiles == ("CCO", "CCO", "C")
    assert_mentions(notice, "1 row", "1 molecule")


def test_only_standardised_molecules_are_merged():
    dataset = joao.read(["CCO", "CCO"])
    assert merge_duplicates(dataset)[0] is dataset
    different = joao.read(["CCO", "C"], standardise=True)
    assert merge_duplicates(different) == (different, pytest.approx([0, 1]), None)


def test_estimator_remembers(tmp_path):
    salts, parents = [*PARENTS] * 3, [*PARENTS.values()] * 3
    encoder = {"name": "molecule_gin", "width": 8, "layers": 2}
    model = joao.JOAO(epochs=1, encoder=encoder, device="cpu").fit(quiet(joao.read(salts, standardise=True)))
    with pytest.warns(JoaoNotice, match="standardised"):
        found = model.transform(salts)
    np.testing.assert_array_equal(found, model.transform(quiet(joao.read(parents, standardise=True))))
    with pytest.warns(JoaoNotice, match="not standardised"):
        plain = model.transform(joao.read(salts))
    assert not np.array_equal(plain, found)
    model.save(tmp_path / "run")
    for start in (model, tmp_path / "run"):
        with pytest.warns(JoaoNotice) as told:
            tuned = joao.JOAORegressor(start, epochs=1, device="cpu").fit(salts * 3, np.arange(72.0))
        assert tuned.finetuned_.trained.info.standardised
        assert_mentions(told[1].message, "65 rows", "7 labels")
    with pytest.warns(JoaoNotice):
        np.testing.assert_array_equal(joao.load(tmp_path / "run", device="cpu").transform(salts), found)
    np.testing.assert_allclose(joao.embed(salts, tmp_path / "run", device="cpu"), found, atol=1e-6)
    assert not np.allclose(joao.embed(salts, tmp_path / "run", device="cpu", standardise=False), found, atol=1e-6)
    batch = joao.Embedder(tmp_path / "run", device="cpu")({"smiles": salts})
    np.testing.assert_allclose(batch["embedding"], found, atol=1e-6)
    nearest = joao.neighbors(salts, ["CC(=O)[O-].[K+]"], tmp_path / "run", k=6, device="cpu", on_notice=lambda _: None)
    assert {salts[row] for row in nearest.rows[0]} == {"CC(=O)[O-].[Na+]", "OC(C)=O"}


def test_finetuned_estimator_remembers(tmp_path):
    salts = [*PARENTS] * 6
    y = np.arange(len(salts), dtype=np.float32) % 8 / 8
    with pytest.warns(JoaoNotice, match="merged"):
        tuned = joao.JOAORegressor("molecules", epochs=1, device="cpu").fit(
            quiet(joao.read(salts, standardise=True)), y
        )
    with pytest.warns(JoaoNotice):
        found = tuned.predict(salts)
    np.testing.assert_array_equal(found, tuned.predict(quiet(joao.read(salts, standardise=True))))
    assert found[0] == found[1]  # a salt and its acid
    tuned.save(tmp_path / "tuned")
    again = joao.load(tmp_path / "tuned", device="cpu")
    with pytest.warns(JoaoNotice):
        np.testing.assert_array_equal(again.predict(salts), found)
