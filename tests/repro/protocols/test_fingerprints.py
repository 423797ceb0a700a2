"""Oracle: neighbourhoods counted by hand, and RDKit's own sparse fingerprints, folded by a loop."""

import numpy as np
import pytest

from repro.protocols.transfer.forest import fingerprints
from tests.messages import refused

Chem = pytest.importorskip("rdkit.Chem")
SMILES = ["CCO", "c1ccccc1", "[Na+].[Cl-]", "C", "CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)O", "C[C@@H](N)O", "CCO"]


def by_loop(text):
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    counts = np.zeros(2048, dtype=int)
    whole = GetMorganGenerator(radius=2, fpSize=2048).GetSparseCountFingerprint(Chem.MolFromSmiles(text))
    for code, count in whole.GetNonzeroElements().items():
        counts[code % 2048] += count
    return counts


def test_counts_match_the_folded_sparse_fingerprint():
    found = fingerprints(SMILES)
    assert (found.shape, found.dtype) == ((8, 2048), np.uint8)
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
