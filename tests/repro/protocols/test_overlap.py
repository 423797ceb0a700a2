"""Test molecules in a corpus: the quick comparison against RDKit, counts by hand, and a corpus without them."""

import pytest

from joao.data import read_whole
from joao.data.formats.packed import drop_texts
from repro.protocols.transfer import overlap, run
from repro.protocols.transfer.overlap import canonical, count, find_shared, find_test_molecules, skeleton
from tests.messages import refused

Chem = pytest.importorskip("rdkit.Chem")

GRID = run.grid()
MOLECULES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@H](N)C(=O)O",
    "[O-][N+](=O)c1ccc(Br)cc1Cl",
    "c1ccc2[nH]c3ccccc3c2c1",
    "[Na+].CC(=O)[O-]",
    "F/C=C/F",
    "C1CC2(C1)CC%12CC2CC%12",
    "[2H]C([2H])([2H])Oc1cc[se]c1",
    "N(=O)(=O)c1ccccc1",
    "O.[Pt]",
]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_every_smiles_of_a_molecule_has_the_same_skeleton(smiles):
    molecule = Chem.MolFromSmiles(smiles)
    texts = {Chem.MolToSmiles(molecule, doRandom=True) for _ in range(20)} | {
        Chem.MolToSmiles(Chem.AddHs(molecule)),
        Chem.MolToSmiles(molecule, kekuleSmiles=True),
        Chem.MolToSmiles(molecule, isomericSmiles=False),
    }
    assert len(texts) > 1
    assert {skeleton(text) for text in texts} == {skeleton(smiles)}


def test_different_molecules_have_different_skeletons():
    assert len({skeleton(each) for each in MOLECULES}) == len(MOLECULES)
    assert skeleton("CCCO") != skeleton("CCOC")


def test_molecules_are_found_with_and_without_stereochemistry():
    corpus = ["OC(=O)[C@@H](N)C", "OC(=O)[C@H](N)C", "NC(C)C(O)=O", "CCC", "CCO", "OCC"]
    tests = ["C[C@H](N)C(=O)O", "C(C)O", "CCCC"]
    full, flat, mask = find_shared(corpus, tests)
    assert full == {canonical("C[C@H](N)C(=O)O", stereo=True), "CCO"}
    assert flat == {"CC(N)C(=O)O", "CCO"}
    # The slow way: RDKit alone.
    wanted = {canonical(each, stereo=False) for each in tests}
    assert mask.tolist() == [canonical(each, stereo=False) in wanted for each in corpus]
    assert mask.tolist() == [True, True, True, False, True, True]


def test_counts_match_a_hand_computation():
    corpus = ["NC(C)C(O)=O", "CCO", "CCC"]
    sets = {"one": ["C[C@H](N)C(=O)O", "OCC", "CCCC"], "other": ["CCO", "C(O)C"], "none": ["CCCCC"]}
    assert count(corpus, sets) == {
        "corpus": 3,
        "left out": 2,
        "sets": {
            "one": {"test": 3, "with stereochemistry": 1, "without stereochemistry": 2},
            "other": {"test": 2, "with stereochemistry": 2, "without stereochemistry": 2},
            "none": {"test": 1, "with stereochemistry": 0, "without stereochemistry": 0},
        },
    }


def test_corpus_of_the_table_has_no_test_molecules(tmp_path, monkeypatch):
    folder = tmp_path / "molecules"
    folder.mkdir()
    rings = [f"C1{'C' * size}{atom}1" for size in range(1, 6) for atom in "CNS"]
    labelled = [f"{'C' * tail}{ring}" for tail in (1, 2) for ring in rings]
    (folder / "bace.csv").write_text("smiles,active\n" + "".join(f"{each},1\n" for each in labelled))
    for name in GRID["corpus"]["sources"]:
        (folder / f"{name}.csv").write_text("smiles\n" + "\n".join(labelled) + "\n")
    monkeypatch.setattr(run, "grid", lambda: {"datasets": {"bace": {}}, "corpus": GRID["corpus"]})
    tests = overlap.molecules_of_test("bace", str(tmp_path))
    assert 0 < len(tests) < len(labelled)
    found = run.corpus(None, str(tmp_path))
    assert sorted(set(found.smiles)) == sorted(set(labelled) - set(tests))
    assert len(found) == 2 * (len(labelled) - len(tests))
    assert run.corpus("bace", str(tmp_path)).smiles == tuple(each for each in labelled if each not in tests)


def test_corpus_without_smiles_is_rejected():
    bare = drop_texts(read_whole(["CCO", "CCC"]))
    with refused(bare.name, "SMILES"):
        find_test_molecules(bare, [], None)
