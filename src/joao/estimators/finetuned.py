"""What the estimators that fine-tune a pre-trained encoder have in common."""

from __future__ import annotations

import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from joao.config.recipe import Recipe, make_recipe
from joao.core.errors import UserError, short_repr
from joao.core.registry import check_options, check_value
from joao.data.dataset import Dataset
from joao.data.sources import read_graphs, warn_about_unknown_labels, warn_user
from joao.estimators.joao import JOAO, GraphEstimator, fast_parameter
from joao.runs.finetuning import FinetunedModel, finetune, load_finetuned
from joao.runs.trained import TrainedEncoder, load_run, make_untrained, model_path
from joao.training.finetune import Finetune, default_learning_rate
from joao.training.metrics import FitEpoch

LOADED = "the run before fine-tuning"
# Parameters of the estimators that are settings of the fine-tuning, by the same names.
_SETTINGS = ("epochs", "batch_size", "learning_rate", "patience", "frozen")
NO_LABEL = "{}: y has no label: all of it is NaN, None or empty text. Fill some in."


class FinetunedEstimator(GraphEstimator, ABC):
    """Fine-tunes the encoder of a run, or of a fitted :class:`joao.JOAO`.

    The graphs that choose the epoch are drawn at random, also of molecules; ``joao finetune`` splits molecules with
    tasks by scaffold. A test part, if wanted, is for the user to hold out, as with any estimator of scikit-learn.

    Attributes:
        kinds: of labels that it predicts, see :mod:`joao.runs.finetuning`; the last one is that of tasks.
        y_has_rows_: whether it was fitted to rows of labels, so that predictions for a single task are rows, too.
    """

    kinds: tuple[str, ...]
    finetuned_: FinetunedModel
    y_has_rows_: bool

    def __init__(
        self,
        pretrained: JOAO | str | Path | None = None,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float | None = None,
        patience: int = 20,
        frozen: bool = False,
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
        self.validation_share = validation_share
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.fast = fast

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learns the labels ``y`` of the graphs ``X``, or those that the graphs bring along.

        A graph whose label is NaN, None or empty text is left out.
        """
        name, how = type(self).__name__, self._settings()
        dataset = read_graphs(X)
        if y is not None:
            y = y if X is dataset else select_rows(dataset, y)
            dataset = self._set_labels(dataset, y)
        drawn = secrets.randbelow(2**31) if self.random_state is None else self.random_state
        seed = check_value(drawn, int, f"{name}: random_state")
        start = self._start(dataset, seed)
        if dataset.fingerprint in start.info.finetuned_on:
            warn_user(f"{dataset.name}: the encoder has learned these labels before, also those that choose the epoch.")
        finetuned = finetune(
            start,
            dataset,
            how,
            kind=self.kinds[-1] if dataset.classes is None and dataset.targets is not None else self.kinds[0],
            split="random",
            seed=seed,
            validation_share=check_value(self.validation_share, float, f"{name}: validation_share"),
            device=self.device,
            precision=self.precision,
            fast=self.fast,
        )
        self._set_fitted(finetuned, y)
        self.y_has_rows_ = y is not None and np.ndim(y) == 2
        return self

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
        """A fitted estimator from its folder; ``encoder`` is needed where the run had one of its owner's."""
        finetuned = load_finetuned(Path(folder), device=device, encoder=encoder)
        if finetuned.kind not in cls.kinds:
            other = "JOAORegressor" if finetuned.kind == "numbers" else "JOAOClassifier"
            raise UserError(f"{folder}: predicts {finetuned.kind}, not {cls.kinds[0]}. Load it with {other}.load.")
        how, info = finetuned.settings, finetuned.info
        kind = "molecules" if finetuned.trained.info.featuriser else "graphs"
        from_default = info.from_scratch and finetuned.trained.recipe == _default(info.seed, kind)
        loaded = cls(
            None if from_default else LOADED,
            **{name: getattr(how, name) for name in _SETTINGS},
            validation_share=info.validation_share,
            random_state=info.seed,
            device=device,
            precision=info.precision,
            fast=fast_parameter(info.fast, info.machine),
        )
        loaded._set_fitted(finetuned, None)
        loaded.y_has_rows_ = False
        return loaded

    def __sklearn_clone__(self) -> Self:
        copied: Self = super().__sklearn_clone__()
        copied.pretrained = self.pretrained  # a clone of it would have forgotten everything
        return copied

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "finetuned_")

    @abstractmethod
    def _set_labels(self, dataset: Dataset, y: Any) -> Dataset:
        """The graphs with the labels ``y`` and no others."""

    @abstractmethod
    def _set_fitted(self, finetuned: FinetunedModel, y: Any) -> None:
        """Remembers what was fitted to ``y``, or loaded, as ``finetuned_``, and what follows from it."""

    @abstractmethod
    def _is_balanced(self) -> bool:
        """Whether every class weighs the same."""

    def _predict_rows(self, X: Any) -> NDArray[np.float32]:
        """``(G, C)`` see :meth:`joao.runs.finetuning.FinetunedModel.predict`; a SMILES that is no molecule has a row of NaN."""
        check_is_fitted(self)
        dataset = read_graphs(X, may_be_empty=True)
        predicted = self._predict_dataset(dataset)
        return predicted if X is dataset else dataset.in_rows(predicted)

    def _prepare_scoring(self, X: Any, y: Any, sample_weight: Any) -> tuple[Dataset, Any, NDArray[np.float64]]:
        """The graphs that could be read, and their part of the labels and weights."""
        check_is_fitted(self)
        dataset = read_graphs(X)
        if X is not dataset:
            y, sample_weight = select_rows(dataset, y), select_rows(dataset, sample_weight)
        weights = np.ones(len(dataset)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != (len(dataset),):
            raise UserError(f"{dataset.name}: {len(dataset)} graphs have sample_weight of shape {weights.shape}.")
        return dataset, y, weights

    def _task_labels(self, dataset: Dataset, y: Any) -> NDArray[np.float32]:
        """``(G, T)`` labels of the tasks that were learned, to compare predictions with."""
        labels, num_tasks = to_numbers(dataset, y), len(self.finetuned_.tasks)
        if labels.shape[1] != num_tasks:
            raise UserError(f"{dataset.name}: y has {labels.shape[1]} columns; {num_tasks} tasks were learned.")
        return labels

    def _predict_dataset(self, dataset: Dataset) -> NDArray[np.float32]:
        predicted = np.zeros((0, self.finetuned_.classifier.linear.out_features), dtype=np.float32)
        if len(dataset):
            predicted = self.finetuned_.predict(dataset).numpy()
        warn_about_unknown_labels(dataset, self.finetuned_.trained.info.features)
        return predicted

    def _match_y(self, values: NDArray[Any]) -> NDArray[Any]:
        """``(G, T)`` values of tasks, or ``(G,)`` of a single one, unless it was given in rows."""
        return values[:, 0] if values.shape[1] == 1 and not self.y_has_rows_ else values

    def _settings(self) -> Finetune:
        given = {name: getattr(self, name) for name in _SETTINGS}
        if self.learning_rate is None:
            given["learning_rate"] = default_learning_rate(self.frozen)
        given |= {"balanced": self._is_balanced(), "standardise": True}
        return Finetune(**check_options(Finetune, given, type(self).__name__))

    def _start(self, dataset: Dataset, seed: int) -> TrainedEncoder:
        name = type(self).__name__
        if self.pretrained is None:
            return make_untrained(_default(seed, dataset.kind), dataset, device=self.device)
        if self.pretrained == LOADED:
            raise UserError(
                f"{name}: was loaded, and the run it came from is not in its folder. To fit again, name "
                "the run: set_params(pretrained=...)."
            )
        if isinstance(self.pretrained, str | Path):
            return load_run(model_path(self.pretrained), device=self.device)
        if not isinstance(self.pretrained, JOAO):
            raise UserError(
                f"{name}: pretrained must be a fitted JOAO, the folder of a run or None, "
                f"got {short_repr(self.pretrained)}."
            )
        if not hasattr(self.pretrained, "trained_"):
            raise UserError(f"{name}: pretrained is not fitted. Fit it, or save it and give its folder.")
        trained: TrainedEncoder = self.pretrained.trained_
        return trained


def _default(seed: int, kind: str) -> Recipe:
    return make_recipe({"training": {"seed": seed}}, source="JOAO", kind=kind)


def select_rows(dataset: Dataset, y: Any) -> Any:
    """Of labels for all rows of a source, those of the rows that gave a graph."""
    rows = dataset.row_of_graph
    if rows is None or not dataset.failures or np.shape(y)[:1] != (len(dataset) + len(dataset.failures),):
        return y
    if isinstance(y, list | tuple):
        return [y[row] for row in rows]
    return y.iloc[rows] if hasattr(y, "iloc") else np.asarray(y)[rows]


def as_array(y: Any) -> NDArray[Any]:
    """Labels as they are: of a list, numpy would make text of all that stands beside text, also of NaN."""
    given = np.asarray(y)
    return np.asarray(y, dtype=object) if given.dtype.kind == "U" and isinstance(y, list | tuple) else given


def is_missing(value: object) -> bool:
    """Whether it stands for a label that is not there: None, NaN, that of pandas, or empty text."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    gap = getattr(sys.modules.get("pandas"), "NA", None)
    return value is None or value is gap or value == ""


def set_tasks(dataset: Dataset, y: Any) -> Dataset:
    """The graphs with the columns of ``y`` as tasks, by the names they have, each its own, or else their numbers."""
    values = to_numbers(dataset, y)
    numbers = range(values.shape[1])
    names = tuple(map(str, getattr(y, "columns", numbers)))
    names = names if len({*names}) == len(numbers) else tuple(map(str, numbers))
    return replace(dataset, targets=values, target_names=names, classes=None, class_names=())


def to_numbers(dataset: Dataset, y: Any) -> NDArray[np.float32]:
    """``(G, T)`` labels; NaN, also None or empty text, where not measured."""
    try:
        values = np.asarray(_with_nan(y), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{dataset.name}: y must be numbers, NaN where not measured ({error}).") from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != len(dataset) or not values.shape[1]:
        raise UserError(
            f"{dataset.name}: y must be a label or a row of labels for each of {len(dataset)} graphs, got an array of "
            f"shape {np.shape(y)}."
        )
    if np.isinf(values).any():
        row, task = np.argwhere(np.isinf(values))[0]
        raise UserError(f"{dataset.name}: y[{row}] of task {task} is infinite, or beyond 32 bits.")
    if np.isnan(values).all():
        raise UserError(NO_LABEL.format(dataset.name))
    return values


def _with_nan(y: Any) -> Any:
    """Labels with NaN for any other gap; others than numbers stay as they are."""
    given = as_array(y)
    if given.dtype.kind not in "OU":
        return given
    return np.array([np.nan if is_missing(value) else value for value in given.flat], dtype=object).reshape(given.shape)
