"""A pre-trained encoder, fine-tuned with numbers, as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from joao.core.errors import UserError
from joao.data.dataset import Dataset
from joao.estimators.finetuned import FinetunedEstimator, set_tasks
from joao.runs.finetuning import FinetunedModel


class JOAORegressor(RegressorMixin, FinetunedEstimator):  # type: ignore[misc]
    """Learns numbers that graphs have, one or several, starting from an encoder that was pre-trained without any.

    Graphs are as for :class:`joao.JOAO`. Some of those it is fitted on are held out and choose the epoch. Labels ``y``
    are a number for each graph, or a row of numbers; NaN, None or empty text where not measured.

    Args:
        pretrained: a fitted :class:`joao.JOAO`, which is left as it is, or the folder of a run; None starts from
            scratch, with the default encoder.
        epochs: passes over the graphs, at most.
        batch_size: of the training.
        learning_rate: of Adam; None is 0.001, or 0.01 for a frozen encoder.
        patience: epochs without a better validation after which it stops; 0: never.
        frozen: whether the encoder stays as it is and only the linear layer behind it learns.
        validation_share: of the graphs, held out at random to choose the epoch; of molecules, too, where
            ``joao finetune`` holds out whole scaffolds and, to test, a further part.
        random_state: seed of everything random; None draws one.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``32-true``, or on a GPU ``tf32``, ``bf16-mixed`` or ``16-mixed``; ``bf16-mixed`` on a CPU, too.
        fast: False keeps a GPU from training on padded batches, which is its default where the encoder allows it.

    Attributes:
        history_: what each epoch showed.
        chosen_epoch_: the number, from 1 on, of the epoch that was kept.
        encoder_: the fine-tuned torch module.
        finetuned_: all of it, see :class:`joao.runs.finetuning.FinetunedModel`.

    >>> import joao
    >>> graphs = joao.read("MUTAG")
    >>> sizes = [len(graph.node_labels) for graph in graphs]
    >>> joao.JOAORegressor(epochs=2).fit(graphs, sizes).predict(graphs).shape
    (188,)
    """

    kinds = ("numbers",)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """``(G, T)`` numbers in their own units; ``(G,)`` of one task, unless it was fitted to ``y`` of ``(G, 1)``."""
        return self._match_y(self._predict_rows(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r""":math:`R^2`; of several tasks the mean over those with at least two labels.

        Graphs without a label count for nothing, nor do SMILES that are no molecules, of which a warning tells.
        """
        dataset, y, weights = self._prepare_scoring(X, y, sample_weight)
        labels, predicted = self._task_labels(dataset, y), self._predict_dataset(dataset)
        is_known = ~np.isnan(labels)
        tasks = np.flatnonzero(is_known.sum(axis=0) >= 2)
        if not len(tasks):
            raise UserError(f"{dataset.name}: y has one label of each task at most. A score needs two or more.")
        scores = [
            r2_score(labels[known, task], predicted[known, task], sample_weight=weights[known])
            for task, known in zip(tasks, is_known.T[tasks], strict=True)
        ]
        return float(np.mean(scores))

    def _set_labels(self, dataset: Dataset, y: Any) -> Dataset:
        return set_tasks(dataset, y)

    def _set_fitted(self, finetuned: FinetunedModel, y: Any) -> None:
        self.finetuned_ = finetuned

    def _is_balanced(self) -> bool:
        return False
