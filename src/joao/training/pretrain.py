"""Algorithm 1: encoder and heads descend the loss, the policy ascends it, in turn.

On one device it runs the steps of :mod:`joao.training.steps`. Training on padded batches (``joao.training.fast``) and
in several processes (``joao.training.distributed``) replaces them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from joao.config.builder import Method
from joao.config.recipe import Schedule
from joao.core.errors import UserError
from joao.core.graphs import Store
from joao.core.randomness import derive_seed, set_global_rng_state, temporary_seed, torch_generator
from joao.encoders import ENCODERS, Encoder, NodeEncoder
from joao.objectives import MomentumObjective, NodeObjective, Objective, PairObjective
from joao.policies import POLICIES
from joao.training.device import make_fabric, matmul_precision
from joao.training.distributed.group import DistributedSteps, GradientExchange, ProcessGroup, synced_batch_norms
from joao.training.fast.batches import choose_fast_path
from joao.training.fast.compiled import CompiledSteps, find_compiled_obstacle
from joao.training.fast.steps import PaddedSteps, find_fast_obstacle
from joao.training.metrics import EpochMetrics
from joao.training.model import BatchSampler, ContrastiveModel, MomentumModel, NodeModel
from joao.training.steps import NodeSteps, PairSteps, Steps
from joao.training.targets import MoleculeTargets, TargetModel

if TYPE_CHECKING:
    from lightning_fabric import Fabric


VIEWS = ("views", "evaluation views")  # purposes of the generators that draw on the device
# In an epoch of fewer than ten batches, a tenth is less than a batch. The pair losses are then measured on a tenth of
# the graphs, but at least this number, or on one batch if that is smaller (deviation 5).
LEAST_MEASURED = 512


@dataclass
class EpochProgress:
    """Progress inside an epoch, with what is needed to resume there.

    Attributes:
        batches_state: state of the generator of batches at the start of the epoch.
        drawn: as in :class:`EpochMetrics`.
        started: start time on the clock of this process.
        steps: number of training steps taken.
        global_rng_state: states of torch's global generators of a resumed epoch; see :mod:`joao.core.randomness`.
    """

    batches_state: Tensor
    drawn: Tensor
    started: float
    steps: int = 0
    global_rng_state: Sequence[Tensor] = ()


def choose_negatives(
    objective: Objective, schedule: Schedule, num_graphs: int, device: torch.device, size: int, fast: bool | None
) -> str:
    """Return the negatives, local or global, of a training in ``size`` processes.

    Raises:
        UserError: if it is not possible in several processes.
    """
    if isinstance(objective, NodeObjective):
        name = type(objective).__name__
        raise UserError(f"{name}: node-level objectives train in a single process. Leave out devices and num_nodes.")
    negatives = schedule.negatives
    if negatives == "auto":
        negatives = "local" if device.type == "cuda" else "global"
    if negatives == "global" and fast:
        raise UserError(
            "training: with global negatives, the fast path needs a single process. Leave out fast, or use "
            "--set training.negatives=local."
        )
    if negatives == "local" and min(schedule.batch_size, num_graphs) < 2 * size:
        raise UserError(
            f"training: local negatives need two graphs of every batch in each of {size} processes, got {num_graphs} "
            f"graphs in batches of {schedule.batch_size}. Use larger batches, fewer processes or "
            "--set training.negatives=global."
        )
    return negatives


class Pretraining:
    """A pre-training that can be run, checkpointed and resumed.

    Args:
        store: the graphs, in memory on any device, or in shards; batches are moved to the device of ``fabric``.
        method: its encoder, heads and policy are changed in place.
        schedule: see :class:`Schedule`.
        fabric: Lightning's device, precision and processes. With several processes each trains on its shard of every
            batch, and all have the same weights and policy (docs/several-gpus.md).
        fast: whether to train in the compiled core (:mod:`joao.training.fast.compiled`) on a CPU, and on padded batches
            (:mod:`joao.training.fast.steps`) on a GPU, or on a CPU without the core; None: if possible, but never on
            padded batches on a CPU.
        compiled: False never uses the compiled core, and True requires it: to resume a run as it was started.
        targets: predicted in addition to the contrastive loss or instead of it; only in one process, and not in the
            compiled core.

    Attributes:
        is_fast: whether it trains in the compiled core or on padded batches.
        is_compiled: whether it trains in the compiled core.
        group: the processes; None if there is one.
        negatives: ``local`` or ``global`` in several processes.
        num_losses: number of losses that are averaged: that of the processes with local negatives, else 1.
    """

    group: ProcessGroup | None = None
    negatives = ""
    num_losses = 1

    def __init__(
        self,
        store: Store,
        method: Method,
        schedule: Schedule,
        fabric: Fabric | None = None,
        fast: bool | None = None,
        compiled: bool | None = None,
        targets: MoleculeTargets | None = None,
    ) -> None:
        if len(store) < 2:
            raise UserError("pre-training compares graphs with each other: it needs at least two graphs, got one.")
        self.fabric = fabric or make_fabric("cpu", "32-true")
        device, on_gpu = self.fabric.device, self.fabric.device.type == "cuda"
        self.store, self.method, self.schedule = store.to(device), method, schedule
        self.targets = None if targets is None else targets.to(device)
        self.pool = list(method.augmentations.values())
        if fast not in (None, True, False):
            raise UserError(f"training: fast must be True, False or None, got {fast!r}.")
        if self.fabric.world_size > 1:
            size = self.fabric.world_size
            self.group = ProcessGroup(self.fabric.global_rank, size)
            self.negatives = choose_negatives(method.objective, schedule, len(store), device, size, fast)
            if self.negatives == "local":
                self.num_losses = size
            else:
                fast = False
        # Each loss needs two graphs.
        self.sampler = BatchSampler(len(store), schedule.batch_size, store.block, least=2 * self.num_losses)
        parts = method, self.pool, schedule.pair_per, self.fabric
        obstacle = find_compiled_obstacle(self.store, *parts)
        if targets is not None or schedule.decay != "none":
            obstacle = "it has neither targets nor a decaying learning rate"
        if compiled and obstacle:
            raise UserError(f"training: needs the compiled core, but {obstacle}. Start a new run on the plain path.")
        self.is_fast = self.is_compiled = fast is not False and compiled is not False and not obstacle
        if not self.is_compiled and (fast or (fast is None and on_gpu)):
            self.is_fast = choose_fast_path("training", fast, find_fast_obstacle(*parts, targets))
        model = self._make_model()
        if targets is not None:
            with temporary_seed(schedule.seed, "targets"):
                model = TargetModel(model, method.encoder, sum(targets.sizes.values()))
        captures = on_gpu and self.is_fast
        rate: float | Tensor = schedule.learning_rate
        if captures and schedule.decay != "none":
            rate = torch.tensor(rate, device=device)  # a replay of a captured step reads its present value
        optimiser = torch.optim.Adam(model.parameters(), lr=rate, fused=True, capturable=captures)
        self.model, self.optimiser = self.fabric.setup(model, optimiser)
        if self.group is not None:
            self.group.broadcast_model(self.model)
        self.generators = {
            purpose: torch_generator(schedule.seed, purpose, device if purpose.endswith("views") else "cpu")
            for purpose in ("batches", "pairs", "evaluation batches", *VIEWS)
        }
        self.epoch = self.step = 0
        self.progress: EpochProgress | None = None
        self.last_pair_losses: Tensor | None = None
        self.steps = self._make_steps(optimiser)

    def _make_model(self) -> nn.Module:
        encoder, objective, policy = self.method.encoder, self.method.objective, self.method.policy
        if isinstance(objective, MomentumObjective):
            with temporary_seed(self.schedule.seed, "parts"):
                return MomentumModel(encoder, self.method.heads, objective.predictor(encoder.num_dimensions))
        if isinstance(objective, PairObjective):
            return ContrastiveModel(encoder, self.method.heads)
        name = type(objective).__name__
        if not isinstance(objective, NodeObjective):
            raise UserError(f"{name}: an objective must be a PairObjective or a NodeObjective of joao.objectives.")
        if not isinstance(encoder, NodeEncoder):
            custom = getattr(encoder, "module", encoder)  # the user's module inside ModuleEncoder
            raise UserError(
                f"{name}: the encoder {type(custom).__name__} does not return node embeddings. Use one of: "
                f"{_encoder_names(lambda kind: issubclass(kind, NodeEncoder))}."
            )
        if objective.needs_atoms and not encoder.takes_atoms:
            suitable = _encoder_names(lambda kind: kind.takes_atoms)
            raise UserError(f"{name}: masks atoms, so it needs molecules and one of the encoders: {suitable}.")
        if objective.needs_diffusion and not encoder.can_diffuse:
            raise UserError(
                f"{name}: the encoder {type(encoder).__name__} does not support diffusion. Use one of: "
                f"{_encoder_names(lambda kind: getattr(kind, 'can_diffuse', False))}; for molecules with "
                "features = 'labels'."
            )
        if policy.learns:
            fixed = ", ".join(each for each, kind in POLICIES.items() if not kind.learns)
            raise UserError(f"{name}: does not compare views, so a policy cannot learn. Use one of: {fixed}.")
        with temporary_seed(self.schedule.seed, "parts"):
            return NodeModel(encoder, objective)

    def _make_steps(self, optimiser: torch.optim.Optimizer) -> Steps:
        objective = self.method.objective
        exchange = None
        if self.group is not None:
            # Global batch normalisation has the same statistics in all processes.
            statistics = self.model.buffers() if self.negatives == "local" else ()
            exchange = GradientExchange(self.group, self.model.parameters(), statistics)
        shared = self.store, self.pool, objective, self.model, self.optimiser, self.fabric, self.generators, exchange
        if not isinstance(objective, PairObjective):
            node_steps = NodeSteps(*shared)
            node_steps.targets = self.targets
            return node_steps
        if self.negatives == "global":
            return DistributedSteps(*shared)
        steps = PairSteps(*shared)
        steps.targets = self.targets
        if self.is_compiled:
            return CompiledSteps(steps, self.method, optimiser)
        return PaddedSteps(steps, self.method, optimiser) if self.is_fast else steps

    def run(self, after_step: Callable[[], None] = lambda: None) -> Iterator[EpochMetrics]:
        """Train the remaining epochs and yield the metrics of each.

        Args:
            after_step: called after every step except the last one of an epoch, when a checkpoint can be taken.
        """
        # Dropout in an encoder draws from the global generators: they are seeded for each epoch, too. Each process gets
        # its own seed, because the same dropout mask in every shard would be too regular.
        process = f", process {self.fabric.global_rank}" if self.fabric.global_rank else ""
        while self.epoch < self.schedule.epochs:
            seed = temporary_seed(self.schedule.seed, f"epoch {self.epoch}{process}", self.fabric.device)
            # With global negatives, batch normalisation uses the whole batch, not only the shard of this process.
            norms = synced_batch_norms(self.model) if self.negatives == "global" else nullcontext()
            with seed, matmul_precision(self.fabric), norms:
                metrics = self._train_epoch(after_step)
            yield metrics

    def _train_epoch(self, after_step: Callable[[], None]) -> EpochMetrics:
        self.model.train()
        size, steps_per_epoch = len(self.pool), len(self.sampler)
        if self.progress is None:
            drawn = torch.zeros(size, size, dtype=torch.long)
            self.progress = EpochProgress(self.generators["batches"].get_state(), drawn, time.perf_counter())
            self.steps.loss_sum.zero_()
            self.steps.finite_steps.zero_()
            self._seed_own_views()
        else:
            set_global_rng_state(self.progress.global_rng_state, self.fabric.device)
        progress = self.progress
        for num_graphs, batch in self._batches("batches", progress.steps):
            count = num_graphs if self.schedule.pair_per == "graph" else 1
            pairs = self.method.policy.sample(count, self.generators["pairs"])
            own = self._own_part(pairs) if count > 1 else pairs
            fraction = self.step / (self.schedule.epochs * steps_per_epoch)
            if self.schedule.decay != "none":
                self._set_learning_rate(self.schedule.learning_rate_at(fraction))
            self.steps.train(batch, own)
            self._update_copy(fraction)
            # The pair (i, j) is entry i * K + j of the flattened table.
            counts = torch.bincount(pairs @ torch.tensor([size, 1]), minlength=size**2).view(size, size)
            progress.drawn += counts * (num_graphs // count)
            progress.steps += 1
            self.step += 1
            if self.schedule.update_every and self.step % self.schedule.update_every == 0:
                self._update_policy()
            if progress.steps < steps_per_epoch:
                after_step()
        if not self.schedule.update_every:
            self._update_policy()
        metrics = self._metrics(progress)
        self.epoch += 1
        self.progress = None
        return metrics

    def interrupted_epoch(self) -> EpochMetrics | None:
        """Return the metrics of the epoch in which :meth:`run` was left; None if it was left between two epochs."""
        return self._metrics(self.progress) if self.progress is not None and self.progress.steps else None

    def _metrics(self, progress: EpochProgress) -> EpochMetrics:
        num_graphs = int(progress.drawn.sum())
        loss_sum = self.steps.loss_sum if self.group is None else self.group.mean(self.steps.loss_sum)
        mean_loss = loss_sum.item() * self.num_losses / num_graphs
        self._check_loss(mean_loss)
        seconds = time.perf_counter() - progress.started
        return EpochMetrics(
            epoch=self.epoch + 1,
            loss=mean_loss,
            probabilities=self.method.policy.probabilities.tolist(),
            pair_losses=None if self.last_pair_losses is None else self.last_pair_losses.tolist(),
            drawn=progress.drawn.tolist(),
            seconds=seconds,
            graphs_per_second=num_graphs / seconds,
        )

    def _batches(
        self, purpose: str, start: int = 0, stop: int | None = None, most: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield number of graphs and content, on the device, of the batches ``start`` to ``stop - 1`` of an epoch.

        ``most`` is the number of graphs of a batch after which the others are left out.
        """
        stop = len(self.sampler) if stop is None else stop
        position = 0
        for drawn in self.sampler.draw(self.generators[purpose]):
            batches = [batch[:most] for batch in drawn[max(0, start - position) : max(0, stop - position)]]
            if batches:
                yield from zip(map(len, batches), self.steps.load([*map(self._own_part, batches)]), strict=True)
            position += len(drawn)
            if position >= stop:
                return

    def _own_part(self, batch: Tensor) -> Tensor:
        """With local negatives, return the rows of this process."""
        return batch[self.group.shard(len(batch))] if self.group and self.negatives == "local" else batch

    def _seed_own_views(self) -> None:
        """With local negatives, let every process draw its own views: the first as one process, the others by epoch."""
        if self.negatives == "local" and (rank := self.fabric.global_rank):
            for purpose in VIEWS:
                seed = derive_seed(self.schedule.seed, f"{purpose}, epoch {self.epoch}, process {rank}")
                self.generators[purpose].manual_seed(seed)

    def _set_learning_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _update_copy(self, fraction: float) -> None:
        """Update the momentum copy of the network, if the objective has one, after a ``fraction`` of the training."""
        if isinstance(self.method.objective, MomentumObjective):
            self.model.update_copy(self.method.objective.momentum_at(fraction))

    def _update_policy(self) -> None:
        if not self.method.policy.learns or (self.targets is not None and not self.targets.contrastive):
            return
        count, most = self.schedule.update_batches or max(1, round(len(self.sampler) / 10)), None
        if not self.schedule.update_batches and len(self.sampler) < 10:
            most = max(LEAST_MEASURED, math.ceil(len(self.store) / 10))
        batches = self._batches("evaluation batches", stop=count, most=most)
        pair_losses = self.steps.measure(batch for _, batch in batches)
        if self.group is not None and self.negatives == "local":
            pair_losses = self.group.mean(pair_losses)
        pair_losses = pair_losses.cpu().double()
        self._check_loss(float(self.steps.loss_sum))
        self._check_loss(float(pair_losses.sum()))
        self.last_pair_losses = pair_losses
        self.method.policy.update(pair_losses)

    def check(self) -> None:
        """Raise a :class:`UserError` if the loss or a weight is not finite: such a state must not be saved."""
        self._check_loss(float(self.steps.loss_sum))
        for name, value in self.model.state_dict().items():
            if not bool(value.isfinite().all()):
                raise UserError(f"training: {name} is not finite after step {self.step}. {self._advice()}")

    def _check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            assert self.progress is not None  # otherwise the loss was checked before
            # Once the sum of the losses of an epoch is not finite it stays so, which gives the first bad step.
            step = self.step - self.progress.steps + min(int(self.steps.finite_steps) + 1, self.progress.steps)
            raise UserError(
                f"training: the loss became {loss} in step {step}, epoch {self.epoch + 1}. {self._advice()}"
            )

    def _advice(self) -> str:
        return f"Lower the learning rate ({self.schedule.learning_rate}) or scale the node attributes."


def _encoder_names(condition: Callable[[type[Encoder]], bool]) -> str:
    return ", ".join(name for name, kind in ENCODERS.items() if condition(kind))
