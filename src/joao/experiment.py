"""From recipe and data to a trained encoder: the only place that builds objects from names."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from joao.augmentations import AUGMENTATIONS, AttributeMask, Augmentation
from joao.data.base import Dataset
from joao.data.features import CODES, Features, make_store
from joao.data.molecules import FEATURISER
from joao.data.shard_store import store_of
from joao.data.shards import Shards
from joao.encoders import ENCODERS, Encoder
from joao.encoders.module import ModuleEncoder
from joao.epoch_logs import Logger, OnEpoch, check_loggers, logs_of, telling
from joao.errors import UserError
from joao.files import held, make_folder, write_json
from joao.graphs import GraphStore, Store
from joao.heads import HEADS
from joao.keeping import Keeper
from joao.objectives import OBJECTIVES, NodeObjective, Objective, PairObjective
from joao.pair_table import PairTable
from joao.policies import POLICIES
from joao.provenance import command, machine, versions
from joao.randomness import seeded, torch_generator
from joao.recipe import Recipe, pool_name
from joao.run import Run, RunInfo, check_new_folder
from joao.training.checkpoint import restore, state_of
from joao.training.device import make_fabric, pick_device, steady_threads
from joao.training.launch import Send, in_processes
from joao.training.model import calibrate, embed
from joao.training.place import Place, find_place
from joao.training.pretrain import EpochMetrics, Method, Pretraining, check_several
from joao.training.ranks import Ranks


@dataclass(frozen=True)
class OwnParts:
    """A user's own objects, which take the place of the recipe's parts of that kind."""

    augmentations: Mapping[str, Augmentation] | None = None
    encoder: nn.Module | None = None
    objective: Objective | None = None

    def described(self) -> dict[str, str]:
        """What takes the place of the recipe's parts, in words; addresses in memory are no part of them."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(own)) for name, own in given.items() if own is not None}


@dataclass(frozen=True, eq=False)
class Trained:
    """A pre-trained encoder with what is needed to use it, and to know how it came about."""

    recipe: Recipe
    info: RunInfo
    encoder: Encoder
    weights: Mapping[str, Tensor] = field(repr=False)
    metrics: Sequence[EpochMetrics] = field(repr=False)

    @property
    def policy(self) -> PairTable:
        """The probabilities of augmentation pairs at the end."""
        return PairTable.of(self.info.pool, self._epochs()[-1].probabilities)

    @property
    def counts(self) -> NDArray[np.int64]:
        """``(K, K)`` how many graphs were shown under each pair in the whole training, first epoch included."""
        counts: NDArray[np.int64] = np.sum([epoch.drawn for epoch in self._epochs()], axis=0)
        return counts

    @property
    def drawn(self) -> PairTable:
        """The share of graphs shown under each pair over the whole training (the paper's Figure 3)."""
        return PairTable.of(self.info.pool, self.counts / self.counts.sum())

    def _epochs(self) -> Sequence[EpochMetrics]:
        if not self.metrics:
            raise UserError("the encoder was not pre-trained, so no augmentations were drawn or chosen.")
        return self.metrics

    def store(self, dataset: Dataset) -> GraphStore:
        """Any graphs with the same kind of features, as the encoder takes them."""
        store = make_store(dataset, self.info.features)
        if store.edge_attr is None and not len(store.source) and self.info.num_edge_features:
            store = replace(store, edge_attr=torch.zeros(0, self.info.num_edge_features))
        num_edge_features = _widths(store)[1]
        if self.encoder.uses_edge_attr and num_edge_features != self.info.num_edge_features:
            raise UserError(
                f"{dataset.name}: {num_edge_features} columns of edge attributes; the encoder was trained with "
                f"{self.info.num_edge_features}."
            )
        return store

    @steady_threads()
    def embed(self, dataset: Dataset | Shards) -> Tensor:
        """``(G, d)`` embeddings of any graphs with the same kind of features; shards are read one after the other."""
        if isinstance(dataset, Shards):
            return torch.cat([self.embed(piece) for piece in dataset.pieces()])
        store = self.store(dataset)
        device = next((value.device for value in self.encoder.state_dict().values()), torch.device("cpu"))
        embeddings = embed(self.encoder, store.to(device))
        if not bool(embeddings.isfinite().all()):
            bad = int((~embeddings.isfinite().all(dim=1)).nonzero()[0])
            raise UserError(f"{dataset.name}: the embedding of graph {bad} is not finite. The weights are damaged.")
        return embeddings

    def save(self, folder: Path, beside: Mapping[str, Any] | None = None) -> Run:
        """Writes a run folder, with further values ``beside`` as JSON, by the names of their files."""
        run = Run.create(folder, self.recipe, self.info)
        for metrics in self.metrics:
            run.append(metrics)
        for name, value in (beside or {}).items():
            write_json(folder / name, value)
        return run.finish(self.weights)


