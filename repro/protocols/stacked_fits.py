"""Fits to several parts of the same graphs at once: one stacked model, in which nothing passes from part to part.

What comes out is what fits one after another give, beyond rounding, in fewer and larger steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.augmentations import Identity
from joao.core.graphs import GraphStore
from joao.core.padded import PaddedBatch, PaddedViews
from joao.core.randomness import temporary_seed, torch_generator
from joao.encoders.base import StackableEncoder, stack_parameters
from joao.training.device import matmul_precision
from joao.training.fast.batches import CudaGraphRunner, PaddedStore, drop_unused_edge_attr
from joao.training.finetune import Classifier, Finetuning
from joao.training.metrics import Fit, FitEpoch
from joao.training.model import split_into_batches


@dataclass(frozen=True, eq=False)
class Part:
    """One fit of several.

    Attributes:
        train, validation: graphs to learn from and to choose the epoch with, ``(n,)`` numbers on the CPU.
        seed: of the batches.
        start: weights to start with, see :meth:`Finetuning.start_of`; None: those of the fine-tuning.
    """

    train: Tensor
    validation: Tensor
    seed: int
    start: Sequence[Tensor] | None = None


def fit_all(finetuning: Finetuning, parts: Sequence[Part]) -> Iterator[Fit]:
    """Fits to all ``parts``; while one is yielded, ``finetuning`` is in its state at the epoch that was chosen.

    :meth:`Finetuning.to_last` goes on to the last epoch. Side by side where ``finetuning`` is on its fast path and the
    parts allow it, else one after another. An encoder with dropout draws other numbers side by side.
    """
    if not can_be_stacked(finetuning, parts):
        for part in parts:
            yield finetuning.fit(part.train, part.validation, part.seed, start=part.start)
        return
    stacked_fits = StackedFits(finetuning, parts)
    for number, fit in enumerate(stacked_fits.run()):
        finetuning.set_state([value[number] for value in stacked_fits.kept])
        finetuning.last = [value[number] for value in stacked_fits.state]
        finetuning.statistics.copy_(stacked_fits.statistics[number])
        yield fit


def can_be_stacked(finetuning: Finetuning, parts: Sequence[Part]) -> bool:
    """Whether :func:`fit_all` fits side by side."""
    how = finetuning.how
    steps = {-(-part.train.numel() // how.batch_size) for part in parts}
    return (
        finetuning.is_fast
        and isinstance(finetuning.classifier.encoder, StackableEncoder)
        and all(isinstance(each, Identity) for each in finetuning.pool)
        and not how.patience
        and len(steps) == 1
        and all(part.train.numel() % how.batch_size != 1 and part.validation.numel() for part in parts)
    )


@dataclass(frozen=True, eq=False)
class _Room:
    """The tensors of F batches of G graphs, each batch a part's own.

    Attributes:
        graphs: ``(F, G)`` their numbers; that of the graph without nodes is room left over.
        batches: slices of ``views``, to be filled.
        views: all batches.
    """

    graphs: Tensor
    batches: list[PaddedBatch]
    views: PaddedViews


class StackedFits:
    """The fits of ``parts``, from the start of ``finetuning``."""

    def __init__(self, finetuning: Finetuning, parts: Sequence[Part]) -> None:
        self.how, self.fabric, self.parts = finetuning.how, finetuning.fabric, parts
        device = finetuning.device
        self.nobody = len(finetuning.store)
        self.sizes = [each.diff().cpu() for each in (finetuning.store.first_node, finetuning.store.first_edge)]
        self.store = PaddedStore(
            _with_empty_graph(drop_unused_edge_attr(finetuning.classifier.encoder, finetuning.store))
        )
        self.targets = finetuning.targets.with_unlabelled_graph()
        self.classifier: Classifier = stack_parameters(finetuning.classifier, len(parts))
        self.state = list(self.classifier.state_dict().values())
        self.statistics = finetuning.statistics.repeat_interleave(len(parts), 0)
        for number, part in enumerate(parts):
            finetuning.reset(part.train, part.seed, part.start)
            self.statistics[number] = finetuning.statistics[0]
            for ours, value in zip(self.state, finetuning.classifier.state_dict().values(), strict=True):
                ours[number] = value
        self.optimiser = torch.optim.Adam(
            self.classifier.parameters(), lr=self.how.learning_rate, fused=True, capturable=device.type == "cuda"
        )
        self.recorder = CudaGraphRunner(device, [])
        self.num_train = torch.tensor([part.train.numel() for part in parts], device=device)
        self.loss_sum = torch.zeros(len(parts), device=device)
        self.kept = [value.clone() for value in self.state]
        self.best = torch.full((len(parts),), -math.inf, dtype=torch.float64, device=device)
        self.epoch = torch.zeros(1, dtype=torch.long, device=device)
        self.history = torch.zeros(self.how.epochs, 3, len(parts), dtype=torch.float64, device=device)

    def run(self) -> list[Fit]:
        """Every part's fit; ``kept`` is then the state that was kept, ``state`` that of the last epoch."""
        plan = self._plan()
        rooms = {step.shape[2]: self._room(step, plan) for step in plan}
        validation = _filled_up([[part.validation for part in self.parts]], self.nobody)
        looked_at = self._room(validation, [validation])
        self._fill(looked_at)
        on_device = [step.to(self.loss_sum.device) for step in plan]
        draws = temporary_seed(self.parts[0].seed, "fine-tuning side by side", self.loss_sum.device)  # of dropout
        with draws, matmul_precision(self.fabric):
            for epoch in range(self.how.epochs):
                for step in on_device:
                    room = rooms[step.shape[2]]
                    room.graphs.copy_(step[epoch])
                    self.recorder.run(("step", step.shape[2]), lambda room=room: self._descend(room))  # type: ignore[misc]
                self.recorder.run("look", lambda: self._look(looked_at))
        return [self._fit(number) for number in range(len(self.parts))]

    def _plan(self) -> list[Tensor]:
        """For every step of an epoch ``(epochs, F, G)``: the graphs of all parts, as :class:`Finetuning` draws them."""
        generators = [torch_generator(part.seed, "fine-tuning batches") for part in self.parts]
        epochs = []
        for _ in range(self.how.epochs):
            drawn = [
                split_into_batches(
                    part.train[torch.randperm(part.train.numel(), generator=generator)], self.how.batch_size
                )
                for part, generator in zip(self.parts, generators, strict=True)
            ]
            epochs.append(list(zip(*drawn, strict=True)))
        return [_filled_up([list(epoch[step]) for epoch in epochs], self.nobody) for step in range(len(epochs[0]))]

    def _room(self, step: Tensor, plan: Sequence[Tensor]) -> _Room:
        """Room for every batch of ``plan`` that has as many graphs as those of ``step``."""
        alike = torch.cat([each.flatten(0, 1) for each in plan if each.shape[2] == step.shape[2]])
        num_nodes, num_edges = (int(F.pad(sizes, (0, 1))[alike].sum(1).max()) for sizes in self.sizes)
        graphs = step[0].clone().to(self.loss_sum.device)
        made = [self.store.batch(each, num_nodes + 1, num_edges) for each in graphs]
        names = [each.name for each in fields(PaddedViews) if getattr(made[0], each.name) is not None]
        whole: dict[str, Any] = {name: torch.stack([getattr(batch, name) for batch in made]) for name in names}
        batches = [
            replace(batch, **{name: value[number] for name, value in whole.items()})
            for number, batch in enumerate(made)
        ]
        return _Room(graphs, batches, PaddedViews(**whole))

    def _fill(self, room: _Room) -> None:
        for graphs, batch in zip(room.graphs, room.batches, strict=True):
            self.store.fill(batch, graphs)

    def _descend(self, room: _Room) -> None:
        self._fill(room)
        self.classifier.train()
        with self.fabric.autocast():
            logits = self._logits(room)
        loss = self.targets.losses(logits.float(), room.graphs, self.statistics)
        self.optimiser.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss_sum += loss.detach() * (room.graphs < self.nobody).sum(1)

    @torch.no_grad()
    def _look(self, room: _Room) -> None:
        """What an epoch showed goes into the history, and the parts for which it is as good as any keep it."""
        self.classifier.eval()
        shown = self._logits(room).float(), room.graphs, self.statistics
        losses, scores = self.targets.losses(*shown), self.targets.scores(*shown)
        found = torch.stack([self.loss_sum / self.num_train, losses, scores]).double()
        self.history.index_copy_(0, self.epoch, found.unsqueeze(0))
        score = torch.where(scores.isnan() | (self.how.choose_by == "loss"), -losses.double(), scores)
        good = score >= self.best
        self.best.copy_(torch.maximum(score, self.best))
        for kept, value in zip(self.kept, self.state, strict=True):
            kept.copy_(torch.where(good.view(-1, *[1] * (value.dim() - 1)), value, kept))
        self.loss_sum.zero_()
        self.epoch += 1

    def _logits(self, room: _Room) -> Tensor:
        encoder = self.classifier.encoder
        assert isinstance(encoder, StackableEncoder)
        return self.classifier.classify(encoder.encode_padded(room.views))

    def _fit(self, number: int) -> Fit:
        epochs = [FitEpoch.of(*values) for values in self.history[:, :, number].tolist()]
        for each in epochs:
            each.check(self.how.learning_rate)
        scores = [each.score(self.how.choose_by) for each in epochs]
        chosen = max(range(len(scores)), key=lambda place: (scores[place], place)) + 1
        return Fit(tuple(epochs), chosen)


def _with_empty_graph(store: GraphStore) -> GraphStore:
    """One more graph, the last, without nodes: a stand-in where a part has fewer graphs than others."""
    first_node, first_edge = (torch.cat([each, each[-1:]]) for each in (store.first_node, store.first_edge))
    return replace(store, first_node=first_node, first_edge=first_edge)


def _filled_up(epochs: Sequence[Sequence[Tensor]], nobody: int) -> Tensor:
    """``(epochs, F, G)`` of lists of graphs, the shorter ones filled up with ``nobody``."""
    longest = max(graphs.numel() for epoch in epochs for graphs in epoch)
    filled = [[F.pad(graphs, (0, longest - graphs.numel()), value=nobody) for graphs in epoch] for epoch in epochs]
    return torch.stack([torch.stack(epoch) for epoch in filled])
