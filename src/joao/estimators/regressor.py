"""Fine-tuning for numbers as a scikit-learn regressor."""

from __future__ import annotations

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
    or empty text) are ignored.

    Args:
        pretrained: a fitted :class:`joao.JOAO`, which is not changed, or a run folder; None trains the default encoder
            from scratch.
        epochs: maximum number of passes over the graphs.
        batch_size: graphs per batch.
        learning_rate: learning rate of Adam; None: 0.001, or 0.01 for a frozen encoder.
        patience: epochs without improvement of the validation score after which training stops; 0: never.
        frozen: whether to train only the linear output layer.
        validation_share: share of the graphs, drawn at random, that choose the epoch.
        random_state: random seed; None draws one.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``32-true`` or ``bf16-mixed``; on a GPU also ``tf32`` or ``16-mixed``.
        fast: False disables padded batches, which a GPU uses by default if the encoder supports them.

    Attributes:
        history_: metrics of each epoch.
        chosen_epoch_: number of the chosen epoch, from 1.
        encoder_: the fine-tuned torch module.
        finetuned_: the whole model, see :class:`joao.runs.finetuning.FinetunedModel`.

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
