"""JOAO as a scikit-learn transformer."""

import copy
import html
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from joao.augmentations import Augmentation
from joao.config.builder import CustomParts, EncoderFactory
from joao.config.recipe import METHODS, Recipe, make_recipe
from joao.core.errors import Interrupted, UserError, quantity, short_repr
from joao.core.estimator import GraphEstimator, draw_seed, stop_on_interrupt
from joao.core.files import as_path
from joao.core.pair_table import PairTable
from joao.core.progress import Progress
from joao.core.registry import snake_case
from joao.data.sources import as_shards, read_graphs, warn_about_unknown_labels, warn_user
from joao.encoders import ENCODERS, Convolutions
from joao.encoders.convolutions import geometric_name
from joao.kernels.native import load_library
from joao.objectives import Objective
from joao.policies import POLICIES
from joao.runs.logs import Logger, show_training
from joao.runs.pretraining import pretrain
from joao.runs.trained import TrainedEncoder, load_run, model_path
from joao.training.metrics import EpochMetrics


class JOAO(TransformerMixin, GraphEstimator):  # type: ignore[misc]
    """Pre-train an encoder on graphs without labels, and learn which augmentations to use.

    Graphs are a list of torch-geometric ``Data``, a torch-geometric data set, a list of networkx graphs or of SMILES,
    or anything else that :func:`joao.read` accepts.

    Args:
        method: the pre-training method, a name in :data:`joao.config.recipe.METHODS`. ``joaov2`` has a projection head
            for each augmentation, ``joao_strengths`` also learns the strengths of the augmentations.
        features: rule for node features, see :mod:`joao.data.features`; None: ``random_walks``, but ``auto`` for
            molecules and for custom encoders.
        augmentations: the pool: names, tables of name and options, or objects; None: default of the method.
        strength: strength of augmentations without one of their own.
        strengths: several strengths, each a separate member of the pool: a list, or a dictionary of prior weights;
            None: default of the method.
        encoder: a name in :data:`joao.encoders.ENCODERS`, a table of name and options, a convolution class of
            torch-geometric, a module, which is copied, or a class or function that makes a module from the numbers of
            node and edge features; None: ``gin``, or ``molecule_gin`` for molecules. ``gine`` is ``gin`` with edge
            attributes or weights.
        objective: a name in :data:`joao.objectives.OBJECTIVES`, a table of name and options, or an object; None:
            default of the method. Methods with two views take any :class:`joao.objectives.PairObjective`.
        policy: a name in :data:`joao.policies.POLICIES` or a table; None: default of the method.
        gamma: weight of the policy's prior, if it has one; None: default of the policy, 0.1 for ``joao``.
        epochs: passes over all graphs; None: 20, or as in the preset.
        batch_size: graphs per batch; None: 128, or 256 for molecules.
        learning_rate: learning rate of Adam; None: 0.01, or 0.001 for molecules.
        training: further settings of :class:`joao.config.recipe.Schedule`: ``pair_per``, ``update_every``,
            ``update_batches``, ``decay``.
        targets: for molecules, also predict ``descriptors``, ``ecfp`` or both: a list, or a dictionary of weights, in
            which ``contrastive`` is the weight of the method's own loss (:mod:`joao.training.targets`).
        preset: ``large``: width 128 and 40 epochs, which takes many times as long on a CPU (docs/encoders.md).
        max_degree: largest degree of the feature rule ``degree``.
        random_state: random seed, or a numpy ``RandomState`` or ``Generator`` to draw one from; None draws one.
        device: ``auto``, ``cpu``, ``cuda`` or a certain GPU such as ``cuda:1``.
        precision: ``32-true`` or ``bf16-mixed``; on a GPU also ``tf32`` or ``16-mixed``.
        fast: False disables padded batches on a GPU and the compiled core on a CPU, which are used by default if all
            parts support them.
        loggers: loggers of Lightning Fabric, which receive the metrics of every epoch.
        verbose: 1 shows progress on standard error: a bar in a terminal or notebook, a line every ten seconds
            elsewhere. Python's logger ``joao`` gets every epoch in any case, at level INFO.

    >>> import joao
    >>> embeddings = joao.JOAO(epochs=2).fit_transform(joao.read("MUTAG"))
    >>> embeddings.shape
    (188, 303)
    """

    compared_as = "pre-trained"
    _loaded_with: Mapping[str, Any] | None = None  # parameters of a loaded estimator, whose weights are frozen

    def __init__(
        self,
        method: str = "joao",
        *,
        features: str | None = None,
        augmentations: Sequence[str | Mapping[str, Any] | Augmentation] | None = None,
        strength: float = 0.2,
        strengths: Sequence[float] | Mapping[float, float] | None = None,
        encoder: str | Mapping[str, Any] | nn.Module | EncoderFactory | None = None,
        objective: str | Mapping[str, Any] | Objective | None = None,
        policy: str | Mapping[str, Any] | None = None,
        gamma: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        training: Mapping[str, Any] | None = None,
        targets: Sequence[str] | Mapping[str, float] | None = None,
        preset: str | None = None,
        max_degree: int = 64,
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        device: str = "auto",
        precision: str = "32-true",
        fast: bool | None = None,
        loggers: Sequence[Logger] | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.features = features
        self.augmentations = augmentations
        self.strength = strength
        self.strengths = strengths
        self.encoder = encoder
        self.objective = objective
        self.policy = policy
        self.gamma = gamma
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.training = training
        self.targets = targets
        self.preset = preset
        self.max_degree = max_degree
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.fast = fast
        self.loggers = loggers
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, retrain: bool = False) -> Self:
        """Pre-train on the graphs ``X``. Shards are never loaded completely. ``y`` is ignored.

        A loaded encoder is frozen: ``fit`` keeps its weights, and so do its clones in pipelines, cross-validation and
        grid searches. ``retrain=True`` trains it from scratch.

        After Ctrl-C, training stops with the present step, and the estimator is fitted with the weights it has by then,
        with a warning. A second Ctrl-C raises ``KeyboardInterrupt`` at once.
        """
        if self._loaded_with is not None and not retrain:
            self._check_frozen()
            return self
        custom = CustomParts(
            augmentations=self._custom_augmentations(),
            encoder=_custom_encoder(self.encoder),
            objective=self.objective if isinstance(self.objective, Objective) else None,
        )
        shown = Progress.from_verbose(self.verbose, "JOAO")
        dataset = as_shards(X) or read_graphs(X, shown=shown).without_labels()
        source = str(X) if isinstance(X, str | os.PathLike) else ""  # so that a saved run knows its graphs
        recipe = replace(self._recipe(dataset.kind), data=source)
        showing = show_training(shown, recipe, dataset.kind, custom.augmentations)
        with showing as callbacks, stop_on_interrupt(shown.line) as stop:
            try:
                trained = pretrain(
                    recipe,
                    dataset,
                    device=self.device,
                    precision=self.precision,
                    fast=self.fast,
                    loggers=self.loggers or (),
                    custom=custom,
                    on_notice=warn_user,
                    should_stop=lambda: bool(stop),
                    **callbacks,
                )
            except Interrupted:  # before the first step
                raise KeyboardInterrupt from None
        if trained.recipe != recipe:
            warn_user(
                f"JOAO: interrupted in epoch {len(trained.metrics)} of {recipe.training.epochs}. The estimator is "
                "fitted with the weights so far; call fit again to train it completely."
            )
        self.trained_ = trained
        self._loaded_with = None
        return self

    def _check_frozen(self) -> None:
        """Raise an error if a parameter was changed after loading, which would have no effect."""
        assert self._loaded_with is not None
        for name, value in self.get_params(deep=False).items():
            before = self._loaded_with[name]
            if name not in ("device", "random_state", "verbose") and value is not before and value != before:
                raise UserError(
                    f"JOAO: a loaded encoder is frozen, so that {name} = {short_repr(value)} has no effect. Use "
                    "fit(..., retrain=True) or a new JOAO."
                )

    def __sklearn_clone__(self) -> Self:
        """Keep the weights of a loaded encoder; other estimators are cloned without what they learned."""
        if self._loaded_with is not None:
            return copy.copy(self)
        return cast(Self, super().__sklearn_clone__())

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Compute ``(G, d)`` embeddings of the graphs ``X``.

        SMILES that RDKit cannot parse get a row of NaN, with a warning.
        """
        trained = self._fitted()
        info = trained.info
        dataset = read_graphs(X, may_be_empty=True, standardise=info.standardised, as_ogb=info.features.as_ogb)
        embeddings = np.zeros((0, trained.encoder.embedding_size), dtype=np.float32)
        if len(dataset):
            embeddings = trained.embed(dataset).numpy()
        warn_about_unknown_labels(dataset, info.features)
        return embeddings if X is dataset else dataset.in_rows(embeddings)

    def _fitted(self) -> TrainedEncoder:
        check_is_fitted(self)
        return self.trained_

    @property
    def policy_(self) -> PairTable:
        """Learned probabilities of augmentation pairs."""
        return self._fitted().policy

    @property
    def drawn_(self) -> PairTable:
        """Share of graphs that were augmented by each pair, over all epochs (the paper's Figure 3)."""
        return self._fitted().drawn

    @property
    def history_(self) -> Sequence[EpochMetrics]:
        """Metrics of each epoch."""
        return self._fitted().metrics

    @property
    def encoder_(self) -> nn.Module:
        """The trained torch module."""
        return self._fitted().encoder

    def save(self, folder: str | Path) -> None:
        """Write a run folder for ``joao embed``, ``joao evaluate`` and :func:`joao.load`."""
        self._fitted().save(as_path(folder, "folder"))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        encoder: Mapping[str, Any] | nn.Module | EncoderFactory | None = None,
        device: str = "auto",
    ) -> Self:
        """Load a fitted transformer from a run folder; a run with a custom encoder needs it as ``encoder``.

        It is frozen, see :meth:`fit`.
        """
        trained = load_run(model_path(folder), device=device, encoder=_custom_encoder(encoder))
        recipe = trained.recipe
        loaded = cls(
            _find_method(recipe),
            features=recipe.features,
            # Custom objects are not stored in a run. These names make a second fit fail with an error that names them.
            augmentations=[f"own {name}" for name in trained.info.pool]
            if "augmentations" in trained.info.own
            else [part.table() for part in recipe.augmentations],
            encoder=recipe.encoder.table() if encoder is None else encoder,
            objective=recipe.objective.table(),
            policy=recipe.policy.table(),
            epochs=recipe.training.epochs,
            batch_size=recipe.training.batch_size,
            learning_rate=recipe.training.learning_rate,
            training={
                name: getattr(recipe.training, name) for name in ("pair_per", "update_every", "update_batches", "decay")
            },
            targets=dict(recipe.targets) or None,
            max_degree=recipe.max_degree,
            random_state=recipe.training.seed,
            device=device,
            precision=trained.info.precision,
            fast=fast_parameter(trained.info.fast, trained.info.machine, on_cpu=load_library() is not None),
        )
        loaded.trained_ = trained
        loaded._loaded_with = loaded.get_params(deep=False)
        return loaded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names of the embedding columns, for ``set_output``."""
        return np.array([f"joao{i}" for i in range(self._fitted().encoder.embedding_size)], dtype=object)

    @property
    def _repr_html_(self) -> Callable[[], str]:
        """Show scikit-learn's diagram and, once fitted, the learned probabilities in a notebook."""
        picture = super()._repr_html_
        return lambda: str(picture()) + self._learned_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._learned_html()
        return bundle

    def _learned_html(self) -> str:
        """Describe the training and the probabilities of pairs; empty before fitting."""
        if not hasattr(self, "trained_") or not self.trained_.metrics:
            return ""
        info, last = self.trained_.info, self.trained_.metrics[-1]
        epochs = quantity(last.epoch, "epochs")
        what = f"{info.num_graphs:,} graphs ({html.escape(info.data)}), {epochs}, loss {last.loss:.4g}"
        if len(info.pool) < 2:
            return f"<p>Pre-trained on {what}.</p>"
        table = self.trained_.policy.over_strengths()
        return f"<p>Pre-trained on {what}. Probabilities of augmentation pairs:</p>{table._repr_html_()}"

    def _recipe(self, kind: str = "graphs") -> Recipe:
        training = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        training = {name: value for name, value in training.items() if value is not None}
        are_custom = self._custom_augmentations() is not None
        if are_custom and self.strengths:
            raise UserError(
                "JOAO: strengths cannot be combined with augmentation objects, which have their own. Remove strengths."
            )
        is_custom = _custom_encoder(self.encoder) is not None  # it may be made for the user's own columns
        parts = {
            "features": "auto" if self.features is None and is_custom else self.features,
            "augmentations": None if are_custom else self.augmentations,
            "strengths": [] if are_custom else self.strengths,
            "encoder": _encoder_table(self.encoder),
            "objective": None if isinstance(self.objective, Objective) else self.objective,
            "preset": self.preset,
            "targets": self.targets,
        }
        if not isinstance(self.training, Mapping | None):
            raise UserError(f"JOAO: training: expected a table of settings, got {short_repr(self.training)}.")
        return make_recipe(
            {
                "method": self.method,
                "strength": self.strength,
                **{key: value for key, value in parts.items() if value is not None},
                "policy": self._policy(),
                "max_degree": self.max_degree,
                "training": {**(self.training or {}), **training, "seed": draw_seed(self.random_state)},
            },
            source="JOAO",
            kind=kind,
        )

    def _policy(self) -> Any:
        """Return the policy of the recipe, with ``gamma`` if the policy has that option and does not set it."""
        # A method of the wrong type or name is reported by make_recipe.
        method = METHODS.get(self.method if isinstance(self.method, str) else "", METHODS["joao"])
        policy = self.policy if self.policy is not None else method["policy"]
        table = {"name": policy} if isinstance(policy, str) else policy
        if not isinstance(table, Mapping):
            return policy
        name = table.get("name", method["policy"])
        takes_gamma = name in POLICIES and "gamma" in inspect.signature(POLICIES[name]).parameters
        return {"gamma": self.gamma, **table} if takes_gamma and self.gamma is not None else table

    def _custom_augmentations(self) -> dict[str, Augmentation] | None:
        """Return the pool by name if its members are objects, else None."""
        members = self.augmentations if isinstance(self.augmentations, list | tuple) else ()
        for number, member in enumerate(members):
            if not isinstance(member, str | Mapping | type | Augmentation):
                is_transform = type(member).__module__.startswith("torch_geometric.")
                fix = "docs/custom-augmentations.md wraps a torch-geometric transform." if is_transform else ""
                raise UserError(
                    f"JOAO: augmentations[{number}]: expected a name, a table with a name, or an instance of a class "
                    f"derived from joao.Augmentation, got {short_repr(member)}. {fix}".rstrip()
                )
        if not any(isinstance(member, Augmentation) for member in members):
            return None
        pool: dict[str, Augmentation] = {}
        for member in members:
            if not isinstance(member, Augmentation):
                raise UserError(
                    f"JOAO: augmentations: names and objects cannot be combined, got {short_repr(member)} among "
                    "objects. Use an instance of its class in joao.augmentations."
                )
            name = snake_case(type(member).__name__)
            name = name if name not in pool else repr(member)
            if name in pool:
                raise UserError(f"JOAO: augmentations: duplicate member {name}. Remove it.")
            pool[name] = member
        return pool


