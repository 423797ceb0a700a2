"""A pre-trained encoder, fine-tuned with labels, as a scikit-learn classifier."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from joao.data.base import Dataset, plain_label, shown
from joao.errors import JoaoNotice, UserError
from joao.estimator import JOAO, graphs_of, warn_of_unknown_labels
from joao.experiment import OwnParts, Trained, initial, load_run
from joao.finetuning import finetune, load_finetuned
from joao.recipe import Recipe, checked, checked_options, make_recipe
from joao.training.finetune import Finetune, FitEpoch, usual_learning_rate

LOADED = "the run before fine-tuning"


class JOAOClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns the classes of graphs from few labels, starting from an encoder that was pre-trained without any.

    Graphs are as for :class:`joao.JOAO`. Some of those it is fitted on are held out and choose the epoch.

    Args:
        pretrained: a fitted :class:`joao.JOAO`, which is left as it is, or the folder of a run; None starts from
            scratch, with the default encoder.
        epochs: passes over the graphs, at most.
        batch_size: of the training.
        learning_rate: of Adam; None is 0.001, or 0.01 for a frozen encoder.
        patience: epochs without a better validation after which it stops; 0: never.
        frozen: whether the encoder stays as it is and only the linear layer behind it learns.
        class_weight: ``balanced`` (every class weighs the same, however many graphs it has) or None.
        validation_share: of the graphs, held out to choose the epoch.
        random_state: seed of everything random; None draws one.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``32-true``, or on a GPU ``tf32``, ``bf16-mixed`` or ``16-mixed``; ``bf16-mixed`` on a CPU, too.
        fast: False keeps a GPU from training on padded batches, which is its default where the encoder allows it.

    Attributes:
        classes_: the labels, ascending; probabilities are in this order.
        history_: what each epoch showed.
        chosen_epoch_: the number, from 1 on, of the epoch that was kept.
        encoder_: the fine-tuned torch module.
        finetuned_: all of it, see :class:`joao.finetuning.Finetuned`.

    >>> import joao
    >>> graphs = joao.read("MUTAG")
    >>> classifier = joao.JOAOClassifier(joao.JOAO(epochs=2).fit(graphs), epochs=2).fit(graphs)
    >>> classifier.predict_proba(graphs).shape
    (188, 2)
    """

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
        self.pretrained = pretrained
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.frozen = frozen
        self.class_weight = class_weight
        self.validation_share = validation_share
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.fast = fast

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learns the classes of the graphs ``X``: their labels ``y``, or those that the graphs bring along."""
        how = self._settings()
        dataset = graphs_of(X)
        if y is not None:
            classes = _values(dataset, y)
            values, numbers = np.unique(np.asarray(y), return_inverse=True)
            dataset = replace(dataset, classes=numbers, class_names=tuple(map(str, classes)))
        drawn = secrets.randbelow(2**31) if self.random_state is None else self.random_state
        seed = checked(drawn, int, "JOAOClassifier: random_state")
        start = self._start(dataset, seed)
        if dataset.fingerprint in start.info.finetuned_on:
            notice = f"{dataset.name}: the encoder has learned these labels before, also those that choose the epoch."
            warnings.warn(notice, JoaoNotice, stacklevel=2)
        finetuned = finetune(
            start,
            dataset,
            how,
            seed=seed,
            validation_share=checked(self.validation_share, float, "JOAOClassifier: validation_share"),
            device=self.device,
            precision=self.precision,
            fast=self.fast,
        )
        self.finetuned_ = finetuned if y is None else replace(finetuned, classes=classes)
        self.classes_ = np.array(finetuned.classes) if y is None else values
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """``(G, C)`` probabilities of the classes, in the order of ``classes_``."""
        check_is_fitted(self)
        dataset = graphs_of(X)
        probabilities: NDArray[np.float32] = self.finetuned_.predict_probabilities(dataset).numpy()
        warn_of_unknown_labels(dataset, self.finetuned_.trained.info.features)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """``(G,)`` the most probable class of each graph."""
        numbers = self.predict_proba(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[numbers]
        return predicted

    @property
    def history_(self) -> Sequence[FitEpoch]:
        """What each epoch showed."""
        check_is_fitted(self)
        return self.finetuned_.fit.epochs

    @property
    def chosen_epoch_(self) -> int:
        """The number, from 1 on, of the epoch that was kept."""
        check_is_fitted(self)
        return self.finetuned_.fit.chosen

    @property
    def encoder_(self) -> nn.Module:
        """The fine-tuned torch module."""
        check_is_fitted(self)
        return self.finetuned_.trained.encoder

    def save(self, folder: str | Path) -> None:
        """Writes a folder that ``joao predict`` and ``joao embed`` take."""
        check_is_fitted(self)
        self.finetuned_.save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> Self:
        """A fitted classifier from its folder; ``encoder`` is needed where the run had one of its owner's."""
        finetuned = load_finetuned(Path(folder), device=device, own=OwnParts(encoder=encoder))
        how, info = finetuned.how, finetuned.info
        from_default = info.from_scratch and finetuned.trained.recipe == _default(info.seed)
        loaded = cls(
            None if from_default else LOADED,
            epochs=how.epochs,
            batch_size=how.batch_size,
            learning_rate=how.learning_rate,
            patience=how.patience,
            frozen=how.frozen,
            class_weight="balanced" if how.balanced else None,
            validation_share=info.validation_share,
            random_state=info.seed,
            device=device,
            precision=info.precision,
        )
        loaded.finetuned_, loaded.classes_ = finetuned, np.array(finetuned.classes)
        return loaded

    def __sklearn_clone__(self) -> Self:
        copied: Self = super().__sklearn_clone__()
        copied.pretrained = self.pretrained  # a clone of it would have forgotten everything
        return copied

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "finetuned_")

    def _settings(self) -> Finetune:
        if self.class_weight not in ("balanced", None):
            raise UserError(f"JOAOClassifier: class_weight must be 'balanced' or None, got {self.class_weight!r}.")
        names = ("epochs", "batch_size", "learning_rate", "patience", "frozen")
        given = {name: getattr(self, name) for name in names}
        if self.learning_rate is None:
            given["learning_rate"] = usual_learning_rate(self.frozen)
        given |= {"balanced": self.class_weight == "balanced", "standardise": True}
        return Finetune(**checked_options(Finetune, given, "JOAOClassifier"))

    def _start(self, dataset: Dataset, seed: int) -> Trained:
        if self.pretrained is None:
            return initial(_default(seed), dataset, device=self.device)
        if self.pretrained == LOADED:
            raise UserError(
                "JOAOClassifier: was loaded, and the run it came from is not in its folder. To fit again, name "
                "the run: set_params(pretrained=...)."
            )
        if isinstance(self.pretrained, str | Path):
            return load_run(Path(self.pretrained), device=self.device)
        if not isinstance(self.pretrained, JOAO):
            raise UserError(
                "JOAOClassifier: pretrained must be a fitted JOAO, the folder of a run or None, got "
                f"{shown(self.pretrained)}."
            )
        if not hasattr(self.pretrained, "trained_"):
            raise UserError("JOAOClassifier: pretrained is not fitted. Fit it, or save it and give its folder.")
        trained: Trained = self.pretrained.trained_
        return trained


def _default(seed: int) -> Recipe:
    return make_recipe({"training": {"seed": seed}}, place="JOAOClassifier")


def _values(dataset: Dataset, y: Any) -> tuple[int | str, ...]:
    """The values that the labels ``y``, one a graph, have: whole numbers or text, ascending."""
    given = np.asarray(y)
    if given.shape != (len(dataset),):
        shape = f"{len(given)} labels" if given.ndim == 1 else f"an array of shape {given.shape}"
        raise UserError(f"{dataset.name}: y must be one label for each of {len(dataset)} graphs, got {shape}.")
    labels = set()
    for number, value in enumerate(given.tolist()):
        label = plain_label(value)
        if label is None:
            raise UserError(f"{dataset.name}: y[{number}] is {shown(value)}, neither a whole number nor text.")
        labels.add(label)
    if len({type(label) for label in labels}) > 1:
        raise UserError(f"{dataset.name}: y has numbers and text. Make all labels the one or the other.")
    return tuple(sorted(labels))
