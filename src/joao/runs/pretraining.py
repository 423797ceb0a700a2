"""Pre-train an encoder from a recipe and graphs, and write checkpoints on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from joao.config.builder import CustomParts, build_method, build_objective, build_pool, check_input
from joao.config.recipe import Recipe
from joao.core.errors import Interrupted, ProcessLost, UserError, WriteError, is_out_of_memory, quantity
from joao.core.graphs import Store
from joao.core.registry import snake_case
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.data.shards.shards import Shards
from joao.encoders import Encoder
from joao.kernels.native import native_level
from joao.objectives import NodeObjective
from joao.runs.folder import Run, RunInfo, claim_folder, format_epoch, lock_run, parse_epoch
from joao.runs.logs import Logger, OnBatch, OnEpoch, check_loggers, find_logs, log_epochs
from joao.runs.trained import TrainedEncoder, load_run, run_info
from joao.training.checkpoint import capture_state, restore_state
from joao.training.device import limit_threads, make_fabric, pick_device
from joao.training.distributed.group import ProcessGroup
from joao.training.distributed.launch import ProcessLayout, Send, find_process_layout, run_in_processes
from joao.training.metrics import BatchMetrics, EpochMetrics
from joao.training.model import calibrate_by_recipe
from joao.training.pretrain import Pretraining, choose_negatives
from joao.training.targets import make_targets

if TYPE_CHECKING:
    from lightning_fabric import Fabric

REPORT_SECONDS = 1.0  # between two reports inside an epoch: each waits for the GPU to read the loss
CHECK_EVERY = 16  # steps between two checks whether a checkpoint is due, which several processes must agree on


class Checkpointer:
    """Train and write metrics and checkpoints of the run on the way, in the first of several processes.

    An interruption loses only what came after the last checkpoint. If a training fails before its first checkpoint,
    its folder is removed.

    Without a ``run`` it writes nothing, and ``interrupted`` is whether training stopped early. ``every`` and
    ``minutes`` are ``checkpoint_every`` and ``checkpoint_minutes`` of :func:`pretrain`, which also describes
    ``on_batch`` and ``should_stop``.
    """

    def __init__(
        self,
        training: Pretraining,
        run: Run | None,
        *,
        every: int,
        minutes: float,
        on_batch: OnBatch | None = None,
        should_stop: Callable[[], bool],
    ) -> None:
        self.training, self.run, self.every, self.minutes = training, run, every, minutes
        self.on_batch, self.should_stop, self.interrupted = on_batch, should_stop, False
        self.first_step = self.saved_step = self.reported_step = training.step
        self.started_at = self.saved_at = self.reported_at = time.monotonic()

    def train(self) -> Iterator[EpochMetrics]:
        """Train the remaining epochs and yield the metrics of each."""
        training = self.training
        try:
            self._stop_if_requested()
            for epoch in training.run(self._after_step):
                if self.run is not None:
                    self.run.append(epoch)
                    is_last = training.epoch == training.schedule.epochs
                    if not is_last and (training.epoch % self.every == 0 or self._is_due()):
                        self._save()
                yield epoch
                self._stop_if_requested()
            training.check()
        except Interrupted:
            if self.run is not None or not training.step:
                raise
            training.check()
            self.interrupted = True
            if (partial := training.interrupted_epoch()) is not None:
                yield partial
        except Exception as error:
            self._raise_with_advice(error)
            raise

    def finish(self, weights: Mapping[str, Tensor]) -> None:
        try:
            if self.run is not None:
                self.run.finish(weights)
        except Exception as error:
            self._raise_with_advice(error)
            raise

    def _after_step(self) -> None:
        if self.on_batch is not None and time.monotonic() - self.reported_at >= REPORT_SECONDS:
            self.on_batch(self._batch_metrics())
        group = self.training.group
        if group is not None:
            # All processes contribute to a checkpoint, so they must take it after the same step.
            if self.training.step % CHECK_EVERY == 0 and group.broadcast({"": torch.tensor(self._is_due())})[""]:
                self._save()
            return
        if self._is_due():
            self._save()
        self._stop_if_requested()

    def _batch_metrics(self) -> BatchMetrics:
        training, progress, now = self.training, self.training.progress, time.monotonic()
        assert progress is not None  # inside an epoch
        batches, size = len(training.sampler), training.schedule.batch_size
        per_second = (training.step - self.reported_step) / (now - self.reported_at)
        # The mean since the start includes the updates of the policy, which the last second may not.
        seconds_per_step = (now - self.started_at) / (training.step - self.first_step)
        steps_left = (training.schedule.epochs - training.epoch) * batches - progress.steps
        self.reported_step, self.reported_at = training.step, now
        loss = training.steps.loss_sum.item() * training.num_losses / min(progress.steps * size, len(training.store))
        return BatchMetrics(
            training.epoch + 1, progress.steps, batches, loss, per_second * size, seconds_per_step * steps_left
        )

    def _is_due(self) -> bool:
        return self.run is not None and time.monotonic() - self.saved_at >= 60 * self.minutes

    def _save(self) -> None:
        self.training.check()
        state = capture_state(self.training)  # by all processes
        if self.run is not None:
            self.run.write_checkpoint(state)
        self.saved_step, self.saved_at = self.training.step, time.monotonic()

    def _stop_if_requested(self) -> None:
        if not self.should_stop() or self.training.epoch == self.training.schedule.epochs:
            return
        if self.run is not None and self.saved_step < self.training.step:
            self._save()
        raise Interrupted(f"interrupted after step {self.training.step}.{self._how_to_resume()}")

    def _raise_with_advice(self, error: Exception) -> None:
        """Raise ``error`` with how to avoid it or how to resume; return if there is nothing to add."""
        advised = error
        if is_out_of_memory(error):
            size = self.training.schedule.batch_size
            advised = UserError(
                f"training: out of memory in step {self.training.step + 1}, with batches of {size} graphs. Use smaller "
                f"batches (--set training.batch_size={max(2, size // 2)}) or a narrower encoder "
                "(--set encoder.width=...)."
            )
        if self.run is not None and not isinstance(error, Interrupted | ProcessLost):
            if self.saved_step == 0 and not isinstance(error, WriteError):
                self.run.discard()
            elif isinstance(advised, UserError):
                advised = type(advised)(
                    f"{advised} The state after step {self.saved_step} is saved.{self._how_to_resume()}"
                )
        if advised is not error:
            raise advised from error

    def _how_to_resume(self) -> str:
        return "" if self.run is None else f" {self.run.resume_hint()}"


@limit_threads()
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
    custom: CustomParts | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    on_start: Callable[[], None] = lambda: None,
    on_epoch: OnEpoch = lambda metrics: None,
    on_batch: OnBatch | None = None,
    on_notice: Callable[[str], None] = lambda notice: None,
    loggers: Sequence[Logger | str] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedEncoder:
    """Pre-train on the graphs of ``dataset`` as ``recipe`` describes. Labels of graphs are not used.

    Args:
        recipe: see :mod:`joao.config.recipe`.
        dataset: the graphs; those in shards are never all in memory.
        folder: folder of the run to write; None writes nothing.
        resume: whether ``folder`` contains an unfinished run to resume.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.
        precision: ``32-true``, ``tf32``, ``bf16-mixed`` or ``16-mixed``; a resumed run needs its own.
        fast: whether to train in the compiled core (CPU) or on padded batches (GPU); None: if the parts support it, or
            as a resumed run does.
        checkpoint_every: epochs between checkpoints.
        checkpoint_minutes: maximum time between checkpoints, also inside an epoch.
        custom: objects that replace parts of the recipe.
        devices: processes per machine, one for each device; None: as torchrun started them, or as in the resumed run,
            or one. If neither torchrun nor SLURM has started several, they are started here, and a script must guard
            its code with ``if __name__ == "__main__"``. See docs/several-gpus.md.
        num_nodes: number of machines, in the same way.
        on_start: called in the first process when everything is checked and training begins.
        on_epoch: called with the metrics of each epoch, in the first process.
        on_batch: called about once per second inside an epoch, in the first process.
        on_notice: called before the first step with notices about what the encoder ignores, in the first process.
        loggers: loggers of Lightning Fabric, or ``tensorboard`` and ``csv`` for logs in ``folder``. A resumed run
            continues the logs in its folder.
        should_stop: called after every step of a training in one process. If it returns True and there is a
            ``folder``, the state is saved and :class:`joao.core.errors.Interrupted` is raised. Without a folder, the
            result is the encoder as it is; its recipe has the number of epochs that were started.

    >>> import joao
    >>> from joao.config.recipe import make_recipe
    >>> graphs = joao.read("MUTAG")
    >>> trained = pretrain(make_recipe({"method": "joaov2", "training": {"epochs": 1}}), graphs, device="cpu")
    >>> trained.embed(graphs).shape
    torch.Size([188, 303])
    """
    if checkpoint_every < 1:
        raise UserError(f"checkpoint_every must be at least 1, got {checkpoint_every}.")
    if not checkpoint_minutes >= 0:
        raise UserError(f"checkpoint_minutes must be 0 or more, got {checkpoint_minutes}.")
    if resume and folder is None:
        raise UserError("resume needs the folder of the run to resume.")
    if loggers:
        check_loggers(loggers, folder)
    custom = custom or CustomParts()
    run = Run.open(folder) if folder is not None and resume else None
    compiled: bool | None = None
    schedule = recipe.training
    if run is not None:
        loggers = list(dict.fromkeys([*loggers, *find_logs(run.folder)]))
        fast = run.info.fast if fast is None else fast
        compiled = bool(run.info.compiled)
        schedule = replace(schedule, negatives=run.info.negatives or "global")
        _check_same(run, recipe, dataset, custom, fast, precision)
    layout = _find_layout(run, devices, num_nodes)
    if recipe.targets and layout.world_size > 1:
        raise UserError("targets: are trained in a single process. Leave out devices and num_nodes, or --targets.")
    if not layout.is_worker:  # several processes are to be started by this one
        # Raises errors before any process is started.
        objective = build_objective(recipe, custom)
        choose_negatives(objective, schedule, len(dataset), pick_device(device), layout.world_size, fast)
        options: dict[str, Any] = {"folder": folder, "resume": resume, "custom": custom, "device": device}
        options |= {"precision": precision, "fast": fast, "devices": layout.devices, "num_nodes": layout.num_nodes}
        options |= {"checkpoint_every": checkpoint_every, "checkpoint_minutes": checkpoint_minutes}
        pool = list(custom.augmentations or build_pool(recipe))
        with log_epochs(on_epoch, loggers, pool, folder) as report:
            on_start()
            return _pretrain_in_workers(layout, recipe, dataset, report, on_batch, options)
    is_first = layout.rank == 0
    fabric = make_fabric(device, precision, layout)
    features = Features.from_dataset(dataset, recipe.features, recipe.max_degree)
    store = _make_store(dataset, features)
    method = build_method(recipe, store, custom)
    check_input(method.encoder, features, method.augmentations.values())
    if fabric.world_size > 1:
        _check_same_data(dataset, fabric)
    targets = make_targets(dataset, recipe.targets, on_notice) if recipe.targets else None
    training = Pretraining(store, method, schedule, fabric, fast, compiled, targets)
    info = replace(
        run_info(dataset, features, store, fabric.device),
        pool=tuple(method.augmentations),
        precision=precision,
        fast=training.is_fast,
        compiled=native_level() if training.is_compiled else "",
        devices=layout.devices,
        num_nodes=layout.num_nodes,
        negatives=training.negatives,
        own=custom.describe(),
    )
    lock = nullcontext() if folder is None or not is_first else lock_run(folder) if resume else claim_folder(folder)
    with lock:
        metrics, run = _start_run(training, folder if is_first else None, resume, recipe, info)
        checkpointer = Checkpointer(
            training,
            run,
            every=checkpoint_every,
            minutes=checkpoint_minutes,
            on_batch=on_batch if is_first else None,
            should_stop=should_stop,
        )
        if is_first:
            if notice := unused_edges_notice(method.encoder, dataset.name, store):
                on_notice(notice)
            on_start()
        with log_epochs(on_epoch, loggers, info.pool, folder) if loggers else nullcontext(on_epoch) as report:
            for epoch in checkpointer.train():
                metrics.append(epoch)
                if is_first:
                    report(epoch)
        if checkpointer.interrupted:
            recipe = replace(recipe, training=replace(recipe.training, epochs=len(metrics)))
            info = replace(info, partial=training.progress is not None)
        if isinstance(method.objective, NodeObjective):
            # A node-level objective may not have used whole graphs or the readout, so their statistics are missing.
            calibrate_by_recipe(method.encoder, training.store, recipe)
        weights = {f"encoder.{name}": value for name, value in method.encoder.state_dict().items()}
        weights |= {f"heads.{name}": value for name, value in method.heads.state_dict().items()}
        checkpointer.finish(weights)
    if training.group is not None:
        training.group.barrier()
    method.encoder.eval()
    return TrainedEncoder(recipe, info, method.encoder, weights, metrics)


def _find_layout(run: Run | None, devices: int | None, num_nodes: int | None) -> ProcessLayout:
    """The processes of a training; a resumed ``run`` has as many as before, unless others are requested."""
    before = (1, 1) if run is None else (run.info.devices, run.info.num_nodes)
    layout = find_process_layout(devices, num_nodes, before)
    if run is not None and run.info.negatives == "local" and layout.world_size != before[0] * before[1]:
        raise UserError(
            f"{run.folder}: was started in {before[0] * before[1]} processes with local negatives, and "
            f"{layout.world_size} were requested. Resume with --devices {before[0]} --num-nodes {before[1]}."
        )
    return layout


def unused_edges_notice(encoder: Encoder, name: str, store: Store) -> str:
    """Say that ``encoder`` ignores the edge attributes of the data set ``name``; empty if it does not."""
    if encoder.uses_edge_attr or not store.num_edge_features:
        return ""
    columns = quantity(store.num_edge_features, "columns")
    return (
        f"{name}: the encoder {snake_case(type(encoder).__name__)} ignores the edge attributes ({columns}). "
        "The encoder gine uses them: encoder='gine', or --set encoder=gine."
    )


def _make_store(dataset: Dataset | Shards, features: Features) -> Store:
    if isinstance(dataset, Dataset):
        return make_store(dataset, features)
    from joao.data.shards.store import ShardStore

    return ShardStore(dataset, features)


def _check_same_data(dataset: Dataset | Shards, fabric: Fabric) -> None:
    group = ProcessGroup(fabric.global_rank, fabric.world_size)
    fingerprints = group.all_gather({"fingerprint": _to_tensor(dataset.fingerprint)})
    if len({bytes(each["fingerprint"].tolist()) for each in fingerprints}) > 1:
        raise UserError(f"{dataset.name}: the processes have read different graphs. Use the same data on all machines.")


def _check_same(
    run: Run, recipe: Recipe, dataset: Dataset | Shards, custom: CustomParts, fast: bool, precision: str
) -> None:
    """Raise a :class:`UserError` if a run would be resumed with other settings or data than it was started with."""
    if (fast, precision) != (run.info.fast, run.info.precision):
        path = "fast" if run.info.fast else "plain"
        raise UserError(
            f"{run.folder}: was started on the {path} path in {run.info.precision}. Resume with the same settings."
        )
    if run.info.fingerprint != dataset.fingerprint:
        raise UserError(
            f"{run.folder}: was started on other graphs than {dataset.name} has now. Restore them or start a new run."
        )
    if run.recipe != recipe or dict(run.info.own) != custom.describe():
        raise UserError(f"{run.folder}: was started with another recipe or other parts. Resume with the same ones.")


def _start_run(
    training: Pretraining, folder: Path | None, resume: bool, recipe: Recipe, info: RunInfo
) -> tuple[list[EpochMetrics], Run | None]:
    """Create or resume the run in ``folder``, and return its metrics so far; ``folder`` is None in other processes."""
    if not resume:
        return [], None if folder is None else Run.create(folder, recipe, info, capture_state(training), claimed=True)
    run = None if folder is None else Run.open(folder)
    state: dict[str, Tensor] = {}
    if run is not None:
        state = run.read_checkpoint()
        epochs = run.metrics(int(state["position"][0]))
        state["metrics"] = _to_tensor("".join(map(format_epoch, epochs)))
    if training.group is not None:
        state = training.group.broadcast(state)
    lines = bytes(state.pop("metrics").tolist()).decode().splitlines()
    restore_state(training, state)
    return [parse_epoch(line, len(info.pool), info.num_graphs) for line in lines], run


def _to_tensor(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _pretrain_in_workers(
    layout: ProcessLayout,
    recipe: Recipe,
    dataset: Dataset | Shards,
    on_epoch: OnEpoch,
    on_batch: OnBatch | None,
    options: Mapping[str, Any],
) -> TrainedEncoder:
    """Run :func:`pretrain` with ``options`` in new processes, and report their progress in this one."""
    with TemporaryDirectory() as folder:
        result = Path(folder) / "run"
        for metrics in run_in_processes(_pretrain_worker, (recipe, dataset, options, result), layout):
            if isinstance(metrics, EpochMetrics):
                on_epoch(metrics)
            elif on_batch is not None:
                on_batch(metrics)
        return load_run(result, device=options["device"], encoder=options["custom"].encoder)


def _pretrain_worker(
    send: Send, recipe: Recipe, dataset: Dataset | Shards, options: Mapping[str, Any], result: Path
) -> None:
    trained = pretrain(recipe, dataset, on_epoch=send, on_batch=send, **options)
    if find_process_layout(options["devices"], options["num_nodes"]).local_rank == 0:
        trained.save(result)
