"""Fingerprints: what a random forest learns from, the baseline beside pre-training on molecules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joao.data.molecules import require_rdkit
from joao.errors import UserError

NUM_BITS = 2048
RADIUS = 2


def fingerprints(smiles: Sequence[str]) -> NDArray[np.uint8]:
    """ECFP4: how often each neighbourhood of up to two bonds occurs, hashed to 2048 columns, without chirality.

    Args:
        smiles: molecules that RDKit can read; :func:`joao.data.molecules.featurise` says which.

    Returns:
        ``(M, 2048)`` counts; more than 255 count as 255.
    """
    require_rdkit()
    from rdkit import Chem, rdBase
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=RADIUS, fpSize=NUM_BITS)
    counts = np.zeros((len(smiles), NUM_BITS), dtype=np.uint8)
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            if molecule is None or molecule.GetNumAtoms() == 0:
                raise UserError(f"fingerprints: molecule {row}, '{text[:60]}', cannot be read by RDKit. Leave it out.")
            counts[row] = np.minimum(generator.GetCountFingerprintAsNumPy(molecule), 255)
    return counts
