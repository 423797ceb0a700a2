"""Pre-training and fine-tuning on padded batches: every step runs on the same buffers, so a GPU can replay it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast, final

import torch
from torch import Tensor

from joao.augmentations.base import Augmentation, PaddedAugmentation
from joao.config.builder import Method
from joao.core.graphs import GraphStore
from joao.core.padded import as_views, stack_views
from joao.data.shards.store import ShardStore
from joao.encoders.base import LayeredEncoder, PaddedEncoder
from joao.objectives import MomentumObjective, PairObjective
from joao.training.fast.batches import (
    BufferPool,
    CudaGraphRunner,
    DeviceBatch,
    PaddedBuffers,
    drop_unused_edge_attr,
    find_padding_obstacle,
)
from joao.training.fast.feed import ShardFeed
from joao.training.model import frozen_statistics, preserve_buffers
from joao.training.steps import PairSteps, Steps
from joao.training.targets import MoleculeTargets, TargetModel

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from joao.training.finetune import Finetuning


def find_fast_obstacle(
    method: Method,
    pool: Sequence[Augmentation],
    pair_per: str,
    fabric: Fabric,
    targets: MoleculeTargets | None = None,
) -> str:
    """Return why :class:`PaddedSteps` are impossible, or an empty string."""
    objective = method.objective
    if isinstance(objective, MomentumObjective):
        return f"the objective {type(objective).__name__} has a momentum copy of the encoder"
    if not isinstance(objective, PairObjective) or not objective.static:
        return f"the objective {type(objective).__name__} is not declared static"
    if pair_per == "graph":
        return "pair_per = 'graph' mixes augmentations in a batch"
    if targets is not None and isinstance(method.encoder, LayeredEncoder):
        return f"targets are predicted from the readout of the encoder {type(method.encoder).__name__}"
    return find_padding_obstacle(method.encoder, pool, fabric)


@final
class PaddedSteps(Steps):
    """Pre-training steps on padded batches, captured and replayed; batches that do not fit take the steps ``eager``.

    Both train the encoder and the heads of ``method``. On a GPU, ``optimiser`` must be capturable.
    """

    def __init__(self, eager: PairSteps, method: Method, optimiser: torch.optim.Optimizer) -> None:
        store = eager.store
        assert isinstance(method.encoder, PaddedEncoder)  # find_fast_obstacle has checked it
        self.eager, self.encoder, self.heads, self.objective = eager, method.encoder, method.heads, eager.objective
        self.pool = cast(Sequence[PaddedAugmentation], eager.pool)
        self.optimiser, self.autocast, self.exchange = optimiser, eager.fabric.autocast, eager.exchange
        self.targets = eager.targets
        self.used_parameters: dict[tuple[int, int] | None, list[bool]] = {}  # by the heads
        self.views_generator = eager.generators["views"]
        self.evaluation_generator = eager.generators["evaluation views"]
        self.runner = CudaGraphRunner(store.device, [self.views_generator, self.evaluation_generator])
        self.loss_sum, self.finite_steps = eager.loss_sum, eager.finite_steps
        self.pair_losses = torch.zeros(len(self.pool), len(self.pool), device=store.device)
        if isinstance(store, ShardStore):
            graphs: GraphStore | ShardFeed = ShardFeed(store, method.encoder.uses_edge_attr)
        else:
            graphs = drop_unused_edge_attr(method.encoder, cast(GraphStore, store))
        self.buffers = BufferPool(graphs, 2, self.runner)

    def load(self, batches: Sequence[Tensor]) -> Iterable[DeviceBatch]:
        return self.buffers.load(batches)

    def train(self, batch: DeviceBatch, pairs: Tensor) -> None:
        if not batch.fits:
            self.eager.train(batch.graphs, pairs)
            return
        buffers, size = self.buffers.fill(batch), batch.graphs.numel()
        first, second = pairs[0].tolist()
        compares_views = self.targets is None or self.targets.contrastive > 0
        for side, index in enumerate((first, second) if compares_views else ()):
            self.buffers.draw_view(buffers, side, index, self.pool, self.views_generator)
        # A CUDA graph is tied to the heads it was captured with: one per pair, unless all augmentations share a head.
        heads = None if self.heads.shared or not compares_views else (first, second)
        if self.exchange is None:
            self.runner.run(("step", size, heads), lambda: self._descend(buffers, first, second))
            return

        def compute_gradients() -> None:
            self._backward(buffers, first, second)
            self.used_parameters[heads] = exchange.pack()

        def update() -> None:
            exchange.unpack(self.used_parameters[heads])
            self.optimiser.step()

        exchange = self.exchange
        self.runner.run(("gradients", size, heads), compute_gradients)
        exchange.send()  # between the CUDA graphs
        self.runner.run(("update", heads), update)

    def measure(self, batches: Iterable[DeviceBatch]) -> Tensor:
        self.pair_losses.zero_()
        count = 0
        for batch in batches:
            count += 1
            if batch.fits:
                buffers, size = self.buffers.fill(batch), batch.graphs.numel()
                self.runner.run(("pair losses", size), lambda own=buffers: self._measure(own))  # type: ignore[misc]
            else:
                self.pair_losses += self.eager.measure([batch.graphs])
        return self.pair_losses / count

    def _descend(self, buffers: PaddedBuffers, first: int, second: int) -> None:
        self._backward(buffers, first, second)
        self.optimiser.step()

    def _backward(self, buffers: PaddedBuffers, first: int, second: int) -> None:
        loss = self._total_loss(buffers, first, second)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.loss_sum += loss.detach() * buffers.graphs.numel()
        self.finite_steps += self.loss_sum.isfinite()

    def _total_loss(self, buffers: PaddedBuffers, first: int, second: int) -> Tensor:
        """As :meth:`joao.training.steps.EagerSteps.total_loss`."""
        if self.targets is None:
            return self._loss(buffers, first, second)
        predict = cast(TargetModel, self.eager.model).predict
        with self.autocast():
            predicted = predict(self.encoder.encode_padded(as_views(buffers.batch))[0])
        total = self.targets.loss(predicted, buffers.graphs)
        if self.targets.contrastive:
            with frozen_statistics(self.eager.model):
                total = total + self.targets.contrastive * self._loss(buffers, first, second)
        return total

    def _loss(self, buffers: PaddedBuffers, first: int, second: int) -> Tensor:
        with self.autocast():
            embeddings = self.encoder.encode_padded(buffers.views)
            if self.heads.shared and embeddings.is_cuda:
                projected = self.heads(embeddings, first).unbind()  # both views in one product
            else:
                projected = tuple(map(self.heads, embeddings.unbind(), (first, second)))
        return self.objective(*(each.float() for each in projected))

    @torch.no_grad()
    def _measure(self, buffers: PaddedBuffers) -> None:
        """Add the pair losses of a batch, as :func:`joao.training.steps.pair_losses`, in one pass of the encoder."""
        size = len(self.pool)
        # Draw k of augmentation k % size: the first draws are 0 ... size - 1, the second ones size ... 2 size - 1.
        draws = [self.pool[k % size].padded(buffers.batch, self.evaluation_generator) for k in range(2 * size)]
        # Unchanged graphs, as from the augmentation identity, are not encoded a second time.
        unchanged = [k for k in range(size) if draws[k] is buffers.batch]
        encoded = [k for k in range(2 * size) if k - size not in unchanged]
        with self.autocast(), preserve_buffers(self.encoder):
            embeddings = self.encoder.encode_padded(stack_views([draws[k] for k in encoded]))
            projected = {k: self.heads(embeddings[n], k % size).float() for n, k in enumerate(encoded)}
        second = torch.stack([projected.get(k + size, projected[k]) for k in range(size)])
        self.pair_losses += torch.stack([self.objective(projected[k], second) for k in range(size)])


@final
class PaddedFinetuningSteps:
    """Fine-tuning steps on padded batches, captured and replayed; batches that do not fit take eager steps."""

    def __init__(self, finetuning: Finetuning) -> None:
        self.finetuning, self.classifier = finetuning, finetuning.classifier
        self.pool = cast(Sequence[PaddedAugmentation], finetuning.pool)
        self.runner = CudaGraphRunner(finetuning.device, [finetuning.views_generator])
        store = drop_unused_edge_attr(finetuning.classifier.encoder, finetuning.store)
        self.buffers = BufferPool(store, 1, self.runner)

    def load(self, batches: Sequence[Tensor]) -> Iterable[DeviceBatch]:
        """Move batches (indices of graphs on the CPU) to the device."""
        return self.buffers.load(batches)

    def train(self, batch: DeviceBatch, index: int) -> None:
        """Update the weights on ``batch``, augmented with augmentation ``index``."""
        if not batch.fits:
            self.finetuning.train(batch.graphs, index)
            return
        buffers = self.buffers.fill(batch)
        self.buffers.draw_view(buffers, 0, index, self.pool, self.finetuning.views_generator)
        self.runner.run(("step", batch.graphs.numel()), lambda: self._descend(buffers))

    def _descend(self, buffers: PaddedBuffers) -> None:
        optimiser = self.finetuning.optimiser
        with self.finetuning.fabric.autocast():
            embeddings = cast(PaddedEncoder, self.classifier.encoder).encode_padded(buffers.views)[0]
            logits = self.classifier.classify(embeddings)
        optimiser.zero_grad()
        self.finetuning.loss(logits, buffers.graphs).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
