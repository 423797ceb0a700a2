"""Oracle: a plain loop over RDKit's atoms and bonds, and molecules written out by hand."""

import builtins
import csv
import gzip
import hashlib
import lzma
import os
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from joao.data.dataset import Dataset
from joao.data.molecules import FEATURISER, MAX_CYCLIC_ATOMS, featurise
from tests.data.refusals import assert_told, refused

ROOT = os.environ.get("JOAO_DATA")
needs_data = pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
Chem = pytest.importorskip("rdkit.Chem")

CHIRALITIES = ["CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW"]
TYPES = ["SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"]
DIRECTIONS = ["NONE", "ENDUPRIGHT", "ENDDOWNRIGHT"]
ODD = [
    "CCO",
    "[Na+].[Cl-]",  # salt
    "CC(=O)O.CCN.O",
    "C",
    "[Na+]",
    "C[C@H](N)C(=O)O",
    "C[C@@H](N)C(=O)O",
    "CC[C@H](C)CC",  # not a centre at all
    "F/C=C/F",
    "F/C=C\\F",
    "F\\C=C\\F",
    "N[Pt@SP1](F)(Cl)N",  # square planar
    "Cl[Pt](Cl)(N)N",
    "C->[Fe]",  # dative
    "[Fe]~C",  # unspecified
    "C$C",
    "[Cu-3]1(O)OC1",
    "CCO",  # again
    "[H]C([H])([H])[H]",
    "[H][H]",
    "[H]",
    "[2H]C([2H])[2H]",
    "[13CH4]",
    "[H]/C(F)=C/F",
    "[C@](F)(Cl)(Br)[H]",
    "*C(=O)*",
    "[*:1]c1cc[nH]c1",
    "[#0]C",
    "[Og]",
    "c1cc[se]c1",
    "c1ccc2[nH]ccc2c1",
    "N#N",
    "[O-][N+](=O)c1ccc(Br)cc1I",
    "B1OC1P(S)F",
    "C ethane's",
    "CC |$_R1;$|",
    " CC\n",
    "NO",
    "ON",
    "O\nCC",
    "C" * 200,
    "C1" + "C" * 300 + "1",
]


def place(names, value, otherwise):
    return names.index(str(value)) if str(value) in names else otherwise


def by_loop(text):
    """Atoms and sorted edges of a molecule; None where there is none."""
    molecule = Chem.MolFromSmiles(text)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    atoms, edges = [], []
    for atom in molecule.GetAtoms():
        element = atom.GetAtomicNum() - 1 if atom.GetAtomicNum() else 118
        atoms.append((element, place(CHIRALITIES, atom.GetChiralTag(), 3)))
    for bond in molecule.GetBonds():
        kind = (place(TYPES, bond.GetBondType(), 0), place(DIRECTIONS, bond.GetBondDir(), 0))
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(begin, end, kind), (end, begin, kind)]
    return atoms, sorted(edges)


def unpacked(molecules, number):
    """The same of a packed molecule; an edge is target, source, bond."""
    nodes = slice(*molecules.first_node[number : number + 2])
    edges = slice(*molecules.first_edge[number : number + 2])
    ends = zip(molecules.target[edges].tolist(), molecules.source[edges].tolist(), strict=True)
    bonds = map(tuple, molecules.edge_attr[edges].tolist())
    return list(map(tuple, molecules.node_labels[nodes].tolist())), [(*e, b) for e, b in zip(ends, bonds, strict=True)]


def rows(molecules):
    """Which SMILES the molecules are."""
    return list(range(len(molecules))) if molecules.row_of_graph is None else molecules.row_of_graph.tolist()


def assert_as_by_loop(smiles):
    molecules = featurise(smiles)
    with __import__("rdkit.rdBase").rdBase.BlockLogs():
        expected = {row: graph for row, text in enumerate(smiles) if (graph := by_loop(text)) is not None}
    assert rows(molecules) == list(expected)
    assert [failure.row for failure in molecules.failures] == [n for n in range(len(smiles)) if n not in expected]
    for number, row in enumerate(rows(molecules)):
        assert unpacked(molecules, number) == expected[row], smiles[row]
    return molecules


def assert_identical(one: Dataset, other: Dataset):
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            assert value.dtype == getattr(other, name).dtype, name
            assert value.tobytes() == getattr(other, name).tobytes(), name
        else:
            assert value == getattr(other, name), name


