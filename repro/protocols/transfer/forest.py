"""A random forest on columns such as fingerprints: the baseline beside pre-training on molecules."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.baselines.forests import Forests
from joao.evaluation.splits import Split
from joao.evaluation.targets import roc_auc


def forest_score(
    columns: NDArray[np.float32],
    labels: NDArray[np.float32],
    split: Split,
    seed: int,
    settings: Mapping[str, Any] | None = None,
) -> float:
    """The mean ROC-AUC on the test graphs over the tasks that have both labels there.

    Every task has a forest of its own, grown on the training graphs that have its label; the validation graphs are not
    used. A task of one label only among them tells nothing, and counts as a half.

    Args:
        columns: ``(G, d)``.
        labels: ``(G, T)`` 0 or 1, NaN for missing labels.
        split: of the graphs.
        seed: of the forests.
        settings: of scikit-learn's forest; None: :data:`joao.baselines.forests.FOREST`.
    """
    both = [len({0.0, 1.0} & {*column[split.test].tolist()}) == 2 for column in labels.T]
    forests = Forests.fit(columns[split.train], labels[split.train][:, both], "binary", seed, settings)
    predicted = torch.from_numpy(forests.predict(columns[split.test]))
    return float(roc_auc(predicted, torch.from_numpy(labels[split.test][:, both])).mean())