def fast_parameter(is_fast: bool, machine: Mapping[str, Any], on_cpu: bool = False) -> bool | None:
    """Return the parameter ``fast`` that reproduces the path of a training; None if it is the device's default.

    ``on_cpu`` says whether the fast path is the default on a CPU.

    >>> fast_parameter(False, {"device": "cuda"}), fast_parameter(False, {"device": "cpu"})
    (False, None)
    """
    return None if is_fast == (on_cpu or machine.get("device") == "cuda") else is_fast


def _custom_encoder(encoder: Any) -> nn.Module | EncoderFactory | None:
    """Return a custom module, or a function that makes it; None for a name or table."""
    if isinstance(encoder, Mapping) and callable(geometric_name(encoder.get("convolution"))):
        return partial(Convolutions, **{name: value for name, value in encoder.items() if name != "name"})
    return encoder if callable(geometric_name(encoder)) else None


def _encoder_table(encoder: Any) -> Any:
    """The encoder in a recipe: a custom one is replaced by the name of one with the same input."""
    if _custom_encoder(encoder) is not None:
        codes = getattr(encoder, "codes", None)
        return next((name for name, kind in ENCODERS.items() if codes and kind.codes == codes), "gin")
    if isinstance(encoder, type):  # of torch-geometric
        encoder = {"convolution": encoder}
    if isinstance(encoder, Mapping) and "convolution" in encoder:
        return {"name": "convolutions", **encoder, "convolution": geometric_name(encoder["convolution"])}
    return encoder


def _find_method(recipe: Recipe) -> str:
    """Find the method with a recipe's objective and heads and, if possible, its policy."""
    for families in (("objective", "heads", "policy"), ("objective", "heads"), ("heads", "policy"), ("heads",)):
        for method in sorted(METHODS, key="gae".__ne__):  # GAE stands in for other node objectives
            if all(METHODS[method][family] == getattr(recipe, family).name for family in families):
                return method
    raise AssertionError("every kind of heads is some method's")
