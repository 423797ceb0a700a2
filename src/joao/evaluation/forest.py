"""A random forest on columns such as fingerprints: what pre-training on molecules has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from joao.evaluation.labels import Split
from joao.training.targets import roc_auc

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
