"""Several fits to parts of the same graphs at once, as one stacked model.

Every parameter of the classifier gets a leading dimension with one slice per fit, and every batch contains one batch
per fit. Nothing is shared between the slices: the loss is a sum over fits, so the gradient of each slice is that of its
own fit, and Adam works element by element. Up to rounding, the result equals that of fits one after another, but a GPU
runs few large steps instead of many small ones.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from joao.augmentations import Identity
from joao.augmentations.base import PaddedAugmentation
from joao.core.graphs import GraphStore
from joao.core.padded import PaddedBatch, PaddedViews
from joao.core.randomness import temporary_seed, torch_generator
from joao.encoders.base import StackableEncoder
from joao.evaluation.targets import Targets
from joao.training.device import matmul_precision
from joao.training.fast.batches import CudaGraphRunner, PaddedStore, drop_unused_edge_attr
from joao.training.finetune import Classifier, Finetuning
from joao.training.metrics import Fit, FitEpoch
from joao.training.model import split_into_batches


@dataclass(frozen=True, eq=False)
class Part:
    """The data of one fit.

    Attributes:
        train, validation: indices ``(n,)`` of the graphs for training and for selecting the epoch, on the CPU.
        seed: seed of the batches.
        start: initial weights, see :meth:`Finetuning.initial_weights`; None for those of the fine-tuning.
    """

    train: Tensor
    validation: Tensor
    seed: int
    start: Sequence[Tensor] | None = None


M = TypeVar("M", bound=nn.Module)


def stack_parameters(module: M, count: int) -> M:
    """Copy ``module`` with ``count`` copies of each parameter and buffer along a new first dimension."""
    copied = copy.deepcopy(module)
    for part in copied.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(value.detach().expand(count, *value.shape).clone()))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.detach().expand(count, *buffer.shape).clone())
    return copied


def fit_all(finetuning: Finetuning, parts: Sequence[Part]) -> Iterator[Fit]:
    """Fit all ``parts``. When a fit is yielded, ``finetuning`` has its state at the selected epoch.

    :meth:`Finetuning.restore_last_epoch` switches to the last epoch. The fits are stacked if :func:`can_be_stacked`;
    otherwise they run one after another. Dropout and augmentations draw other random numbers in stacked fits.
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
    """Return whether :func:`fit_all` can stack the fits."""
    settings = finetuning.settings
    # All fits must take the same number of steps per epoch. A last batch of one graph would be merged with the batch
    # before it. Patience stops fits at different epochs.
    steps = {-(-part.train.numel() // settings.batch_size) for part in parts}
    return (
        finetuning.is_fast
        and isinstance(finetuning.classifier.encoder, StackableEncoder)
        and not settings.patience
        and len(steps) == 1
        and all(part.train.numel() % settings.batch_size != 1 and part.validation.numel() for part in parts)
    )


@dataclass(frozen=True, eq=False)
class _StackedBatch:
    """The tensors of F batches of G graphs, one batch per fit. They are allocated once and refilled in place, so that
    CUDA graphs can replay the steps that use them.

    Attributes:
        graphs: ``(F, G)`` indices of the graphs; unused entries have the index of the empty graph.
        batches: the batch of each fit.
        views: all batches after augmentation, with a leading dimension F; without augmentations its slices are the
            tensors of ``batches``.
    """

    graphs: Tensor
    batches: list[PaddedBatch]
    views: PaddedViews

    def draw_view(self, number: int, augmentation: PaddedAugmentation, generator: torch.Generator) -> None:
        """Augment the batch of a fit and write the result into its view."""
        view = augmentation.padded(self.batches[number], generator)
        for name in CHANGED_BY_AUGMENTATION:
            if getattr(view, name) is not None:
                getattr(self.views, name)[number].copy_(getattr(view, name))


CHANGED_BY_AUGMENTATION = ("x", "source", "target", "first_edge", "keep", "edge_attr")


SomeTargets = TypeVar("SomeTargets", bound=Targets)


def with_unlabelled_graph(targets: SomeTargets) -> SomeTargets:
    """Append a graph without labels, which fills padded batches."""
    nobody = torch.full_like(targets.values[:1], targets.missing)
    return replace(targets, values=torch.cat([targets.values, nobody]))


class StackedFits:
    """Stacked fits of ``parts``, starting from the weights of ``finetuning``."""

    def __init__(self, finetuning: Finetuning, parts: Sequence[Part]) -> None:
        self.settings, self.fabric, self.parts = finetuning.settings, finetuning.fabric, parts
        device = finetuning.device
        # Lists of graphs are padded with the index of an additional graph without nodes and labels.
        self.empty_graph = len(finetuning.store)
        self.sizes = [each.diff().cpu() for each in (finetuning.store.first_node, finetuning.store.first_edge)]
        self.store = PaddedStore(
            _with_empty_graph(drop_unused_edge_attr(finetuning.classifier.encoder, finetuning.store))
        )
        self.targets = with_unlabelled_graph(finetuning.targets)
        self.classifier: Classifier = stack_parameters(finetuning.classifier, len(parts))
        self.state = list(self.classifier.state_dict().values())
        self.statistics = finetuning.statistics.repeat_interleave(len(parts), 0)
        # ``state`` shares memory with the stacked classifier: writing slice ``number`` sets the weights of that fit.
        for number, part in enumerate(parts):
            finetuning.reset(part.train, part.seed, part.start)
            self.statistics[number] = finetuning.statistics[0]
            for ours, value in zip(self.state, finetuning.classifier.state_dict().values(), strict=True):
                ours[number] = value
        self.optimiser = torch.optim.Adam(
            self.classifier.parameters(), lr=self.settings.learning_rate, fused=True, capturable=device.type == "cuda"
        )
        self.runner = CudaGraphRunner(device, [])
        self.pool = cast(Sequence[PaddedAugmentation], finetuning.pool)
        self.augments = not all(isinstance(each, Identity) for each in self.pool)
        # Each fit draws its views from its own generator, which must be registered with the CUDA graphs that use it.
        self.view_generators = [torch_generator(part.seed, "fine-tuning views", device) for part in parts]
        self.view_runners = [CudaGraphRunner(device, [generator]) for generator in self.view_generators]
        self.num_train = torch.tensor([part.train.numel() for part in parts], device=device)
        self.loss_sum = torch.zeros(len(parts), device=device)
        # Weights at the best epoch so far, its score, the current epoch, and (epoch, quantity, fit) metrics. All of
        # them stay on the device, because a replayed CUDA graph must not synchronise with the host.
        self.kept = [value.clone() for value in self.state]
        self.best = torch.full((len(parts),), -math.inf, dtype=torch.float64, device=device)
        self.epoch = torch.zeros(1, dtype=torch.long, device=device)
        self.history = torch.zeros(self.settings.epochs, 3, len(parts), dtype=torch.float64, device=device)

    def run(self, after_epoch: Callable[[int], None] = lambda epoch: None) -> list[Fit]:
        """Run all fits. Then ``kept`` has the weights of the selected epochs and ``state`` those of the last epoch.

        ``after_epoch`` is called with the number of each finished epoch, from 1 on, and may copy ``state``.
        """
        plan = self._plan()
        # Steps with the same number of graphs share one set of tensors; usually only the last batch is smaller.
        batches_by_size = {step.shape[2]: self._make_batch(step, plan, self.augments) for step in plan}
        validation = _pad_lists([[part.validation for part in self.parts]], self.empty_graph)
        validation_batch = self._make_batch(validation, [validation], augments=False)
        self._fill(validation_batch)
        on_device = [step.to(self.loss_sum.device) for step in plan]
        drawn = [torch_generator(part.seed, "fine-tuning augmentations") for part in self.parts]
        draws = temporary_seed(self.parts[0].seed, "fine-tuning side by side", self.loss_sum.device)  # of dropout
        with draws, matmul_precision(self.fabric):
            for epoch in range(self.settings.epochs):
                for step in on_device:
                    stacked = batches_by_size[step.shape[2]]
                    stacked.graphs.copy_(step[epoch])
                    if self.augments:
                        self._draw_views(stacked, drawn)
                    self.runner.run(("step", step.shape[2]), partial(self._train_step, stacked))
                self.runner.run("look", lambda: self._validate(validation_batch))
                after_epoch(epoch + 1)
        return [self._fit(number) for number in range(len(self.parts))]

    def _plan(self) -> list[Tensor]:
        """Draw graphs for all fits as :class:`Finetuning` does: one tensor ``(epochs, F, G)`` per step of an epoch."""
        generators = [torch_generator(part.seed, "fine-tuning batches") for part in self.parts]
        epochs = []
        for _ in range(self.settings.epochs):
            drawn = [
                split_into_batches(
                    part.train[torch.randperm(part.train.numel(), generator=generator)], self.settings.batch_size
                )
                for part, generator in zip(self.parts, generators, strict=True)
            ]
            epochs.append(list(zip(*drawn, strict=True)))
        return [_pad_lists([list(epoch[step]) for epoch in epochs], self.empty_graph) for step in range(len(epochs[0]))]

    def _make_batch(self, step: Tensor, plan: Sequence[Tensor], augments: bool) -> _StackedBatch:
        """Allocate tensors that are large enough for every batch of ``plan`` with as many graphs as ``step``."""
        alike = torch.cat([each.flatten(0, 1) for each in plan if each.shape[2] == step.shape[2]])
        num_nodes, num_edges = (int(F.pad(sizes, (0, 1))[alike].sum(1).max()) for sizes in self.sizes)
        graphs = step[0].clone().to(self.loss_sum.device)
        made = [self.store.batch(each, num_nodes + 1, num_edges) for each in graphs]  # one more node, for padding edges
        names = [each.name for each in fields(PaddedViews) if getattr(made[0], each.name) is not None]
        whole: dict[str, Any] = {name: torch.stack([getattr(batch, name) for batch in made]) for name in names}
        # The batches must be slices of the stacked tensors, so that filling them fills the input of the model.
        batches = [
            replace(batch, **{name: value[number] for name, value in whole.items()})
            for number, batch in enumerate(made)
        ]
        if augments:
            whole |= {name: whole[name].clone() for name in CHANGED_BY_AUGMENTATION if name in whole}
        return _StackedBatch(graphs, batches, PaddedViews(**whole))

    def _draw_views(self, stacked: _StackedBatch, drawn: Sequence[torch.Generator]) -> None:
        """Fill the batches, and augment that of each fit with an augmentation drawn for it alone."""
        size = stacked.graphs.shape[1]
        self.runner.run(("fill", size), lambda: self._fill(stacked))
        for number, runner in enumerate(self.view_runners):
            index = int(torch.randint(len(self.pool), (), generator=drawn[number]))
            draw = partial(stacked.draw_view, number, self.pool[index], self.view_generators[number])
            runner.run((size, index), draw)

    def _fill(self, stacked: _StackedBatch) -> None:
        for graphs, batch in zip(stacked.graphs, stacked.batches, strict=True):
            self.store.fill(batch, graphs)

    def _train_step(self, stacked: _StackedBatch) -> None:
        if not self.augments:
            self._fill(stacked)
        self.classifier.train()
        with self.fabric.autocast():
            logits = self._logits(stacked)
        loss = self.targets.losses(logits.float(), stacked.graphs, self.statistics)
        self.optimiser.zero_grad()
        # A sum, not a mean: the gradient of each fit must not depend on the number of fits.
        loss.sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss_sum += loss.detach() * (stacked.graphs < self.empty_graph).sum(1)

    @torch.no_grad()
    def _validate(self, stacked: _StackedBatch) -> None:
        """Write the metrics of an epoch to the history, and keep the weights of fits for which it is the best so far.

        Of equally good epochs the last is kept (decision 7).
        """
        self.classifier.eval()
        evaluated = self._logits(stacked).float(), stacked.graphs, self.statistics
        losses, scores = self.targets.losses(*evaluated), self.targets.scores(*evaluated)
        found = torch.stack([self.loss_sum / self.num_train, losses, scores]).double()
        self.history.index_copy_(0, self.epoch, found.unsqueeze(0))
        # Labels of one class only have no score; the loss is used instead, as in Finetuning.
        score = torch.where(scores.isnan() | (self.settings.choose_by == "loss"), -losses.double(), scores)
        good = score >= self.best
        self.best.copy_(torch.maximum(score, self.best))
        for kept, value in zip(self.kept, self.state, strict=True):
            kept.copy_(torch.where(good.view(-1, *[1] * (value.dim() - 1)), value, kept))
        self.loss_sum.zero_()
        self.epoch += 1

    def _logits(self, stacked: _StackedBatch) -> Tensor:
        encoder = self.classifier.encoder
        assert isinstance(encoder, StackableEncoder)
        return self.classifier.classify(encoder.encode_padded(stacked.views))

    def _fit(self, number: int) -> Fit:
        epochs = [FitEpoch.of(*values) for values in self.history[:, :, number].tolist()]
        for each in epochs:
            each.check(self.settings.learning_rate)
        scores = [each.score(self.settings.choose_by) for each in epochs]
        chosen = max(range(len(scores)), key=lambda index: (scores[index], index)) + 1
        return Fit(tuple(epochs), chosen)


def _with_empty_graph(store: GraphStore) -> GraphStore:
    """Append a graph without nodes, which pads shorter lists of graphs."""
    first_node, first_edge = (torch.cat([each, each[-1:]]) for each in (store.first_node, store.first_edge))
    return replace(store, first_node=first_node, first_edge=first_edge)


def _pad_lists(epochs: Sequence[Sequence[Tensor]], empty_graph: int) -> Tensor:
    """Return a tensor ``(epochs, F, G)`` from lists of graphs, padded with ``empty_graph``."""
    longest = max(graphs.numel() for epoch in epochs for graphs in epoch)
    filled = [[F.pad(graphs, (0, longest - graphs.numel()), value=empty_graph) for graphs in epoch] for epoch in epochs]
    return torch.stack([torch.stack(epoch) for epoch in filled])
