"""A pre-trained encoder, fine-tuned with labels, as a scikit-learn classifier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from torch import nn

from joao.core.errors import UserError, short_repr
from joao.data.dataset import Dataset
from joao.data.validation import parse_label
from joao.estimators.finetuned import NO_LABEL, FinetunedEstimator, as_array, is_missing, set_tasks
from joao.estimators.joao import JOAO
from joao.runs.finetuning import FinetunedModel


class JOAOClassifier(ClassifierMixin, FinetunedEstimator):  # type: ignore[misc]
    """Learns the classes of graphs from few labels, starting from an encoder that was pre-trained without any.

    Graphs are as for :class:`joao.JOAO`. Some of those it is fitted on are held out and choose the epoch. Labels ``y``
    are a class for each graph, or a row for each graph with 0, 1 or NaN (not measured) for each of several tasks. NaN,
    None or empty text is no class: such a graph is left out.

    Args:
        pretrained: a fitted :class:`joao.JOAO`, which is left as it is, or the folder of a run; None starts from
            scratch, with the default encoder.
        epochs: passes over the graphs, at most.
        batch_size: of the training.
        learning_rate: of Adam; None is 0.001, or 0.01 for a frozen encoder.
        patience: epochs without a better validation after which it stops; 0: never.
        frozen: whether the encoder stays as it is and only the linear layer behind it learns.
        class_weight: ``balanced`` (every class weighs the same, however many graphs it has; likewise 0 and 1 of each
            task) or None.
        validation_share: of the graphs, held out at random to choose the epoch; of molecules, too, where
            ``joao finetune`` on tasks holds out whole scaffolds and, to test, a further part.
        random_state: seed of everything random; None draws one.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``32-true``, or on a GPU ``tf32``, ``bf16-mixed`` or ``16-mixed``; ``bf16-mixed`` on a CPU, too.
        fast: False keeps a GPU from training on padded batches, which is its default where the encoder allows it.

    Attributes:
        classes_: the labels, ascending; probabilities are in this order. Of tasks, 0 and 1; the names of the tasks are
            ``finetuned_.tasks``.
        history_: what each epoch showed.
        chosen_epoch_: the number, from 1 on, of the epoch that was kept.
        encoder_: the fine-tuned torch module.
        finetuned_: all of it, see :class:`joao.runs.finetuning.FinetunedModel`.

    >>> import joao
    >>> graphs = joao.read("MUTAG")
    >>> classifier = joao.JOAOClassifier(joao.JOAO(epochs=2).fit(graphs), epochs=2).fit(graphs)
    >>> classifier.predict_proba(graphs).shape
    (188, 2)
    """

    kinds = ("classes", "binary")

    def __init__(
        self,
        pretrained: JOAO | str | Path | None = None,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float | None = None,
        patience: int = 20,
        frozen: bool = False,
        class_weight: str | None = "balanced",
        validation_share: float = 0.2,
        random_state: int | None = 0,
        device: str = "auto",
        precision: str = "32-true",
        fast: bool | None = None,
    ) -> None:
        super().__init__(
            pretrained,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            patience=patience,
            frozen=frozen,
            validation_share=validation_share,
            random_state=random_state,
            device=device,
            precision=precision,
            fast=fast,
        )
        self.class_weight = class_weight

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> Self:
        """A fitted classifier from its folder; ``encoder`` is needed where the run had one of its owner's."""
        loaded = super().load(folder, encoder=encoder, device=device)
        loaded.class_weight = "balanced" if loaded.finetuned_.settings.balanced else None
        return loaded

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """``(G, C)`` probabilities of the classes, in the order of ``classes_``; of tasks ``(G, T)``, those of a 1."""
        return self._predict_rows(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """``(G,)`` the most probable class of each graph; of tasks ``(G, T)``, 1 where it is more probable than 0.

        Of a single task ``(G,)``, unless it was fitted to ``y`` of shape ``(G, 1)``.
        """
        probabilities = self.predict_proba(X)
        unknown = np.flatnonzero(np.isnan(probabilities[:, 0]))
        if len(unknown):
            raise UserError(
                f"JOAOClassifier: row {unknown[0]} (from 0) is no molecule, so it has no class. Leave it out, or use "
                "predict_proba, which has rows of NaN."
            )
        return self._most_probable(probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of graphs whose class is told right; of tasks, of all labels that were measured.

        Graphs without a label count for nothing, nor do SMILES that are no molecules, of which a warning tells.
        """
        dataset, y, weights = self._prepare_scoring(X, y, sample_weight)
        predicted = self._most_probable(self._predict_dataset(dataset))
        if self.finetuned_.kind == "binary":
            labels = self._task_labels(dataset, y)
            is_right = predicted.reshape(labels.shape) == labels
            weight_of_label = weights[:, None] * ~np.isnan(labels)
            return float(np.average(is_right, weights=weight_of_label))
        labels, graphs = _labels_per_graph(dataset, y)
        if (labels.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            given, known = (_plain_labels(some[:1])[0] for some in (labels, self.classes_))
            raise UserError(
                f"{dataset.name}: y has labels such as {given!r}, but the classes are such as {known!r}. "
                "Make all labels numbers, or all text."
            )
        return float(accuracy_score(labels, predicted[graphs], sample_weight=weights[graphs]))

    def _most_probable(self, probabilities: NDArray[np.float32]) -> NDArray[Any]:
        if self.finetuned_.kind == "binary":
            return self._match_y((probabilities > 0.5).astype(np.int64))
        predicted: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return predicted

    def _set_labels(self, dataset: Dataset, y: Any) -> Dataset:
        if np.ndim(y) == 2:
            return set_tasks(dataset, y)
        labels, graphs = _labels_per_graph(dataset, y)
        present, numbers = np.unique(labels, return_inverse=True)
        classes = np.full(len(dataset), -1)
        classes[graphs] = numbers
        return replace(dataset, classes=classes, class_names=tuple(map(str, _plain_labels(present))))

    def _set_fitted(self, finetuned: FinetunedModel, y: Any) -> None:
        if finetuned.kind == "binary":
            self.finetuned_, self.classes_ = finetuned, np.array([0, 1])
        elif y is None:
            self.finetuned_, self.classes_ = finetuned, np.array(finetuned.classes)
        else:
            self.classes_ = np.unique(_labels(y, finetuned.info.data)[0])
            self.finetuned_ = replace(finetuned, classes=_plain_labels(self.classes_))

    def _is_balanced(self) -> bool:
        if self.class_weight not in ("balanced", None):
            raise UserError(f"JOAOClassifier: class_weight must be 'balanced' or None, got {self.class_weight!r}.")
        return self.class_weight == "balanced"


def _labels_per_graph(dataset: Dataset, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The labels in ``y``, which has one place for each graph, and the numbers of the graphs that have them."""
    if np.shape(y) != (len(dataset),):
        shape = f"{len(y)} labels" if np.ndim(y) == 1 else f"an array of shape {np.shape(y)}"
        raise UserError(f"{dataset.name}: y must be one label for each of {len(dataset)} graphs, got {shape}.")
    return _labels(y, dataset.name)


def _labels(y: Any, place: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The labels that are no gaps, of the type that they were given in, and which they are."""
    given = as_array(y)
    known = {number: value for number, value in enumerate(given.tolist()) if not is_missing(value)}
    if not known:
        raise UserError(NO_LABEL.format(place))
    types = set()
    for number, value in known.items():
        label = parse_label(value)
        if label is None:
            raise UserError(f"{place}: y[{number}] is {short_repr(value)}, neither a whole number nor text.")
        types.add(type(label))
    if len(types) > 1:
        raise UserError(f"{place}: y has numbers and text. Make all labels the one or the other.")
    graphs = np.array([*known])
    return (np.array([*known.values()]) if given.dtype == object else given[graphs]), graphs


def _plain_labels(labels: NDArray[Any]) -> tuple[int | str, ...]:
    return tuple(label for label in map(parse_label, labels.tolist()) if label is not None)
