"""Fine-tuning for numbers as a scikit-learn regressor."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from joao.core.errors import UserError
from joao.estimators.finetuned import FinetunedEstimator


class JOAORegressor(RegressorMixin, FinetunedEstimator):  # type: ignore[misc]
    """Predict one or several numbers per graph (regression) by fine-tuning a pre-trained encoder.

    Graphs are as for :class:`joao.JOAO`. ``y`` is one number or one row of numbers per graph. Missing values (NaN, None
    or empty text) are ignored. The parameters are those of :class:`joao.JOAOClassifier`, without ``class_weight``.

    >>> import joao
    >>> graphs = joao.read("MUTAG")
    >>> sizes = [len(graph.node_labels) for graph in graphs]
    >>> joao.JOAORegressor(epochs=2).fit(graphs, sizes).predict(graphs).shape
    (188,)
    """

    kinds = ("numbers",)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Predict ``(G, T)`` numbers; ``(G,)`` for one task, unless ``y`` had the shape ``(G, 1)`` in ``fit``."""
        return self._match_y(self._predict_rows(X))

    def _match_std(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._match_y(values)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r"""Compute :math:`R^2`; for several tasks the mean over those with at least two labels.

        Missing labels are ignored. So are SMILES that RDKit cannot parse, with a warning.
        """
        dataset, y, weights = self._prepare_scoring(X, y, sample_weight)
        labels, predicted = self._task_labels(dataset, y), self._predict_dataset(dataset)
        is_known = ~np.isnan(labels)
        tasks = np.flatnonzero(is_known.sum(axis=0) >= 2)
        if not len(tasks):
            raise UserError(f"{dataset.name}: y: expected at least two labels for some task.")
        scores = [
            r2_score(labels[known, task], predicted[known, task], sample_weight=weights[known])
            for task, known in zip(tasks, is_known.T[tasks], strict=True)
        ]
        return float(np.mean(scores))
