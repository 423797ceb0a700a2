"""The scaffold split of the transfer protocol: molecules with one skeleton are never in two parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from joao.data.chunks import in_chunks
from joao.data.molecules import require_rdkit
from joao.errors import UserError
from joao.evaluation.folds import Indices
from joao.evaluation.labels import Split


def scaffolds(
    smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None
) -> tuple[str, ...]:
    """The Bemis-Murcko scaffold of every molecule, with chirality, as SMILES; empty for one without rings.

    Args:
        smiles: molecules that RDKit can read; :func:`joao.data.molecules.featurise` says which.
        jobs: processes to work in.
        on_chunk: told how many further molecules are done, for a progress bar.
    """
    require_rdkit()
    found = [each for chunk in in_chunks(_scaffolds, smiles, jobs=jobs, on_chunk=on_chunk) for each in chunk]
    if None in found:
        row = found.index(None)
        raise UserError(f"scaffolds: molecule {row}, '{smiles[row][:60]}', cannot be read by RDKit. Leave it out.")
    return tuple(scaffold for scaffold in found if scaffold is not None)


def scaffold_numbers(smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None) -> Indices:
    """``(M,)`` a number for every scaffold, from 0 on as they come; :func:`filled` takes them, without RDKit."""
    numbers: dict[str, int] = {}
    found = scaffolds(smiles, jobs=jobs, on_chunk=on_chunk)
    return np.array([numbers.setdefault(each, len(numbers)) for each in found], dtype=np.int64)


def filled(scaffolds: Sequence[str] | Sequence[int], train: float = 0.8, validation: float = 0.1) -> Split:
    """Fills the three parts with whole sets of molecules that share a scaffold, largest set first.

    Of sets of one size, the one whose first molecule comes *last* is the first, as published. A set goes to the first
    part that has room: training has room for ``train`` of all molecules, training and validation together for
    ``train + validation``, and the test part takes what is left. So validation may get more than its share. With the
    usual shares, the official splits of ogbg-molbbbp and ogbg-molbace are the same.

    Args:
        scaffolds: of each molecule, or their numbers; molecules without rings share the empty one.
        train, validation: shares of the molecules.
    """
    if not (train > 0 and validation >= 0 and train + validation <= 1):
        raise UserError(f"scaffold split: shares {train} and {validation} are not positive and at most 1 together.")
    members: dict[object, list[int]] = {}
    for number, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(number)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for numbers in sorted(members.values(), key=lambda numbers: (len(numbers), numbers[0]), reverse=True):
        if len(parts[0]) + len(numbers) <= train * len(scaffolds):
            parts[0].extend(numbers)
        elif len(parts[0]) + len(parts[1]) + len(numbers) <= (train + validation) * len(scaffolds):
            parts[1].extend(numbers)
        else:
            parts[2].extend(numbers)
    return Split(*(np.array(sorted(part), dtype=np.int64) for part in parts))


def _scaffolds(smiles: Sequence[str]) -> list[str | None]:
    from rdkit import Chem, rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    found: list[str | None] = []
    with rdBase.BlockLogs():
        for text in smiles:
            molecule = Chem.MolFromSmiles(text)
            is_molecule = molecule is not None and molecule.GetNumAtoms() > 0
            found.append(MurckoScaffoldSmiles(mol=molecule, includeChirality=True) if is_molecule else None)
    return found
