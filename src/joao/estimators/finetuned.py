"""Common base of the estimators that fine-tune a pre-trained encoder, and conversion of labels ``y``."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from joao.config.recipe import Recipe, make_recipe
from joao.core.errors import UserError, one_line, short_repr
from joao.core.estimator import GraphEstimator, draw_seed, stop_on_interrupt
from joao.core.files import as_path
from joao.core.progress import Progress
from joao.core.registry import check_options, check_value
from joao.data.dataset import Dataset
from joao.data.sources import read_graphs, warn_about_unknown_labels, warn_user
from joao.estimators.joao import JOAO, fast_parameter
from joao.runs.finetuning import FinetunedModel, finetune, load_finetuned
from joao.runs.folder import Run
from joao.runs.trained import TrainedEncoder, load_run, make_untrained, model_path
from joao.training.finetune import Finetune, default_learning_rate
from joao.training.metrics import FitEpoch

LOADED = "the run before fine-tuning"
# Parameters of the estimators that are also settings of the fine-tuning.
_SETTINGS = ("epochs", "batch_size", "learning_rate", "patience", "frozen")
NO_LABEL = "{}: y has missing values only (NaN, None or empty text). Add labels."


class FinetunedEstimator(GraphEstimator):
    """Fine-tune the encoder of a run or of a fitted :class:`joao.JOAO`.

    The validation graphs are drawn at random, also for molecules; ``joao finetune`` splits molecules with tasks by
    scaffold. There is no test part: hold out your own, as with any scikit-learn estimator.

    Attributes:
        kinds: kinds of labels that it predicts, see :mod:`joao.runs.finetuning`; the last one is for tasks.
        y_has_rows_: whether ``y`` was two-dimensional, so that predictions for a single task are, too.
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
        ensemble: bool = False,
        validation_share: float = 0.2,
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        device: str = "auto",
        precision: str = "32-true",
        fast: bool | None = None,
        verbose: int = 0,
    ) -> None:
        self.pretrained = pretrained
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.frozen = frozen
        self.ensemble = ensemble
        self.validation_share = validation_share
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.fast = fast
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the labels ``y`` of the graphs ``X``; None: to the labels in ``X``.

        Graphs with a missing label (NaN, None or empty text) are ignored. After Ctrl-C, training stops with the present
        epoch, and the estimator is fitted with the best epoch so far, with a warning. A second Ctrl-C raises
        ``KeyboardInterrupt`` at once.
        """
        name, settings = type(self).__name__, self._settings()
        shown = Progress.from_verbose(self.verbose, name)
        dataset = read_graphs(X, standardise=self._learned_from_standardised(), shown=shown)
        if y is not None:
            _check_rows(dataset, y)
            y = y if X is dataset else select_rows(dataset, y)
            dataset = self._set_labels(dataset, y)
        seed = check_value(draw_seed(self.random_state), int, f"{name}: random_state")
        start = self._start(dataset, seed)
        if dataset.has_fingerprint(*start.info.finetuned_on):
            warn_user(
                f"{dataset.name}: the encoder was already fine-tuned on these labels, including the validation graphs."
            )
        with shown.bar("fine-tuning", settings.epochs) as bar, stop_on_interrupt(shown.line) as stop:
            finetuned = finetune(
                start,
                dataset,
                settings,
                kind=self.kinds[-1] if dataset.classes is None and dataset.targets is not None else self.kinds[0],
                split="random",
                seed=seed,
                validation_share=check_value(self.validation_share, float, f"{name}: validation_share"),
                device=self.device,
                precision=self.precision,
                fast=self.fast,
                ensemble=check_value(self.ensemble, bool, f"{name}: ensemble"),
                on_epoch=lambda epoch: bar.advance(str(epoch)),
                on_notice=warn_user,
                should_stop=lambda: bool(stop),
            )
        if stop and 0 < len(finetuned.fit.epochs) < settings.epochs:
            warn_user(
                f"{name}: interrupted after epoch {len(finetuned.fit.epochs)} of {settings.epochs}. The estimator is "
                f"fitted with the weights of epoch {finetuned.fit.chosen}; call fit again to train it completely."
            )
        self._set_fitted(finetuned, y)
        self.y_has_rows_ = y is not None and np.ndim(y) == 2
        return self

    def predict_std(self, X: Any) -> NDArray[np.float32]:
        """Standard deviation over the members of an ensemble, of :meth:`predict_proba` or of predicted numbers.

        It has the shape of these predictions, and NaN for SMILES that RDKit cannot parse.
        """
        check_is_fitted(self)
        dataset = read_graphs(X, may_be_empty=True, standardise=self.finetuned_.trained.info.standardised)
        if not self.finetuned_.members:
            raise UserError(f"{type(self).__name__}: predict_std needs an ensemble. Fit with ensemble=True.")
        deviations = np.zeros((0, self.finetuned_.classifier.linear.out_features), dtype=np.float32)
        if len(dataset):
            std = self.finetuned_.predict_with_std(dataset).std
            assert std is not None
            deviations = std.numpy()
        return self._match_std(deviations if X is dataset else dataset.in_rows(deviations))

    @property
    def history_(self) -> Sequence[FitEpoch]:
        """Metrics of each epoch."""
        check_is_fitted(self)
        return self.finetuned_.fit.epochs

    @property
    def chosen_epoch_(self) -> int:
        """Number of the chosen epoch, from 1."""
        check_is_fitted(self)
        return self.finetuned_.fit.chosen

    @property
    def encoder_(self) -> nn.Module:
        """The fine-tuned torch module."""
        check_is_fitted(self)
        return self.finetuned_.trained.encoder

    def save(self, folder: str | Path) -> None:
        """Write a folder for ``joao predict``, ``joao embed`` and :func:`joao.load`."""
        check_is_fitted(self)
        self.finetuned_.save(as_path(folder, "folder"))

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> Self:
        """Load a fitted estimator from its folder; a run with a custom encoder needs ``encoder``."""
        finetuned = load_finetuned(as_path(folder, "folder"), device=device, encoder=encoder)
        if finetuned.kind not in cls.kinds:
            other = "JOAORegressor" if finetuned.kind == "numbers" else "JOAOClassifier"
            raise UserError(f"{folder}: predicts {finetuned.kind}, not {cls.kinds[0]}. Load it with {other}.load.")
        info, trained = finetuned.info, finetuned.trained
        kind = "molecules" if trained.info.featuriser else "graphs"
        from_default = info.from_scratch and trained.recipe == _default(info.seed, kind)
        loaded = cls(
            None if from_default else LOADED,
            **{name: getattr(finetuned.settings, name) for name in _SETTINGS},
            ensemble=bool(finetuned.members),
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
        copied.pretrained = self.pretrained  # a clone of it would not be fitted
        return copied

    def _set_labels(self, dataset: Dataset, y: Any) -> Dataset:
        """Replace the labels by ``y``, whose columns are tasks; they keep their names if these are unique."""
        values = to_numbers(dataset, y)
        numbers = tuple(map(str, range(values.shape[1])))
        names = tuple(map(str, getattr(y, "columns", numbers)))
        names = names if len({*names}) == len(numbers) else numbers
        return replace(dataset, targets=values, target_names=names, classes=None, class_names=())

    def _set_fitted(self, finetuned: FinetunedModel, y: Any) -> None:
        """Set ``finetuned_`` and the attributes derived from it, after fitting to ``y`` or loading."""
        self.finetuned_ = finetuned

    def _predict_rows(self, X: Any) -> NDArray[np.float32]:
        """Predict ``(G, C)``, see :meth:`joao.runs.finetuning.FinetunedModel.predict`; NaN for failed SMILES."""
        check_is_fitted(self)
        dataset = read_graphs(X, may_be_empty=True, standardise=self.finetuned_.trained.info.standardised)
        predicted = self._predict_dataset(dataset)
        return predicted if X is dataset else dataset.in_rows(predicted)

    def _prepare_scoring(self, X: Any, y: Any, sample_weight: Any) -> tuple[Dataset, Any, NDArray[np.float64]]:
        """Return the graphs that could be parsed, with their labels and weights."""
        check_is_fitted(self)
        dataset = read_graphs(X, standardise=self.finetuned_.trained.info.standardised)
        _check_rows(dataset, y)
        if X is not dataset:
            y, sample_weight = select_rows(dataset, y), select_rows(dataset, sample_weight)
        weights = np.ones(len(dataset)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != (len(dataset),):
            raise UserError(f"{dataset.name}: sample_weight: expected shape ({len(dataset)},), got {weights.shape}.")
        return dataset, y, weights

    def _task_labels(self, dataset: Dataset, y: Any) -> NDArray[np.float32]:
        """Convert ``y`` to ``(G, T)`` labels of the learned tasks."""
        labels, num_tasks = to_numbers(dataset, y), len(self.finetuned_.tasks)
        if labels.shape[1] != num_tasks:
            raise UserError(f"{dataset.name}: y: expected {num_tasks} columns as in fit, got {labels.shape[1]}.")
        return labels

    def _predict_dataset(self, dataset: Dataset) -> NDArray[np.float32]:
        predicted = np.zeros((0, self.finetuned_.classifier.linear.out_features), dtype=np.float32)
        if len(dataset):
            predicted = self.finetuned_.predict(dataset).numpy()
        warn_about_unknown_labels(dataset, self.finetuned_.trained.info.features)
        return predicted

    def _match_y(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reduce ``(G, 1)`` values to ``(G,)`` unless ``y`` was two-dimensional in ``fit``."""
        return values[:, 0] if values.shape[1] == 1 and not self.y_has_rows_ else values

    def _match_std(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return values

    def _settings(self) -> Finetune:
        settings = {name: getattr(self, name) for name in _SETTINGS}
        if self.learning_rate is None:
            settings["learning_rate"] = default_learning_rate(self.frozen)
        settings |= {"balanced": False, "standardise": True}
        return Finetune(**check_options(Finetune, settings, type(self).__name__))

    def _learned_from_standardised(self) -> bool:
        """Whether the encoder to start from learned from standardised molecules."""
        if isinstance(self.pretrained, str | Path) and self.pretrained != LOADED:
            return Run.open(model_path(self.pretrained)).info.standardised
        trained = getattr(self.pretrained, "trained_", None)
        return trained is not None and trained.info.standardised

    def _start(self, dataset: Dataset, seed: int) -> TrainedEncoder:
        name = type(self).__name__
        if self.pretrained is None:
            return make_untrained(_default(seed, dataset.kind), dataset, device=self.device)
        if self.pretrained == LOADED:
            raise UserError(
                f"{name}: cannot fit again after loading, because the original run is not stored. Set it with "
                "set_params(pretrained=...)."
            )
        if isinstance(self.pretrained, str | Path):
            return load_run(model_path(self.pretrained), device=self.device)
        if not isinstance(self.pretrained, JOAO):
            raise UserError(
                f"{name}: pretrained: expected a fitted JOAO, a run folder or None, got {short_repr(self.pretrained)}."
            )
        if not hasattr(self.pretrained, "trained_"):
            raise UserError(
                f"{name}: pretrained: the JOAO object is not fitted. Call its fit first, or pass a run folder."
            )
        return self.pretrained.trained_


def _default(seed: int, kind: str) -> Recipe:
    return make_recipe({"training": {"seed": seed}}, source="JOAO", kind=kind)


def select_rows(dataset: Dataset, y: Any) -> Any:
    """Select the labels of the rows that could be parsed, if ``y`` has one for every row of the source."""
    rows = dataset.row_of_graph
    if rows is None or not dataset.failures or np.shape(y)[:1] != (len(dataset) + len(dataset.failures),):
        return y
    if isinstance(y, list | tuple):
        return [y[row] for row in rows]
    return y.iloc[rows] if hasattr(y, "iloc") else np.asarray(y)[rows]


def _check_rows(dataset: Dataset, y: Any) -> None:
    """Raise an error for labels in rows of different lengths."""
    try:
        np.shape(y)
    except ValueError:
        fix = "Give one label per graph, or a row per graph with as many labels each, NaN for missing ones."
        raise UserError(f"{dataset.name}: y: its rows differ in length. {fix}") from None


def as_array(y: Any) -> NDArray[Any]:
    """Convert labels to an array; as objects for a list with text, because numpy would turn NaN into text."""
    array = np.asarray(y)
    return np.asarray(y, dtype=object) if array.dtype.kind == "U" and isinstance(y, list | tuple) else array


def is_missing(value: object) -> bool:
    """Whether a label is missing: None, NaN, pandas.NA or empty text."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    gap = getattr(sys.modules.get("pandas"), "NA", None)
    return value is None or value is gap or value == ""


def to_numbers(dataset: Dataset, y: Any) -> NDArray[np.float32]:
    """Convert ``y`` to ``(G, T)`` numbers, with NaN for missing values."""
    try:
        labels = as_array(y)
        if labels.dtype.kind in "OU":
            with_nan = [np.nan if is_missing(value) else value for value in labels.flat]
            labels = np.array(with_nan, dtype=object).reshape(labels.shape)
        if labels.dtype.kind == "c":  # numpy would drop the imaginary parts
            raise TypeError("got complex numbers")
        values = np.asarray(labels, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{dataset.name}: y: expected numbers, or NaN for missing values ({one_line(error)})."
        ) from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != len(dataset) or not values.shape[1]:
        raise UserError(
            f"{dataset.name}: y: expected one label or one row of labels for each of {len(dataset)} graphs, got shape "
            f"{np.shape(y)}."
        )
    if np.isinf(values).any():
        row, task = np.argwhere(np.isinf(values))[0]
        raise UserError(
            f"{dataset.name}: y[{row}]: task {task}: expected a finite 32-bit number, got {values[row, task]:g}."
        )
    if np.isnan(values).all():
        raise UserError(NO_LABEL.format(dataset.name))
    return values