def build_method(recipe: Recipe, store: Store, own: OwnParts | None = None) -> Method:
    """The objects a recipe names, with weights from its seed."""
    own = own or OwnParts()
    pool = own.augmentations or build_pool(recipe)
    objective = _objective(recipe, own)
    if isinstance(objective, PairObjective) and recipe.heads.name == "no_head" and set(pool) == {"identity"}:
        raise UserError(
            f"{type(objective).__name__}: compares two views, and the method shows graphs as they are. "
            "Take a method with augmentations, such as joao, or name augmentations."
        )
    with seeded(recipe.training.seed, "weights"):
        encoder = _new_encoder(recipe, store, own.encoder)
        heads = HEADS[recipe.heads.name](encoder.num_dimensions, len(pool), **recipe.heads.options)
    return Method(
        augmentations=pool,
        encoder=encoder,
        heads=heads,
        objective=objective,
        policy=POLICIES[recipe.policy.name](list(pool), **recipe.policy.options),
    )


def build_pool(recipe: Recipe) -> dict[str, Augmentation]:
    """The augmentations that a recipe names, as tables call them."""
    return {
        pool_name(part, recipe.augmentations): AUGMENTATIONS[part.name](**part.options) for part in recipe.augmentations
    }


def _objective(recipe: Recipe, own: OwnParts | None) -> Objective:
    if own is not None and own.objective is not None:
        return own.objective
    return OBJECTIVES[recipe.objective.name](**recipe.objective.options)


def build_encoder(recipe: Recipe, store: Store, own: nn.Module | None = None) -> Encoder:
    """The encoder of :func:`build_method`, with the same weights, alone."""
    with seeded(recipe.training.seed, "weights"):
        return _new_encoder(recipe, store, own)


def _new_encoder(recipe: Recipe, store: Store, own: nn.Module | None) -> Encoder:
    if own is None:
        kind: Any = ENCODERS[recipe.encoder.name]
        encoder: Encoder = kind(*_widths(store), **recipe.encoder.options)
        return encoder
    own = copy.deepcopy(own)
    if isinstance(own, Encoder):
        return own
    example = store.batch(torch.arange(min(len(store), 4)))
    return ModuleEncoder(own, example)


def _check_input(encoder: Encoder, features: Features, pool: Iterable[Augmentation] = ()) -> None:
    """Refuses an encoder or a mask that takes numbers of categories for measurements, or the reverse."""
    of_codes = features.rule in CODES
    if encoder.codes != (features.rule if of_codes else None):
        wanted = f"other features than '{features.rule}'"
        if encoder.codes is not None:
            wanted = f"features = '{encoder.codes}', which {CODES[encoder.codes]} have"
        cure = "features = 'labels'" if of_codes and encoder.codes is None else "encoder gin"
        raise UserError(f"the encoder {type(encoder).__name__} needs {wanted}; got '{features.rule}'. Use {cure}.")
    for each in pool:
        if isinstance(each, AttributeMask) and (each.fill == "token") != of_codes:
            wanted = "'token'" if of_codes else "'noise' or 'mean'"
            raise UserError(f"AttributeMask: with features '{features.rule}' fill must be {wanted}, got '{each.fill}'.")


def _widths(store: Store) -> tuple[int, int]:
    return store.num_features, store.num_edge_features


