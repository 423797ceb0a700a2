"""Algorithm 1: encoder and heads descend the loss, the policy ascends it, in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from joao.config.builder import Method
from joao.config.schedule import Schedule
from joao.core.errors import UserError
from joao.core.graphs import GraphStore, Store
from joao.core.randomness import set_global_rng_state, temporary_seed, torch_generator
from joao.encoders import ENCODERS, Encoder, NodeEncoder
from joao.encoders.base import PaddedEncoder
from joao.objectives import MomentumObjective, NodeObjective, Objective, PairObjective
from joao.policies import POLICIES
from joao.training.device import Fabric, matmul_precision
from joao.training.distributed.batch_norm import synced_batch_norms
from joao.training.distributed.group import ProcessGroup
from joao.training.fast.batches import DeviceBatch, choose_fast_path
from joao.training.fast.steps import PaddedSteps, find_fast_obstacle
from joao.training.model import ContrastiveModel, MomentumModel, NodeModel
from joao.training.order import BatchSampler
from joao.training.steps import NodeSteps, PlainSteps, Steps


@dataclass(frozen=True)
class EpochMetrics:
    """What an epoch showed. Tables are ``(K, K)`` nested lists; row: first view, column: second view.

    Attributes:
        loss: mean over the epoch's graphs.
        probabilities: the policy's table after the epoch.
        pair_losses: as last measured, or None for a policy that does not learn.
        drawn: how many graphs were shown under each pair.

    >>> import joao
    >>> model = joao.JOAO(epochs=1, device="cpu").fit("MUTAG")
    >>> epoch = model.history_[0]
    >>> epoch.epoch, sum(map(sum, epoch.drawn))  # all 188 graphs, each under one pair
    (1, 188)
    """

    epoch: int
    loss: float
    probabilities: list[list[float]]
    pair_losses: list[list[float]] | None
    drawn: list[list[int]]
    seconds: float
    graphs_per_second: float


@dataclass
class EpochProgress:
    """What an epoch has shown so far, and what it takes to go on inside it.

    Attributes:
        order: the state of the generator of batches when it began.
        drawn: as of :class:`EpochMetrics`.
        started: when it began, on the clock of this process.
        steps: taken.
        global_state: of torch's own generators, of an epoch that is resumed; see :mod:`joao.core.randomness`.
    """

    order: Tensor
    drawn: Tensor
    started: float
    steps: int = 0
    global_state: Sequence[Tensor] = ()


def check_multiprocess(objective: Objective, fast: bool | None) -> None:
    """An error where a method does not train in several processes."""
    if fast:
        raise UserError("training: the fast path is for one process. Leave it out, or devices and num_nodes.")
    if isinstance(objective, NodeObjective):
        name = type(objective).__name__
        raise UserError(f"{name}: looks at nodes, and so trains in one process. Leave out devices and num_nodes.")


class Pretraining:
    """A pre-training under way.

    Args:
        store: the graphs, in memory on any device, or in shards; their batches come to the fabric's.
        method: its encoder, heads and policy are changed in place.
        schedule: see :class:`Schedule`.
        fabric: the device, precision and launch, of Lightning. In several processes each trains on its share of every
            batch, and all have the same losses, weights and policy (docs/scaling.md).
        fast: whether to train on padded batches (:mod:`joao.training.fast.steps`); None: on a GPU, where possible.

    Attributes:
        is_fast: whether it does.
    """

    def __init__(
        self,
        store: Store,
        method: Method,
        schedule: Schedule,
        fabric: Fabric | None = None,
        fast: bool | None = None,
    ) -> None:
        if len(store) < 2:
            raise UserError("pre-training compares graphs with each other: it needs two graphs or more, got one.")
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.store = store.to(self.fabric.device)
        self.method = method
        self.schedule = schedule
        self.pool = list(method.augmentations.values())
        on_device = self.fabric.device
        on_gpu = on_device.type == "cuda"
        if fast not in (None, True, False):
            raise UserError(f"training: fast must be True, False or None, got {fast!r}.")
        self.ranks = ProcessGroup(self.fabric.global_rank, self.fabric.world_size)
        if self.ranks.size > 1:
            check_multiprocess(method.objective, fast)
        self.order = BatchSampler(len(store), schedule.batch_size, store.block)
        reason = find_fast_obstacle(method.encoder, self.pool, method.objective, schedule.pair_per, self.fabric)
        if not isinstance(self.store, GraphStore):
            reason = "graphs in shards are not on the device as a whole"
        self.is_fast = choose_fast_path("training", fast, reason, on_gpu)
        model = self._make_model()
        optimiser = torch.optim.Adam(
            model.parameters(), lr=schedule.learning_rate, fused=True, capturable=on_gpu and self.is_fast
        )
        self.model, self.optimiser = self.fabric.setup(model, optimiser)
        self.ranks.broadcast_model(self.model)
        self.generators = {
            "batches": torch_generator(schedule.seed, "batches"),
            "pairs": torch_generator(schedule.seed, "pairs"),
            "views": torch_generator(schedule.seed, "views", on_device),
            "evaluation batches": torch_generator(schedule.seed, "evaluation batches"),
            "evaluation views": torch_generator(schedule.seed, "evaluation views", on_device),
        }
        self.epoch = 0
        self.step = 0
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
            own = getattr(encoder, "module", encoder)  # unwrap a custom encoder
            raise UserError(
                f"{name}: the encoder {type(own).__name__} does not return node vectors. Use one of: "
                f"{_encoder_names(lambda kind: issubclass(kind, NodeEncoder))}."
            )
        if objective.needs_atoms and not encoder.takes_atoms:
            fitting = _encoder_names(lambda kind: kind.takes_atoms)
            raise UserError(f"{name}: masks atoms, so it needs molecules and one of the encoders: {fitting}.")
        if objective.needs_diffusion and not encoder.can_diffuse:
            raise UserError(
                f"{name}: the encoder {type(encoder).__name__} does not support diffusion. Use one of: "
                f"{_encoder_names(lambda kind: getattr(kind, 'can_diffuse', False))}; for molecules with "
                "features = 'labels'."
            )
        if policy.learns:
            fixed = ", ".join(each for each, kind in POLICIES.items() if not kind.learns)
            raise UserError(f"{name}: compares no views, so a policy cannot learn from it. Use one of: {fixed}.")
        with temporary_seed(self.schedule.seed, "parts"):
            return NodeModel(encoder, objective)

    def _make_steps(self, optimiser: torch.optim.Optimizer) -> Steps:
        encoder, objective = self.method.encoder, self.method.objective
        shared = self.store, self.pool, objective, self.model, self.optimiser, self.fabric, self.generators
        if not isinstance(objective, PairObjective):
            return NodeSteps(*shared)
        plain = PlainSteps(*shared)
        if not self.is_fast:
            return plain
        assert isinstance(encoder, PaddedEncoder)  # or there was a reason not to
        return PaddedSteps(plain, encoder, self.method.heads, optimiser)

    def run(self, after_step: Callable[[], None] = lambda: None) -> Iterator[EpochMetrics]:
        """Trains the epochs that are left, and says after each what it showed.

        Args:
            after_step: called after every step but the last of an epoch, when there is a state that can be kept.
        """
        while self.epoch < self.schedule.epochs:
            # An encoder's dropout draws from the global generators: they too begin each epoch from the seed. Processes
            # that drop the same places of their parts would drop too much alike.
            purpose = f"epoch {self.epoch}" + (f", process {self.ranks.rank}" if self.ranks.rank else "")
            norms = synced_batch_norms(self.model) if self.ranks.size > 1 else nullcontext()
            with temporary_seed(self.schedule.seed, purpose, self.fabric.device), matmul_precision(self.fabric), norms:
                metrics = self._train_epoch(after_step)
            yield metrics

    def _train_epoch(self, after_step: Callable[[], None]) -> EpochMetrics:
        self.model.train()
        size = len(self.pool)
        if self.progress is None:
            drawn = torch.zeros(size, size, dtype=torch.long)
            self.progress = EpochProgress(self.generators["batches"].get_state(), drawn, time.perf_counter())
            self.steps.loss_sum.zero_()
            self.steps.finite_steps.zero_()
        else:
            set_global_rng_state(self.progress.global_state, self.fabric.device)
        so_far = self.progress
        for batch in islice(self._batches("batches"), so_far.steps, None):
            num_graphs = batch.graphs.numel()
            count = num_graphs if self.schedule.pair_per == "graph" else 1
            pairs = self.method.policy.sample(count, self.generators["pairs"])
            self.steps.train(batch, pairs)
            self._follow(self.step / (self.schedule.epochs * len(self.order)))
            so_far.drawn += torch.bincount(pairs @ torch.tensor([size, 1]), minlength=size**2).view(size, size) * (
                num_graphs // count
            )
            so_far.steps += 1
            self.step += 1
            if self.schedule.update_every and self.step % self.schedule.update_every == 0:
                self._update_policy()
            if so_far.steps < len(self.order):
                after_step()
        if not self.schedule.update_every:
            self._update_policy()
        mean_loss = self.ranks.mean(self.steps.loss_sum).item() / len(self.store)
        self._check_loss(mean_loss)
        self.epoch += 1
        self.progress = None
        seconds = time.perf_counter() - so_far.started
        return EpochMetrics(
            epoch=self.epoch,
            loss=mean_loss,
            probabilities=self.method.policy.probabilities.tolist(),
            pair_losses=None if self.last_pair_losses is None else self.last_pair_losses.tolist(),
            drawn=so_far.drawn.tolist(),
            seconds=seconds,
            graphs_per_second=len(self.store) / seconds,
        )

    def _batches(self, purpose: str) -> Iterator[DeviceBatch]:
        for batches in self.order.draw(self.generators[purpose]):
            yield from self.steps.place(batches)

    def _follow(self, progress: float) -> None:
        """The copy of the network, where the objective has one, moves behind it."""
        if isinstance(self.method.objective, MomentumObjective):
            self.model.follow(self.method.objective.momentum_at(progress))

    def _update_policy(self) -> None:
        if not self.method.policy.learns:
            return
        count = self.schedule.update_batches or max(1, round(len(self.order) / 10))
        batches = islice(self._batches("evaluation batches"), count)
        pair_losses = self.steps.measure(batches).cpu().double()
        self._check_loss(float(self.steps.loss_sum))
        self._check_loss(float(pair_losses.sum()))
        self.last_pair_losses = pair_losses
        self.method.policy.update(pair_losses)

    def check(self) -> None:
        """An error where the loss or a weight is no number any more: such a state is not worth keeping."""
        self._check_loss(float(self.steps.loss_sum))
        for name, value in self.model.state_dict().items():
            if not bool(value.isfinite().all()):
                raise UserError(f"training: {name} is not finite after step {self.step}. {self._advice()}")

    def _check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            assert self.progress is not None  # or the loss was checked before
            # The sum of an epoch's losses stays what it is once it is no number, so the first step is known.
            step = self.step - self.progress.steps + min(int(self.steps.finite_steps) + 1, self.progress.steps)
            raise UserError(
                f"training: the loss became {loss} in step {step}, epoch {self.epoch + 1}. {self._advice()}"
            )

    def _advice(self) -> str:
        return f"Lower the learning rate ({self.schedule.learning_rate}) or scale the node attributes."


def _encoder_names(condition: Callable[[type[Encoder]], bool]) -> str:
    return ", ".join(name for name, kind in ENCODERS.items() if condition(kind))