def test_molecule_matches_a_hand_computation():
    # 0 N, 1 C (counter-clockwise), 2 C, 3 C, 4 O; the double bond has a direction on either side
    molecules = featurise(["N[C@H](O)/C=C/C#N"])
    assert molecules.node_labels.tolist() == [[6, 0], [5, 2], [7, 0], [5, 0], [5, 0], [5, 0], [6, 0]]
    assert (molecules.first_node.tolist(), molecules.first_edge.tolist()) == ([0, 7], [0, 12])
    assert molecules.target.tolist() == [0, 1, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6]
    assert molecules.source.tolist() == [1, 0, 2, 3, 1, 1, 4, 3, 5, 4, 6, 5]
    single, up, double, triple = [0, 0], [0, 1], [1, 0], [2, 0]
    assert molecules.edge_attr.tolist() == [
        single, single, single, up, single, up, double, double, up, up, triple, triple,
    ]  # fmt: skip
    assert {molecules.node_labels.dtype, molecules.edge_attr.dtype, molecules.source.dtype} == {np.dtype(np.uint8)}
    assert (repr(molecules), molecules.failures) == ("Dataset('molecules', 1 molecule, 7 nodes, 6 edges)", ())


CODES = {1: "e34e2b72e7439888"}  # by the number of the featuriser


def test_featuriser_version_matches_its_codes():
    """Encoders, packed files and copies tell by FEATURISER whose codes they have: raise it where this fails."""
    smiles = ["N[C@H](O)/C=C/C#N", "C[C@@H](F)Cl", r"F\C=C/Br", "c1ccccc1S(=O)(=O)O", "[Na+].[Cl-]", "*[Pt]", "[2H]O"]
    made = featurise(smiles)
    digest = hashlib.sha256(made.node_labels.tobytes() + made.edge_attr.tobytes())
    for array in (made.first_node, made.first_edge, made.source, made.target):
        digest.update(array.astype(np.int64).tobytes())
    assert CODES.get(FEATURISER) == digest.hexdigest()[:16]


def test_unusual_molecules_match_a_plain_loop():
    molecules = assert_as_by_loop(ODD)
    assert molecules.failures == ()
    assert (molecules.source.dtype, molecules.target.dtype) == (np.uint16, np.uint16)
    kinds = Counter(map(tuple, molecules.edge_attr.tolist()))
    assert {kind for kind, _ in kinds} == {0, 1, 2, 3}
    assert {direction for _, direction in kinds} == {0, 1, 2}
    assert set(molecules.node_labels[:, 1].tolist()) == {0, 1, 2, 3}
    assert {0, 117, 118} <= set(molecules.node_labels[:, 0].tolist())


@pytest.mark.parametrize("text", ODD)
def test_molecules_do_not_depend_on_their_neighbours(text):
    alone = featurise([text])
    among = featurise(["CCO", text, "F/C=C/F", "C->[Fe]"])
    assert unpacked(alone, 0) == unpacked(among, 1)
    assert alone.source.dtype == (np.uint16 if len(alone.node_labels) > 256 else np.uint8)


@pytest.mark.parametrize(("num", "dtype"), [(256, np.uint8), (257, np.uint16)])
def test_integer_type_depends_on_the_largest_molecule(num, dtype):
    molecules = featurise(["C" * num, "CC"])
    assert (molecules.source.dtype, molecules.source.max()) == (dtype, num - 1)


def test_failures_have_reasons_and_nothing_is_logged(capfd):
    smiles = ["CCO", "", "C(", "C[Al](C)(C)(C)(C)(C)C", "  ", "c1cccc1", "O", "CC?", "[H]O[H]", "C" * 65537]
    molecules = featurise(smiles)
    assert rows(molecules) == [0, 6, 8]
    assert [each.row for each in molecules.failures] == [1, 2, 3, 4, 5, 7, 9]
    assert all(each.text == smiles[each.row] for each in molecules.failures)
    empty, no_smiles, valence, blank, ring, question, large = (each.reason for each in molecules.failures)
    assert_told(valence, "Al", 7)  # RDKit's own, as the next
    assert_told(ring, "kekulize")
    assert_told(no_smiles, "SMILES")
    assert_told(large, 65537, 65536)
    assert (blank, question) == (empty, no_smiles)
    assert len({empty, no_smiles, valence, ring, large} - {""}) == 5
    assert not any("\n" in each.reason for each in molecules.failures)
    assert capfd.readouterr() == ("", "")


def test_empty_and_unparsable_input():
    for smiles in ([], ["", "?"]):
        molecules = featurise(smiles)
        assert (len(molecules), len(molecules.failures)) == (0, len(smiles))
        assert (molecules.first_node.tolist(), molecules.first_edge.tolist()) == ([0], [0])
        assert (molecules.node_labels.shape, molecules.edge_attr.shape, molecules.source.shape) == (
            (0, 2),
            (0, 2),
            (0,),
        )
        assert molecules.first_node.dtype == np.int64
        assert smiles == [] or molecules.row_of_graph.dtype == np.int64


