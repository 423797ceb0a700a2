"""Fingerprints: what a random forest learns from, the baseline beside pre-training on molecules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from joao.data.chunks import in_chunks
from joao.data.molecules import require_rdkit
from joao.errors import UserError

NUM_BITS = 2048
RADIUS = 2


def fingerprints(
    smiles: Sequence[str], *, jobs: int = 1, on_chunk: Callable[[int], None] | None = None
) -> NDArray[np.uint8]:
    """ECFP4: how often each neighbourhood of up to two bonds occurs, hashed to 2048 columns, without chirality.

    Args:
        smiles: molecules that RDKit can read; :class:`joao.data.molecules.Molecules` says which.
        jobs: processes to work in.
        on_chunk: told how many further molecules are done, for a progress bar.

    Returns:
        ``(M, 2048)`` counts; more than 255 count as 255.
    """
    require_rdkit()
    chunks = list(in_chunks(_counts, smiles, jobs=jobs, on_chunk=on_chunk))
    unreadable = np.concatenate([np.zeros(0, dtype=bool), *(is_unreadable for _, is_unreadable in chunks)])
    if unreadable.any():
        row = int(unreadable.argmax())
        raise UserError(f"fingerprints: molecule {row}, '{smiles[row][:60]}', cannot be read by RDKit. Leave it out.")
    return np.concatenate([np.zeros((0, NUM_BITS), dtype=np.uint8), *(counts for counts, _ in chunks)])


def _counts(smiles: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    from rdkit import Chem, rdBase
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=RADIUS, fpSize=NUM_BITS)
    counts = np.zeros((len(smiles), NUM_BITS), dtype=np.uint8)
    is_unreadable = np.zeros(len(smiles), dtype=bool)
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            if molecule is None or molecule.GetNumAtoms() == 0:
                is_unreadable[row] = True
            else:
                counts[row] = np.minimum(generator.GetCountFingerprintAsNumPy(molecule), 255)
    return counts, is_unreadable
