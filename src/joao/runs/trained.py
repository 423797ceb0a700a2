"""A trained or untrained encoder, ready to embed graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from joao.config.builder import EncoderFactory, build_encoder, check_input, check_memory, count_weights
from joao.config.recipe import Recipe
from joao.core.errors import UserError, one_line, suggest
from joao.core.files import as_path
from joao.core.graphs import GraphStore, Store
from joao.core.memory import Budget
from joao.core.pair_table import PairTable
from joao.core.provenance import command, machine, versions
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.data.molecules import FEATURISER
from joao.data.shards.shards import Shards
from joao.encoders import Encoder
from joao.runs.folder import Run, RunInfo
from joao.training.device import limit_threads, pick_device
from joao.training.metrics import EpochMetrics
from joao.training.model import calibrate_by_recipe, embed

PRETRAINED = Path(__file__).parent.parent / "pretrained"


def bundled_models() -> list[str]:
    """List the names of the models that come with the package."""
    return sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))


def bundled_model_path(name: str) -> Path:
    """Return the file of a bundled model."""
    known = bundled_models()
    if name not in known:
        fix = suggest(name, known) if known else "This version has none; create one with 'joao export'."
        raise UserError(f"unknown pre-trained model '{name}'. {fix}")
    return PRETRAINED / f"{name}.safetensors"


def model_path(model: str | Path) -> Path:
    """Return ``model`` if such a path exists, else the bundled model of that name."""
    path = as_path(model, "model")
    return bundled_model_path(str(model)) if not path.exists() and str(model) in bundled_models() else path


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """A pre-trained encoder with its recipe, run information, weights and training metrics.

    >>> trained = load_run(bundled_model_path("molecules"), device="cpu")
    >>> trained.recipe.policy.name, trained.info.features.rule
    ('min_max', 'ogb_atoms')
    """

    recipe: Recipe
    info: RunInfo
    encoder: Encoder
    weights: Mapping[str, Tensor] = field(repr=False)
    metrics: Sequence[EpochMetrics] = field(repr=False)

    @property
    def policy(self) -> PairTable:
        """Probabilities of augmentation pairs after training."""
        return PairTable.of(self.info.pool, self._epochs()[-1].probabilities)

    @property
    def counts(self) -> NDArray[np.int64]:
        """``(K, K)`` number of graphs that were augmented by each pair, over all epochs."""
        counts: NDArray[np.int64] = np.sum([epoch.drawn for epoch in self._epochs()], axis=0)
        return counts

    @property
    def drawn(self) -> PairTable:
        """Share of graphs that were augmented by each pair, over all epochs (the paper's Figure 3)."""
        return PairTable.of(self.info.pool, self.counts / self.counts.sum())

    def _epochs(self) -> Sequence[EpochMetrics]:
        if not self.metrics:
            raise UserError("the encoder was not pre-trained, so there are no augmentation pairs.")
        return self.metrics

    def store(self, dataset: Dataset) -> GraphStore:
        """Compute the encoder's input for any graphs with the same kind of features."""
        store = make_store(dataset, self.info.features)
        if store.edge_attr is None and not len(store.source) and self.info.num_edge_features:
            store = replace(store, edge_attr=torch.zeros(0, self.info.num_edge_features))
        if self.encoder.uses_edge_attr and store.num_edge_features != self.info.num_edge_features:
            raise UserError(
                f"{dataset.name}: expected {self.info.num_edge_features} columns of edge attributes, as in training, "
                f"got {store.num_edge_features}."
            )
        return store

    @limit_threads()
    def embed(self, dataset: Dataset | Shards, *, pooled: bool = False) -> Tensor:
        """Compute ``(G, d)`` embeddings of any graphs with the same kind of features; shards are read one by one.

        ``pooled``: as in training, without the encoder's readout.
        """
        if isinstance(dataset, Shards):
            return torch.cat([self.embed(piece, pooled=pooled) for piece in dataset.pieces()])
        store = self.store(dataset)
        device = next((value.device for value in self.encoder.state_dict().values()), torch.device("cpu"))
        embeddings = embed(self.encoder, store.to(device), pooled=pooled)
        if not bool(embeddings.isfinite().all()):
            bad = int((~embeddings.isfinite().all(dim=1)).nonzero()[0])
            raise UserError(f"{dataset.name}: the embedding of graph {bad} is not finite. The weights are damaged.")
        return embeddings

    def save(self, folder: Path, beside: Mapping[str, Any] | None = None, *, claimed: bool = False) -> Run:
        """Write a run folder, and further JSON files ``beside`` by name; see :meth:`joao.runs.folder.Run.create`."""
        files: dict[str, Any] = {"metrics": self.metrics, "weights": self.weights, "json_files": beside}
        return Run.create(folder, self.recipe, replace(self.info, finished=True), **files, claimed=claimed)


def load_run(
    folder: Path, *, device: str = "auto", encoder: nn.Module | EncoderFactory | None = None
) -> TrainedEncoder:
    """Load a finished run from its folder or exported file.

    Args:
        folder: the run.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.
        encoder: module of the right shape, or a function that makes it; required if the run was trained with a custom
            encoder.

    >>> load_run(bundled_model_path("molecules"), device="cpu").encoder.num_dimensions
    2560
    """
    run = Run.open(folder)
    weights = run.weights()
    if "encoder" in run.info.own and encoder is None:
        raise UserError(
            f"{folder}: was trained with a custom encoder. Pass it when loading in Python: "
            f"{'JOAOClassifier.load or JOAORegressor.load' if run.info.finetuned_on else 'JOAO.load'}"
            "(folder, encoder=...)."
        )
    Budget(str(folder)).take(16 * (run.info.num_features + run.info.num_edge_features), "columns of an example")
    if encoder is None:
        _check_size(run, weights)
    built = build_encoder(run.recipe, _example_store(run.info), encoder)
    of_encoder = {name: value for name, value in weights.items() if name.startswith("encoder.")}
    set_weights(built, {name.removeprefix("encoder."): value for name, value in of_encoder.items()}, folder)
    built.to(pick_device(device)).eval()
    return TrainedEncoder(run.recipe, run.info, built, weights, run.metrics())


@limit_threads()
def make_untrained(
    recipe: Recipe, dataset: Dataset, features: Features | None = None, *, calibrated: bool = True, device: str = "auto"
) -> TrainedEncoder:
    """Make the recipe's encoder with its initial weights: the baseline of training, and the start of fine-tuning from
    scratch.

    Args:
        recipe: recipe of the encoder.
        dataset: the graphs.
        features: how to compute ``x``; None: from the recipe and the graphs.
        calibrated: whether to calibrate batch normalisation on the graphs, in one pass without labels.
        device: ``auto``, ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.
    """
    features = features or Features.from_dataset(dataset, recipe.features, recipe.max_degree)
    store = make_store(dataset, features).to(pick_device(device))
    check_memory(recipe, store)
    encoder = build_encoder(recipe, store).to(store.device)
    check_input(encoder, features)
    if calibrated:
        calibrate_by_recipe(encoder, store, recipe)
    weights = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    info = replace(run_info(dataset, features, store, store.device), pretrained=False)
    return TrainedEncoder(recipe, info, encoder.eval(), weights, ())


def run_info(dataset: Dataset | Shards, features: Features, store: Store, device: torch.device) -> RunInfo:
    """Describe data, features, versions and machine of a new run."""
    return RunInfo(
        data=dataset.name,
        fingerprint=dataset.fingerprint,
        num_graphs=len(dataset),
        pool=(),
        num_features=store.num_features,
        num_edge_features=store.num_edge_features,
        features=features,
        codes=FEATURISER if dataset.kind == "molecules" else 0,
        featuriser=dataset.featuriser,
        versions=versions(),
        machine=machine(device),
        command=command(),
    )


def set_weights(module: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"{folder}: the weights do not match the recipe ({one_line(error)}).") from error


def _check_size(run: Run, weights: Mapping[str, Tensor]) -> None:
    """Reject a recipe whose encoder is larger than the stored weights before allocating it: files are untrusted."""
    try:
        expected = count_weights(run.recipe, _example_store(run.info))
    except UserError as error:
        raise UserError(f"{run.folder}: recipe and run.json do not describe an encoder ({error})") from error
    actual = sum(each.numel() for each in weights.values())
    if expected > actual:
        raise UserError(
            f"{run.folder}: the weights do not match the recipe (expected {expected} numbers, got {actual})."
        )


def _example_store(info: RunInfo) -> GraphStore:
    """Make two graphs of one edge with as many columns as the run's data, which take no memory."""
    return GraphStore(
        x=torch.zeros(4, 1).expand(4, info.num_features),
        source=torch.tensor([1, 0, 1, 0]),
        target=torch.tensor([0, 1, 0, 1]),
        first_node=torch.tensor([0, 2, 4]),
        first_edge=torch.tensor([0, 2, 4]),
        edge_attr=torch.zeros(4, 1).expand(4, info.num_edge_features) if info.num_edge_features else None,
    )