def test_number_of_processes_does_not_change_molecules():
    smiles = [*ODD, "", "C("] * 30
    told = []
    one = featurise(smiles)
    assert_identical(one, featurise(smiles, jobs=2, on_chunk=told.append))
    assert sum(told) == len(smiles)
    assert [failure.row for failure in one.failures] == [row for row, text in enumerate(smiles) if text in ("", "C(")]
    assert sorted([*rows(one), *(failure.row for failure in one.failures)]) == list(range(len(smiles)))


def test_arrays_use_the_smallest_types():
    molecules = featurise(["CCO", "?"])  # 3 atoms, 4 edges, 2 + 2 offsets, 1 row
    arrays = [value for value in vars(molecules).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays) == 3 * 2 + 4 * (2 + 1 + 1) + 8 * (2 + 2 + 1)


def test_missing_rdkit_error_names_the_fix(monkeypatch):
    whole = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "rdkit":
            raise ImportError(name)
        return whole(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] == "rdkit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with refused("pip install rdkit"):
        featurise(["C"])


def real(name, num, step):
    path = Path(ROOT) / "molecules" / name
    with (lzma.open if name.endswith(".xz") else gzip.open)(path, "rt", newline="") as stream:
        return [row[0] for row in islice(csv.reader(stream), 1, num, step)]


@needs_data
@pytest.mark.parametrize(
    ("name", "num", "step"),
    [
        ("bace.csv.gz", None, 3),
        ("clintox.csv.gz", None, 2),
        ("sider.csv.gz", None, 2),
        ("hiv.csv.gz", None, 60),
        ("zinc250k.csv.xz", None, 400),
        ("zinc_moses.csv.xz", 20000, 40),
    ],
)
def test_real_molecules_match_a_plain_loop(name, num, step):
    assert assert_as_by_loop(real(name, num, step)).failures == ()


@needs_data
@pytest.mark.parametrize(("name", "num", "singles"), [("tox21.csv.gz", 8, 16), ("sider.csv.gz", 0, 25)])
def test_numbers_of_real_failures_and_single_atoms(name, num, singles):
    molecules = featurise(real(name, None, 1))
    assert len(molecules.failures) == num
    assert all("valence" in failure.reason for failure in molecules.failures)
    assert (np.diff(molecules.first_node) == 1).sum() == singles


@needs_data
def test_unparsable_molecules_of_hiv():
    smiles = real("hiv.csv.gz", None, 1)
    rows = [137, 987, 12882, 18293, 30784, 30785, 35728]
    failures = featurise([smiles[row] for row in [0, *rows, 1]]).failures
    assert [failure.row for failure in failures] == list(range(1, 8))
    assert all("valence" in failure.reason for failure in failures)


UNKNOWN_ATOMS = ["[#119]", "[#200]", "C[#119]C", "[#119H4]", "[2#119]", "[#119+]", "[Xx]", "[#0]", "[#999999999999]"]


@pytest.mark.parametrize("bad", UNKNOWN_ATOMS)
def test_bad_row_does_not_end_the_table(bad):
    dataset = featurise(["CCO", bad, "c1ccccc1"])
    assert {0, 2} <= {*dataset.rows.tolist()}
    assert all(failure.row == 1 and failure.reason for failure in dataset.failures)
    assert dataset.num_rows == 3


# RDKit needs minutes and gigabytes for these, or crashes.
SLOW = {
    "rings": "c1ccccc1" * 7_000,
    "one ring": "c1" + "c" * 41_998 + "1",
    "chain of rings": "c1ccc2ccccc2c1" + "-c1ccccc1" * 6_900,
    "saturated ring": "C%10" + "C" * 20_000 + "%10",
    "directed bonds": "C/C=C/" * 6_000 + "C",
    "ring and name": "C1" + "C" * 20_000 + "1 name",
}


@pytest.mark.parametrize("kind", SLOW)
def test_large_cyclic_molecule_is_a_failure(kind):
    dataset = featurise(["CCO", SLOW[kind], "c1ccccc1"])
    assert dataset.rows.tolist() == [0, 2]
    assert str(MAX_CYCLIC_ATOMS) in dataset.failures[0].reason


def test_large_molecule_without_rings_is_read():
    assert featurise(["C" * 20_000, "[13CH3][13CH2]" + "C" * 3_000]).num_nodes == 23_002
