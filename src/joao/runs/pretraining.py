"""Keeping a training while it goes on, so that little is lost wherever it ends.

From recipe and data to a trained encoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from joao.config.builder import CustomParts, build_method, build_objective, build_pool, check_input
from joao.config.recipe import Recipe
from joao.core.errors import Interrupted, ProcessLost, UserError, WriteError, is_out_of_memory
from joao.core.files import lock_folder, make_folder
from joao.data.dataset import Dataset
from joao.data.features import Features
from joao.data.shards.shards import Shards
from joao.data.shards.store import open_store
from joao.objectives import NodeObjective
from joao.runs.folder import Run, RunInfo, check_new_folder
from joao.runs.logs import Logger, OnEpoch, check_loggers, find_logs, log_epochs
from joao.runs.trained import TrainedEncoder, load_run, run_info
from joao.training.checkpoint import capture_state, restore_state
from joao.training.device import limit_threads, make_fabric
from joao.training.distributed.group import ProcessGroup
from joao.training.distributed.launch import Send, run_in_processes
from joao.training.distributed.place import ProcessLayout, find_process_layout
from joao.training.model import calibrate_by_recipe
from joao.training.pretrain import EpochMetrics, Pretraining, check_multiprocess

ASKED_EVERY = 16  # steps; in several processes, whether it is time for a checkpoint takes a message


class Checkpointer:
    """Trains, and writes the run's epochs and checkpoints on the way; of several processes the first one does.

    Whoever interrupts or kills it loses what came after the last checkpoint. Where a training itself fails before its
    first one, nothing was gained, and no folder is left.

    Args:
        training: in any state.
        run: its folder; None writes nothing.
        every: epochs from one checkpoint to the next.
        minutes: after which there is one in any case, also inside an epoch.
        should_stop: asked after each step whether to keep the state and stop; in one process only.
    """

    def __init__(
        self, training: Pretraining, run: Run | None, *, every: int, minutes: float, should_stop: Callable[[], bool]
    ) -> None:
        self.training, self.run, self.every, self.minutes = training, run, every, minutes
        self.should_stop = should_stop
        self.kept_step = training.step
        self.kept_at = time.monotonic()

    def train(self) -> Iterator[EpochMetrics]:
        """Trains the epochs that are left, and says after each what it showed."""
        training = self.training
        try:
            self._stop_if_asked()
            for epoch in training.run(self._after_step):
                if self.run is not None:
                    self.run.append(epoch)
                    is_last = training.epoch == training.schedule.epochs
                    if not is_last and (training.epoch % self.every == 0 or self._is_time()):
                        self._keep()
                yield epoch
                self._stop_if_asked()
            training.check()
        except Exception as error:
            self._tell(error)
            raise

    def finish(self, weights: Mapping[str, Tensor]) -> None:
        """Writes the final weights."""
        try:
            if self.run is not None:
                self.run.finish(weights)
        except Exception as error:
            self._tell(error)
            raise

    def _after_step(self) -> None:
        ranks = self.training.ranks
        if ranks.size > 1:
            if self.training.step % ASKED_EVERY == 0 and ranks.broadcast(self._is_time()):
                self._keep()
            return
        if self._is_time():
            self._keep()
        self._stop_if_asked()

    def _is_time(self) -> bool:
        return self.run is not None and time.monotonic() - self.kept_at >= 60 * self.minutes

    def _keep(self) -> None:
        self.training.check()
        state = capture_state(self.training)
        if self.run is not None:
            self.run.write_checkpoint(state)
        self.kept_step, self.kept_at = self.training.step, time.monotonic()

    def _stop_if_asked(self) -> None:
        if not self.should_stop() or self.training.epoch == self.training.schedule.epochs:
            return
        if self.run is not None and self.kept_step < self.training.step:
            self._keep()
        raise Interrupted(f"interrupted after step {self.training.step}.{self._resume_hint()}")

    def _tell(self, error: Exception) -> None:
        """Raises what the reader of ``error`` needs to know beside it, if there is anything."""
        told = error
        if is_out_of_memory(error):
            size = self.training.schedule.batch_size
            told = UserError(
                f"training: out of memory in step {self.training.step + 1}, with batches of {size} graphs. Use smaller "
                f"ones (--set training.batch_size={max(2, size // 2)}) or a narrower encoder (--set encoder.width=...)."
            )
        if self.run is not None and not isinstance(error, Interrupted | ProcessLost):
            if self.kept_step == 0 and not isinstance(error, WriteError):
                self.run.discard()
            elif isinstance(told, UserError):
                told = type(told)(f"{told} The state after step {self.kept_step} is kept.{self._resume_hint()}")
        if told is not error:
            raise told from error

    def _resume_hint(self) -> str:
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
    own: CustomParts | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    on_epoch: OnEpoch = lambda metrics: None,
    loggers: Sequence[Logger | str] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedEncoder:
    """Pre-trains as ``recipe`` says on the graphs of ``dataset``; its classes are not looked at.

    Args:
        recipe: see :mod:`joao.config.recipe`.
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
            guard its own code by ``if __name__ == "__main__"``. See docs/scaling.md.
        num_nodes: machines, likewise.
        on_epoch: told what each epoch showed, in the first process.
        loggers: of Lightning Fabric, or ``tensorboard`` and ``csv`` for logs in ``folder``; told likewise. A resumed
            run goes on with those in its folder.
        should_stop: asked after every step whether to keep the state and to raise :class:`joao.core.errors.Interrupted`; of
            a training in one process.

    >>> import joao
    >>> from joao.config.recipe import make_recipe
    >>> graphs = joao.read("MUTAG")
    >>> trained = pretrain(make_recipe({"method": "joaov2", "training": {"epochs": 1}}), graphs, device="cpu")
    >>> trained.embed(graphs).shape
    torch.Size([188, 96])
    """
    if checkpoint_every < 1:
        raise UserError(f"checkpoint_every must be at least 1, got {checkpoint_every}.")
    if not checkpoint_minutes >= 0:
        raise UserError(f"checkpoint_minutes must be 0 or more, got {checkpoint_minutes}.")
    if resume and folder is None:
        raise UserError("resume needs the folder of the run to go on with.")
    check_loggers(loggers, folder)
    own = own or CustomParts()
    run = Run.open(folder) if folder is not None and resume else None
    if run is not None:
        loggers = list(dict.fromkeys([*loggers, *find_logs(run.folder)]))
        fast = run.info.fast if fast is None else fast
        _check_same(run, recipe, dataset, own, fast, precision)
    place = find_process_layout(devices, num_nodes, (run.info.devices, run.info.num_nodes) if run else (1, 1))
    if not place.started:
        check_multiprocess(build_objective(recipe, own), fast)
        options: dict[str, Any] = {"folder": folder, "resume": resume, "own": own, "device": device}
        options |= {"precision": precision, "fast": fast, "devices": place.devices, "num_nodes": place.num_nodes}
        options |= {"checkpoint_every": checkpoint_every, "checkpoint_minutes": checkpoint_minutes}
        pool = list(own.augmentations or build_pool(recipe))
        with log_epochs(on_epoch, loggers, pool, folder) as tell:
            return _in_own_processes(place, recipe, dataset, tell, options)
    fabric = make_fabric(device, precision, place)
    features = Features.from_dataset(dataset, recipe.features, recipe.max_degree)
    store = open_store(dataset, features)
    method = build_method(recipe, store, own)
    check_input(method.encoder, features, method.augmentations.values())
    if len(set(ProcessGroup(fabric.global_rank, fabric.world_size).all_gather(dataset.fingerprint))) > 1:
        raise UserError(f"{dataset.name}: the processes have read different graphs. Give all machines the same data.")
    training = Pretraining(store, method, recipe.training, fabric, fast)
    info = replace(
        run_info(dataset, features, store, fabric.device),
        pool=tuple(method.augmentations),
        precision=precision,
        fast=training.is_fast,
        devices=place.devices,
        num_nodes=place.num_nodes,
        own=own.described(),
    )
    with _written(folder, resume) if folder is not None and place.rank == 0 else nullcontext():
        metrics, run = _begun(training, folder if place.rank == 0 else None, resume, recipe, info)
        keeper = Checkpointer(
            training, run, every=checkpoint_every, minutes=checkpoint_minutes, should_stop=should_stop
        )
        with log_epochs(on_epoch, loggers, info.pool, folder) as tell:
            for epoch in keeper.train():
                metrics.append(epoch)
                if place.rank == 0:
                    tell(epoch)
        if isinstance(method.objective, NodeObjective):
            # It need not have seen whole graphs, nor how their nodes are put together.
            calibrate_by_recipe(method.encoder, training.store, recipe)
        weights = {f"encoder.{name}": value for name, value in method.encoder.state_dict().items()}
        weights |= {f"heads.{name}": value for name, value in method.heads.state_dict().items()}
        keeper.finish(weights)
    training.ranks.wait()
    method.encoder.eval()
    return TrainedEncoder(recipe, info, method.encoder, weights, metrics)


def _check_same(
    run: Run, recipe: Recipe, dataset: Dataset | Shards, own: CustomParts, fast: bool, precision: str
) -> None:
    """A run goes on as it was begun."""
    if (fast, precision) != (run.info.fast, run.info.precision):
        path = "fast" if run.info.fast else "plain"
        raise UserError(
            f"{run.folder}: was started on the {path} path in {run.info.precision}. Resume in the same way."
        )
    if run.info.fingerprint != dataset.fingerprint:
        raise UserError(
            f"{run.folder}: was started on other graphs than {dataset.name} has now. Bring those back, or start anew."
        )
    if run.recipe != recipe or dict(run.info.own) != own.described():
        raise UserError(f"{run.folder}: was started with another recipe or other parts. Resume with its own.")


@contextmanager
def _written(folder: Path, resume: bool) -> Iterator[None]:
    """Has the folder of a run for this process alone; a new one is made."""
    if not resume:
        check_new_folder(folder)
        make_folder(folder)
    with lock_folder(folder):
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
        return [], None if folder is None else Run.create(folder, recipe, info, capture_state(training))
    run = None if folder is None else Run.open(folder)
    restore_state(training, training.ranks.broadcast(None if run is None else run.read_checkpoint()))
    return training.ranks.broadcast(None if run is None else run.metrics(training.epoch)), run


def _in_own_processes(
    place: ProcessLayout, recipe: Recipe, dataset: Dataset | Shards, on_epoch: OnEpoch, options: Mapping[str, Any]
) -> TrainedEncoder:
    """:func:`pretrain` with ``options`` in new processes, of which this one tells."""
    with TemporaryDirectory() as folder:
        handed_over = Path(folder) / "run"
        for epoch in run_in_processes(_one_process, (recipe, dataset, options, handed_over), place):
            on_epoch(epoch)
        return load_run(handed_over, device=options["device"], encoder=options["own"].encoder)


def _one_process(
    send: Send, recipe: Recipe, dataset: Dataset | Shards, options: Mapping[str, Any], handed_over: Path
) -> None:
    trained = pretrain(recipe, dataset, on_epoch=send, **options)
    if find_process_layout(options["devices"], options["num_nodes"]).local_rank == 0:
        trained.save(handed_over)
