"""Molecules of the test parts that are also in the corpus for pre-training: how many, and a corpus without them.

Molecules are the same if RDKit writes the same canonical SMILES for both, as whole molecules with their salts and
charges. With stereochemistry, two molecules that differ in one centre are different. Without it they are the same;
that is the wider rule, and it decides what is left out of the corpus.

Writing canonical SMILES of two million molecules takes half an hour. :func:`skeleton` compares atoms and their
neighbours in seconds, from the text alone: molecules with different skeletons cannot be the same, and RDKit only sees
the others.

``python -m repro.studies.transfer_repeats overlap`` counts for all sets.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.data.molecules import require_rdkit
from joao.evaluation.folds import Indices
from joao.evaluation.splits import SHARES, split_graphs
from joao.evaluation.targets import select_tasks

# Atoms in brackets, other atoms, ring closures, branches and dots. Bonds do not matter here.
_TOKEN = re.compile(r"\[\d*(se|as|te|[A-Z][a-z]?|[a-z]|\*)[^\]]*\]|(Br|Cl|[A-Za-z*])|(%\d\d|\d)|([().])")


def skeleton(smiles: str) -> str:
    """Elements, degrees and neighbours of all atoms but hydrogen: the same text for every SMILES of a molecule.

    >>> skeleton("OCC") == skeleton("C(C)O") == skeleton("[CH3][C]([H])([2H])O")
    True
    >>> skeleton("CCO") == skeleton("COC")
    False
    """
    elements: list[str] = []
    neighbours: list[list[int]] = []
    rings: dict[str, int] = {}
    branches: list[int] = []
    last = -1
    for bracketed, plain, ring, other in _TOKEN.findall(smiles):
        if ring:
            closes = rings.pop(ring, None)
            if closes is None:
                rings[ring] = last
            else:
                neighbours[closes].append(last)
                neighbours[last].append(closes)
        elif other == "(":
            branches.append(last)
        elif other == ")":
            last = branches.pop()
        elif other == ".":
            last = -1
        else:
            elements.append((bracketed or plain).capitalize())
            neighbours.append([])
            if last >= 0:
                neighbours[-1].append(last)
                neighbours[last].append(len(elements) - 1)
            last = len(elements) - 1
    # RDKit turns most hydrogens into counts; ignoring all of them treats both forms alike.
    heavy = [[each for each in found if elements[each] != "H"] for found in neighbours]
    labels = [f"{element}{len(found)}" for element, found in zip(elements, heavy, strict=True)]
    atoms = zip(elements, labels, heavy, strict=True)
    return " ".join(
        sorted(
            label + "".join(sorted(labels[each] for each in found)) for element, label, found in atoms if element != "H"
        )
    )


def canonical(smiles: str, *, stereo: bool) -> str:
    """RDKit's canonical SMILES, with or without stereochemistry."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None:
            raise UserError(f"'{smiles[:60]}': cannot be parsed by RDKit. Remove it.")
        return str(Chem.MolToSmiles(molecule, isomericSmiles=stereo))


def molecules_of_test(name: str, data_root: str | None) -> list[str]:
    """The SMILES of the test part of a set of the table."""
    dataset = select_tasks(read_whole(name, data_root))
    if not dataset.smiles:
        raise UserError(
            f"{name}: has no SMILES, so its molecules cannot be found in a corpus. Use the table of SMILES."
        )
    return [dataset.smiles[each] for each in split_graphs(dataset, "scaffold", *SHARES["scaffold"], seed=0).test]


def find_shared(corpus: Sequence[str], tests: Iterable[str]) -> tuple[set[str], set[str], NDArray[np.bool_]]:
    """Find molecules of ``tests`` in ``corpus``.

    Returns:
        canonical SMILES of ``tests`` that are in the corpus, with stereochemistry; the same without it; and a mask
        ``(M,)`` of the molecules of the corpus that are in ``tests``, without stereochemistry.
    """
    require_rdkit()
    flat = {canonical(each, stereo=False) for each in tests}
    full = {canonical(each, stereo=True) for each in tests}
    skeletons = {skeleton(each) for each in flat}
    found_flat, found_full, mask = set(), set(), np.zeros(len(corpus), dtype=np.bool_)
    for number, smiles in enumerate(corpus):
        if skeleton(smiles) not in skeletons:
            continue
        this = canonical(smiles, stereo=False)
        if this in flat:
            mask[number] = True
            found_flat.add(this)
            found_full |= full & {canonical(smiles, stereo=True)}
    return found_full, found_flat, mask


def find_test_molecules(corpus: Dataset, names: Sequence[str], data_root: str | None) -> Indices:
    """Numbers of the molecules of a corpus that are in the test part of a named set, whatever their stereochemistry."""
    if not corpus.smiles:
        raise UserError(
            f"{corpus.name}: has no SMILES, so test molecules cannot be left out of it. Pack it with its SMILES."
        )
    tests = {each for name in names for each in molecules_of_test(name, data_root)}
    return np.flatnonzero(find_shared(corpus.smiles, tests)[2])


def count(corpus: Sequence[str], tests: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """How many test molecules of each set are in the corpus, and how many molecules of the corpus that concerns."""
    full, flat, mask = find_shared(corpus, {each for found in tests.values() for each in found})
    sets = {
        name: {
            "test": len(found),
            "with stereochemistry": sum(canonical(each, stereo=True) in full for each in found),
            "without stereochemistry": sum(canonical(each, stereo=False) in flat for each in found),
        }
        for name, found in tests.items()
    }
    return {"corpus": len(corpus), "left out": int(mask.sum()), "sets": sets}


def read_count(records: Path) -> dict[str, Any] | None:
    """The stored result of :func:`count` for the corpus of the table; None if there is none."""
    path = records / "overlap.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
