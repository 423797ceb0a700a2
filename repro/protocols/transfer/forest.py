"""Fingerprints: what a random forest learns from, the baseline beside pre-training on molecules.

A random forest on columns such as fingerprints: what pre-training on molecules has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from joao.core.errors import UserError
from joao.data.molecules import require_rdkit
from joao.evaluation.splits import Split
from joao.evaluation.targets import roc_auc

NUM_BITS = 2048
RADIUS = 2


def fingerprints(smiles: Sequence[str]) -> NDArray[np.uint8]:
    """ECFP4: how often each neighbourhood of up to two bonds occurs, hashed to 2048 columns, without chirality.

    Args:
        smiles: molecules that RDKit can read; :func:`joao.data.molecules` says which.

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


# By the validation molecules of BBBP, BACE and ClinTox; scikit-learn's defaults are a weaker baseline.
FOREST = {"n_estimators": 500, "min_samples_leaf": 2, "class_weight": "balanced"}


def forest_score(
    columns: NDArray[np.generic],
    labels: NDArray[np.float32],
    split: Split,
    seed: int,
    settings: Mapping[str, Any] = FOREST,
) -> float:
    """The mean ROC-AUC on the test graphs over the tasks that have both labels there.

    Every task has a forest of its own, grown on the training graphs that have its label; the validation graphs are not
    used. A task of one label only among them tells nothing, and counts as a half.

    Args:
        columns: ``(G, d)``.
        labels: ``(G, T)`` 0 or 1, NaN where not measured.
        split: of the graphs.
        seed: of the forests.
        settings: theirs, by scikit-learn's names.
    """
    predicted = np.zeros((len(split.test), labels.shape[1]))
    for task, of_task in enumerate(labels.T):
        train, test = (part[~np.isnan(of_task[part])] for part in (split.train, split.test))
        if all(len(np.unique(of_task[part])) == 2 for part in (train, test)):
            forest = RandomForestClassifier(**settings, random_state=seed)
            forest.fit(columns[train], of_task[train] == 1)
            predicted[:, task] = forest.predict_proba(columns[split.test])[:, 1]
    found = roc_auc(torch.from_numpy(predicted), torch.from_numpy(labels[split.test]))
    return float(found.nanmean())
