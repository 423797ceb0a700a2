"""Oracle: the published rule by naive loops, scaffolds drawn by hand, and the splits that OGB published."""

import csv
import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joao.evaluation.splits import scaffold_numbers, scaffolds, split_by_scaffold
from tests.messages import refused

ROOT = os.environ.get("JOAO_DATA")


def by_loops(names):
    """Again and again the largest set that is left; of several the one that begins last."""
    left = [[n for n, other in enumerate(names) if other == name] for name in dict.fromkeys(names)]
    parts = [], [], []
    while left:
        largest = left[0]
        for numbers in left:
            if len(numbers) > len(largest) or (len(numbers) == len(largest) and numbers[0] > largest[0]):
                largest = numbers
        left.remove(largest)
        room_in_train = 0.8 * len(names) - len(parts[0])
        room_in_both = (0.8 + 0.1) * len(names) - len(parts[0]) - len(parts[1])
        part = 0 if len(largest) <= room_in_train else 1 if len(largest) <= room_in_both else 2
        parts[part].extend(largest)
    return [sorted(part) for part in parts]


@given(st.lists(st.integers(0, 12).map(str), max_size=60))
def test_split_by_scaffold_equals_a_naive_loop(names):
    found = split_by_scaffold(names)
    assert [part.tolist() for part in found] == by_loops(names)
    assert {part.dtype for part in found} == {np.dtype(np.int64)}


def test_a_split_by_hand():
    # 10 molecules: a has 4, b and c 2 each (c begins later), d and e one each (e begins later); room for 8 and 1.
    split = split_by_scaffold(["a", "b", "a", "c", "b", "c", "d", "a", "a", "e"])
    assert split.train.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert (split.validation.tolist(), split.test.tolist()) == ([9], [6])


def test_a_set_goes_to_the_first_part_that_has_room():
    # Room for 8, and for 9 with validation: a goes to training, b to validation, which may get more than its tenth,
    # and c, though smaller and later, to training again.
    split = split_by_scaffold(["a"] * 5 + ["b"] * 4 + ["c"])
    assert [part.tolist() for part in split] == [[0, 1, 2, 3, 4, 9], [5, 6, 7, 8], []]
    # d is too large for what both have left.
    assert [len(part) for part in split_by_scaffold(["a"] * 7 + ["d"] * 3)] == [7, 0, 3]


@pytest.mark.parametrize("shares", [(0, 0.1), (0.8, -0.1), (0.8, 0.3), (float("nan"), 0.1)])
def test_impossible_shares_are_refused(shares):
    with refused("scaffold", *shares):
        split_by_scaffold(["a"], *shares)


SCAFFOLDS = {
    "CCO": "",
    "Cc1ccccc1": "c1ccccc1",
    "CCC1CCCC1CCc1ccncc1O": "c1cc(CCC2CCCC2)ccn1",
    "O=C1CCCN1": "O=C1CCCN1",  # what is doubly bound to a ring stays
    "[Na+].[O-]C1CC1": "C1CC1",
    "[Na+]": "",
}


def test_scaffolds_by_hand():
    canonical = pytest.importorskip("rdkit.Chem").CanonSmiles
    assert scaffolds(list(SCAFFOLDS)) == tuple(map(canonical, SCAFFOLDS.values()))


def test_mirror_images_have_different_scaffolds():
    pytest.importorskip("rdkit")
    left, right, again = scaffolds(["C1CC[C@H]2CCCO[C@@H]2C1", "C1CC[C@@H]2CCCO[C@@H]2C1", "CC1CC[C@H]2CCCO[C@@H]2C1"])
    assert left != right
    assert again == left


@pytest.mark.slow
def test_processes_do_not_change_the_scaffolds():
    pytest.importorskip("rdkit")
    smiles = list(SCAFFOLDS) * 100
    told = []
    assert scaffolds(smiles, jobs=2, on_chunk=told.append) == scaffolds(smiles)
    assert sum(told) == 600


@pytest.mark.parametrize("text", ["C(", "", "C[Al](C)(C)(C)(C)(C)C"])
def test_unparsable_molecule_is_rejected_by_name(text, capfd):
    pytest.importorskip("rdkit")
    with refused("scaffolds", 1, f"'{text}'", "RDKit"):
        split_by_scaffold(scaffolds(["CCO", text]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
@pytest.mark.parametrize(("name", "sizes"), [("ogbg_molbbbp", [1631, 204, 204]), ("ogbg_molbace", [1210, 151, 152])])
def test_official_splits_are_reproduced(name, sizes):
    pytest.importorskip("rdkit")
    with zipfile.ZipFile(Path(ROOT) / "ogb" / f"{name}.zip") as archive:

        def table(end):
            member = next(member for member in archive.namelist() if member.endswith(end))
            return list(csv.reader(io.StringIO(gzip.decompress(archive.read(member)).decode())))

        header, *rows = table("mapping/mol.csv.gz")
        official = [
            sorted(int(row[0]) for row in table(f"scaffold/{part}.csv.gz")) for part in ("train", "valid", "test")
        ]
    split = split_by_scaffold(scaffolds([row[header.index("smiles")] for row in rows]))
    assert [len(part) for part in split] == sizes
    assert [part.tolist() for part in split] == official


def test_numbers_of_scaffolds_split_like_the_scaffolds():
    smiles = ["CC1CCCCC1", "c1ccccc1", "CCO", "OC1CCCCC1", "N", "c1ccccc1C"]
    numbers = scaffold_numbers(smiles)
    assert numbers.tolist() == [0, 1, 2, 0, 2, 1]
    for one, other in zip(
        split_by_scaffold(numbers.tolist(), 0.5, 0.2), split_by_scaffold(scaffolds(smiles), 0.5, 0.2), strict=True
    ):
        assert one.tolist() == other.tolist()