@steady_threads()
def pretrain(
    recipe: Recipe,
    dataset: Dataset | Shards,
    *,
    folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: str = "32-true",
    fast: bool | None = None,
    checkpoint_every: int = 5,
    checkpoint_minutes: float = 10,
    own: OwnParts | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    on_epoch: OnEpoch = lambda metrics: None,
    loggers: Sequence[Logger | str] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Pre-trains as ``recipe`` says on the graphs of ``dataset``; its classes are not looked at.

    Args:
        recipe: see :mod:`joao.recipe`.
        dataset: the graphs; those in shards are never all in memory.
        folder: of the run to write; None writes nothing.
        resume: whether ``folder`` is an unfinished run to go on with.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        precision: ``32-true``, ``tf32``, ``bf16-mixed`` or ``16-mixed``; of a resumed run, its own.
        fast: whether to train on padded batches; None: on a GPU, where the parts allow it, or as a resumed run does.
        checkpoint_every: epochs from one checkpoint to the next.
        checkpoint_minutes: after which there is one in any case, also inside an epoch.
        own: objects that replace parts of the recipe.
        devices: processes on each machine, one for each device; None is as torchrun says, or as a resumed run has it,
            or one. Where neither torchrun nor SLURM has started several, they are started here, and a script must
            guard its own code by ``if __name__ == "__main__"``. See docs/scale.md.
        num_nodes: machines, likewise.
        on_epoch: told what each epoch showed, in the first process.
        loggers: of Lightning Fabric, or ``tensorboard`` and ``csv`` for logs in ``folder``; told likewise. A resumed
            run goes on with those in its folder.
        should_stop: asked after every step whether to keep the state and to raise :class:`joao.errors.Interrupted`; of
            a training in one process.
    """
    if checkpoint_every < 1:
        raise UserError(f"checkpoint_every must be at least 1, got {checkpoint_every}.")
    if not checkpoint_minutes >= 0:
        raise UserError(f"checkpoint_minutes must be 0 or more, got {checkpoint_minutes}.")
    if resume and folder is None:
        raise UserError("resume needs the folder of the run to go on with.")
    check_loggers(loggers, folder)
    run = Run.open(folder) if folder is not None and resume else None
    if run is not None:
        loggers = list(dict.fromkeys([*loggers, *logs_of(run.folder)]))
        fast = run.info.fast if fast is None else fast
        if (fast, precision) != (run.info.fast, run.info.precision):
            path = "fast" if run.info.fast else "plain"
            raise UserError(
                f"{folder}: was started on the {path} path in {run.info.precision}. Resume in the same way."
            )
    place = find_place(devices, num_nodes, (run.info.devices, run.info.num_nodes) if run else (1, 1))
    if not place.started:
        check_several(_objective(recipe, own), fast)
        options = {"resume": resume, "device": device, "precision": precision, "fast": fast}
        options |= {"checkpoint_every": checkpoint_every, "checkpoint_minutes": checkpoint_minutes}
        pool = list((own or OwnParts()).augmentations or build_pool(recipe))
        with telling(on_epoch, loggers, pool, folder) as tell:
            return _in_own_processes(place, recipe, dataset, folder, own, tell, options)
    fabric = make_fabric(device, precision, place)
    features = Features.fixed_on(dataset, recipe.features, recipe.max_degree)
    store = store_of(dataset, features)
    method = build_method(recipe, store, own)
    _check_input(method.encoder, features, method.augmentations.values())
    if len(set(Ranks(fabric.global_rank, fabric.world_size).everybody(dataset.fingerprint))) > 1:
        raise UserError(f"{dataset.name}: the processes have read different graphs. Give all machines the same data.")
    training = Pretraining(store, method, recipe.training, fabric, fast)
    if run is not None:
        if run.info.fingerprint != dataset.fingerprint:
            raise UserError(
                f"{folder}: was started on other graphs than {dataset.name} has now. Bring those back, or start anew."
            )
        if run.recipe != recipe or dict(run.info.own) != (own or OwnParts()).described():
            raise UserError(f"{folder}: was started with another recipe or other parts. Resume with its own.")
    info = replace(
        _info(dataset, features, store, fabric.device),
        pool=tuple(method.augmentations),
        precision=precision,
        fast=training.is_fast,
        devices=place.devices,
        num_nodes=place.num_nodes,
        own=(own or OwnParts()).described(),
    )
    with _written(folder, resume) if folder is not None and place.rank == 0 else nullcontext():
        metrics, run = _begun(training, folder if place.rank == 0 else None, resume, recipe, info)
        keeper = Keeper(training, run, every=checkpoint_every, minutes=checkpoint_minutes, should_stop=should_stop)
        with telling(on_epoch, loggers, info.pool, folder) as tell:
            for epoch in keeper.train():
                metrics.append(epoch)
                if place.rank == 0:
                    tell(epoch)
        if isinstance(method.objective, NodeObjective):
            # It need not have seen whole graphs, nor how their nodes are put together.
            _calibrate(method.encoder, training.store, recipe)
        weights = {f"encoder.{name}": value for name, value in method.encoder.state_dict().items()}
        weights |= {f"heads.{name}": value for name, value in method.heads.state_dict().items()}
        keeper.finish(weights)
    training.ranks.wait()
    method.encoder.eval()
    return Trained(recipe, info, method.encoder, weights, metrics)


@contextmanager
def _written(folder: Path, resume: bool) -> Iterator[None]:
    """Has the folder of a run for this process alone; a new one is made."""
    if not resume:
        check_new_folder(folder)
        make_folder(folder)
    with held(folder):
        try:
            yield
        except BaseException:
            if not resume:
                with suppress(OSError):  # there is something in it, which is kept
                    folder.rmdir()
            raise


def _begun(
    training: Pretraining, folder: Path | None, resume: bool, recipe: Recipe, info: RunInfo
) -> tuple[list[EpochMetrics], Run | None]:
    """The run in ``folder``, new or resumed, and the epochs it has behind it; in other processes, these alone."""
    if not resume:
        return [], None if folder is None else Run.create(folder, recipe, info, state_of(training))
    run = None if folder is None else Run.open(folder)
    restore(training, training.ranks.hand_out(None if run is None else run.read_checkpoint()))
    return training.ranks.hand_out(None if run is None else run.metrics(training.epoch)), run


def _in_own_processes(
    place: Place,
    recipe: Recipe,
    dataset: Dataset | Shards,
    folder: Path | None,
    own: OwnParts | None,
    on_epoch: OnEpoch,
    options: Mapping[str, Any],
) -> Trained:
    """:func:`pretrain` in new processes, of which this one tells."""
    with TemporaryDirectory() as handed_over:
        further = {"folder": folder, "own": own, "devices": place.devices, "num_nodes": place.num_nodes, **options}
        arguments = recipe, dataset, further, Path(handed_over) / "run"
        for epoch in in_processes(_one_process, arguments, place):
            on_epoch(epoch)
        return load_run(arguments[-1], device=options["device"], own=own)


def _one_process(
    send: Send, recipe: Recipe, dataset: Dataset | Shards, further: Mapping[str, Any], handed_over: Path
) -> None:
    trained = pretrain(recipe, dataset, on_epoch=send, **further)
    if find_place(further["devices"], further["num_nodes"]).local_rank == 0:
        trained.save(handed_over)


def load_run(folder: Path, *, device: str = "auto", own: OwnParts | None = None) -> Trained:
    """A finished run, from its folder or the file it was exported to, ready to embed graphs."""
    run = Run.open(folder)
    weights = run.weights()
    if "encoder" in run.info.own and (own is None or own.encoder is None):
        raise UserError(
            f"{folder}: was trained with its owner's encoder. Load it in Python: JOAO.load(folder, encoder=...), or "
            "JOAOClassifier.load likewise."
        )
    if own is None or own.encoder is None:
        _check_size(run, weights)
    encoder = build_encoder(run.recipe, _example_store(run.info), own.encoder if own else None)
    encoder_weights = {
        name.removeprefix("encoder."): value for name, value in weights.items() if name.startswith("encoder.")
    }
    set_weights(encoder, encoder_weights, folder)
    encoder.to(pick_device(device)).eval()
    return Trained(run.recipe, run.info, encoder, weights, run.metrics())


@steady_threads()
def untrained(
    recipe: Recipe, dataset: Dataset, features: Features, *, calibrated: bool = True, device: str = "auto"
) -> Tensor:
    """Embeddings by the recipe's encoder with its initial weights.

    Its normalisation is calibrated on the graphs, in one pass without labels, or left as initialised.
    """
    store = make_store(dataset, features)
    encoder = build_encoder(recipe, store)
    _check_input(encoder, features)
    store, encoder = store.to(pick_device(device)), encoder.to(pick_device(device))
    if calibrated:
        _calibrate(encoder, store, recipe)
    return embed(encoder, store)


@steady_threads()
def initial(recipe: Recipe, dataset: Dataset, features: Features | None = None, *, device: str = "auto") -> Trained:
    """The recipe's encoder with its initial weights, as if it were trained: where fine-tuning from scratch begins.

    Its normalisation is calibrated on the graphs, in one pass without labels.

    Args:
        recipe: of the encoder and, where ``features`` are not given, of them.
        dataset: the graphs.
        features: how ``x`` is made.
        device: ``auto``, ``cpu`` or ``cuda``.
    """
    features = features or Features.fixed_on(dataset, recipe.features, recipe.max_degree)
    store = make_store(dataset, features).to(pick_device(device))
    encoder = build_encoder(recipe, store).to(store.device)
    _check_input(encoder, features)
    _calibrate(encoder, store, recipe)
    weights = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    info = replace(_info(dataset, features, store, store.device), pretrained=False)
    return Trained(recipe, info, encoder.eval(), weights, ())


def set_weights(module: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Gives ``module`` the weights found in ``folder``, which must fit it."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise UserError(f"{folder}: its weights do not fit its recipe ({line[:200]}).") from error


def _check_size(run: Run, weights: Mapping[str, Tensor]) -> None:
    """Refuses a run whose encoder is larger than its weights, before memory is taken: files come from anywhere."""
    try:
        with torch.device("meta"):
            encoder = build_encoder(run.recipe, _example_store(run.info))
    except UserError:
        return  # some convolutions cannot be tried out without numbers; other reasons come up again
    except (RuntimeError, TypeError, ValueError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{run.folder}: its recipe and run.json describe no encoder ({line[:200]}).") from error
    wanted, found = (sum(each.numel() for each in tensors.values()) for tensors in (encoder.state_dict(), weights))
    if wanted > found:
        raise UserError(f"{run.folder}: its weights do not fit its recipe ({found} numbers, {wanted} are needed).")


def _calibrate(encoder: Encoder, store: Store, recipe: Recipe) -> None:
    calibrate(encoder, store, recipe.training.batch_size, torch_generator(recipe.training.seed, "calibration"))


def _info(dataset: Dataset | Shards, features: Features, store: Store, device: torch.device) -> RunInfo:
    return RunInfo(
        data=dataset.name,
        fingerprint=dataset.fingerprint,
        num_graphs=len(dataset),
        pool=(),
        num_features=store.num_features,
        num_edge_features=_widths(store)[1],
        features=features,
        codes=FEATURISER if dataset.kind == "molecules" else 0,
        featuriser=dataset.featuriser,
        versions=versions(),
        machine=machine(device),
        command=command(),
    )


def _example_store(info: RunInfo) -> GraphStore:
    """Two graphs of one edge, with as many columns as the run's data."""
    return GraphStore(
        x=torch.zeros(4, info.num_features),
        source=torch.tensor([1, 0, 1, 0]),
        target=torch.tensor([0, 1, 0, 1]),
        first_node=torch.tensor([0, 2, 4]),
        first_edge=torch.tensor([0, 2, 4]),
        edge_attr=torch.zeros(4, info.num_edge_features) if info.num_edge_features else None,
    )
