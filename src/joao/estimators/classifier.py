"""Fine-tuning for classes and binary tasks as a scikit-learn classifier."""

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
from joao.estimators.finetuned import NO_LABEL, FinetunedEstimator, as_array, is_missing
from joao.estimators.joao import JOAO
from joao.runs.finetuning import FinetunedModel
from joao.training.finetune import Finetune


class JOAOClassifier(ClassifierMixin, FinetunedEstimator):  # type: ignore[misc]
    """Classify graphs by fine-tuning a pre-trained encoder on few labels.

    Graphs are as for :class:`joao.JOAO`. ``y`` is one class per graph, or one row per graph with 0, 1 or NaN for each
    of several binary tasks. Graphs with a missing class (NaN, None or empty text) are ignored.

    Args:
        pretrained: a fitted :class:`joao.JOAO`, which is not changed, or a run folder; None trains the default encoder
            from scratch.
        epochs: maximum number of passes over the graphs.
        batch_size: graphs per batch.
        learning_rate: learning rate of Adam; None: 0.001, or 0.01 for a frozen encoder.
        patience: epochs without improvement of the validation score after which training stops; 0: never.
        frozen: whether to train only the linear output layer.
        ensemble: for molecules, whether to average a forest on ECFP, one on descriptors and kernel ridge regression
            on the frozen encoder, instead of fine-tuning; it has no epochs, uses all labels, balances classes, and
            :meth:`predict_std` is the standard deviation over the three. Needs tasks or two classes.
        class_weight: ``balanced`` (every class has the same total weight; likewise 0 and 1 of each task) or None.
        validation_share: share of the graphs, drawn at random, that choose the epoch.
        random_state: random seed, or a numpy ``RandomState`` or ``Generator`` to draw one from; None draws one.
        device: ``auto``, ``cpu``, ``cuda`` or a certain GPU such as ``cuda:1``.
        precision: ``32-true`` or ``bf16-mixed``; on a GPU also ``tf32`` or ``16-mixed``.
        fast: False disables padded batches, which a GPU uses by default if the encoder supports them.
        verbose: 1 shows progress, as for :class:`joao.JOAO`.

    Attributes:
        classes_: class labels in ascending order, the order of probabilities. For tasks 0 and 1; the names of the tasks
            are ``finetuned_.tasks``.
        finetuned_: the whole model, see :class:`joao.runs.finetuning.FinetunedModel`.

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
        ensemble: bool = False,
        class_weight: str | None = "balanced",
        validation_share: float = 0.2,
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        device: str = "auto",
        precision: str = "32-true",
        fast: bool | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            pretrained,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            patience=patience,
            frozen=frozen,
            ensemble=ensemble,
            validation_share=validation_share,
            random_state=random_state,
            device=device,
            precision=precision,
            fast=fast,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> Self:
        """Load a fitted classifier from its folder; a run with a custom encoder needs ``encoder``."""
        loaded = super().load(folder, encoder=encoder, device=device)
        loaded.class_weight = "balanced" if loaded.finetuned_.settings.balanced else None
        return loaded

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Predict ``(G, C)`` probabilities in the order of ``classes_``; for tasks ``(G, T)`` probabilities of a 1."""
        return self._predict_rows(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class ``(G,)``; for tasks ``(G, T)`` 0 or 1.

        A single task gives ``(G,)``, unless ``y`` had the shape ``(G, 1)`` in ``fit``.
        """
        probabilities = self.predict_proba(X)
        unknown = np.flatnonzero(np.isnan(probabilities[:, 0]))
        if len(unknown):
            raise UserError(
                f"JOAOClassifier: row {unknown[0]} (from 0) is not a valid molecule, so it has no class. Remove it, or "
                "use predict_proba, which returns NaN for it."
            )
        return self._most_probable(probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy over graphs; for tasks over all labels.

        Missing labels are ignored. So are SMILES that RDKit cannot parse, with a warning.
        """
        dataset, y, weights = self._prepare_scoring(X, y, sample_weight)
        predicted = self._most_probable(self._predict_dataset(dataset))
        if self.finetuned_.kind == "binary":
            labels = self._task_labels(dataset, y)
            is_right = predicted.reshape(labels.shape) == labels
            return float(np.average(is_right, weights=weights[:, None] * ~np.isnan(labels)))
        labels, graphs = _labels_per_graph(dataset, y)
        if (labels.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            own, known = (_plain_labels(some[:1])[0] for some in (labels, self.classes_))
            raise UserError(
                f"{dataset.name}: y: labels such as {own!r} do not match classes such as {known!r}. Use only "
                "integers or only text."
            )
        return float(accuracy_score(labels, predicted[graphs], sample_weight=weights[graphs]))

    def _most_probable(self, probabilities: NDArray[np.float32]) -> NDArray[Any]:
        if self.finetuned_.kind == "binary":
            return self._match_y((probabilities > 0.5).astype(np.int64))
        predicted: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return predicted

    def _set_labels(self, dataset: Dataset, y: Any) -> Dataset:
        if np.ndim(y) == 2:
            return super()._set_labels(dataset, y)
        labels, graphs = _labels_per_graph(dataset, y)
        present, numbers = np.unique(labels, return_inverse=True)
        classes = np.full(len(dataset), -1)
        classes[graphs] = numbers
        return replace(dataset, classes=classes, class_names=tuple(map(str, _plain_labels(present))))

    def _set_fitted(self, finetuned: FinetunedModel, y: Any) -> None:
        self.finetuned_ = finetuned
        self.classes_ = np.array([0, 1] if finetuned.kind == "binary" else finetuned.classes)
        if finetuned.kind == "classes" and y is not None:  # labels keep the type that they have in y
            self.classes_ = np.unique(_labels(y, finetuned.info.data)[0])
            self.finetuned_ = replace(finetuned, classes=_plain_labels(self.classes_))

    def _settings(self) -> Finetune:
        if self.class_weight not in ("balanced", None):
            raise UserError(
                f"JOAOClassifier: class_weight: expected 'balanced' or None, got {short_repr(self.class_weight)}."
            )
        return replace(super()._settings(), balanced=self.class_weight == "balanced")


def _labels_per_graph(dataset: Dataset, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the labels in ``y``, which must have one per graph, and the numbers of the labelled graphs."""
    if np.shape(y) != (len(dataset),):
        shape = f"{len(y)} labels" if np.ndim(y) == 1 else f"an array of shape {np.shape(y)}"
        raise UserError(f"{dataset.name}: y: expected one label for each of {len(dataset)} graphs, got {shape}.")
    return _labels(y, dataset.name)


def _labels(y: Any, place: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the labels that are not missing, with their original type, and their positions."""
    values = as_array(y)
    known = {number: value for number, value in enumerate(values.tolist()) if not is_missing(value)}
    if not known:
        raise UserError(NO_LABEL.format(place))
    types = set()
    for number, value in known.items():
        label = parse_label(value)
        if label is None:
            raise UserError(f"{place}: y[{number}]: expected an integer or text, got {short_repr(value)}.")
        types.add(type(label))
    if len(types) > 1:
        raise UserError(f"{place}: y: has both numbers and text. Use only integers or only text.")
    graphs = np.array([*known])
    return (np.array([*known.values()]) if values.dtype == object else values[graphs]), graphs


def _plain_labels(labels: NDArray[Any]) -> tuple[int | str, ...]:
    return tuple(label for label in map(parse_label, labels.tolist()) if label is not None)
