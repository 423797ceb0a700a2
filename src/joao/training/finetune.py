"""The network that fine-tuning moves.

Fine-tuning: an encoder and a linear layer behind it learn the labels of some graphs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation, Identity
from joao.augmentations.base import PaddedAugmentation
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.randomness import temporary_seed, torch_generator
from joao.encoders import Encoder
from joao.encoders.base import PaddedEncoder
from joao.evaluation.targets import ClassTargets, Targets
from joao.training.device import Fabric, matmul_precision
from joao.training.fast.batches import (
    BufferPool,
    CudaGraphRunner,
    DeviceBatch,
    PaddedBuffers,
    choose_fast_path,
    drop_unused_edge_attr,
    find_padding_obstacle,
)
from joao.training.model import batches_by_size, calibrate
from joao.training.order import split_into_batches


class Classifier(nn.Module):
    """Encoder, standardisation and a linear layer."""

    shift: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(encoder.num_dimensions, num_outputs)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("shift", torch.zeros(encoder.num_dimensions))
        self.register_buffer("scale", torch.ones(encoder.num_dimensions))

    def classify(self, embeddings: Tensor) -> Tensor:
        """``(G, d)`` embeddings to ``(G, C)`` logits; of stacked weights, ``(F, G, d)`` to ``(F, G, C)``."""
        standardised = (embeddings - self.shift.unsqueeze(-2)) / self.scale.unsqueeze(-2)
        return standardised @ self.linear.weight.mT + self.linear.bias.unsqueeze(-2)

    def forward(self, *fields: Any) -> Tensor:
        # Plain tensors, because what wraps the model for several devices or low precision knows no GraphBatch.
        return self.classify(self.encoder(GraphBatch(*fields)))


@dataclass(frozen=True)
class Finetune:
    """How to fine-tune.

    Args:
        epochs: passes over the training graphs, at most.
        batch_size: graphs in a batch.
        learning_rate: of Adam.
        patience: epochs without a better validation, equally good ones among them, after which it stops; 0: never.
        choose_by: what the validation graphs choose the epoch by, ``score`` (see :mod:`joao.evaluation.targets`; that of
            classes may be called by its own name, ``accuracy``) or ``loss``, which is also taken where their labels
            allow no score; of equally good epochs the last is kept (decision 0007).
        frozen: whether the encoder stays as it is and only the linear layer learns.
        balanced: whether every class weighs the same, in the loss and in the accuracy of the validation graphs, however
            many graphs it has; likewise yes and no of each task. Numbers know no classes.
        standardise: whether embeddings are shifted and scaled, once, to mean 0 and deviation 1 over the training graphs
            as they are before fine-tuning; normalisation inside the encoder is calibrated on these graphs before,
            unless it is frozen.
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 0.001
    patience: int = 0
    choose_by: str = "score"
    frozen: bool = False
    balanced: bool = False
    standardise: bool = False

    def __post_init__(self) -> None:
        for name, bound in {"epochs": 1, "batch_size": 2, "patience": 0}.items():
            if getattr(self, name) < bound:
                raise UserError(f"fine-tuning: {name} must be at least {bound}, got {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise UserError(f"fine-tuning: learning_rate must be above 0, got {self.learning_rate}.")
        if self.choose_by not in ("score", "accuracy", "loss"):
            raise UserError(f"fine-tuning: choose_by must be 'score', 'accuracy' or 'loss', got '{self.choose_by}'.")


def default_learning_rate(frozen: bool) -> float:
    """A linear layer alone takes larger steps."""
    return 0.01 if frozen else 0.001


@dataclass(frozen=True)
class FitEpoch:
    """What an epoch of fine-tuning showed.

    Attributes:
        loss: the mean over the batches, by their graphs.
        validation_loss: of the validation graphs; None without any.
        validation_score: likewise, and None where their labels allow no score.
    """

    loss: float
    validation_loss: float | None = None
    validation_score: float | None = None

    @classmethod
    def of(cls, loss: float, validation_loss: float, validation_score: float) -> FitEpoch:
        """With a score that may be NaN."""
        return cls(loss, validation_loss, None if math.isnan(validation_score) else validation_score)

    def check(self, learning_rate: float) -> None:
        """An error where a loss is no number."""
        for value in (self.loss, self.validation_loss):
            if value is not None and not math.isfinite(value):
                raise UserError(
                    f"fine-tuning: the loss became {value}. Lower the learning rate ({learning_rate}) or scale the "
                    "node attributes."
                )

    def score(self, choose_by: str) -> float:
        """The higher the better; without validation all epochs are equally good."""
        if self.validation_loss is None:
            return 0.0
        return -self.validation_loss if choose_by == "loss" or self.validation_score is None else self.validation_score


@dataclass(frozen=True)
class Fit:
    """A fine-tuning that is over: what every epoch showed, and the number, from 1 on, of the one that was kept."""

    epochs: tuple[FitEpoch, ...]
    chosen: int


class Finetuning:
    """Fine-tunes one encoder, again and again from the same start, on different parts of the same graphs.

    Args:
        store: the graphs, on any device; they are moved to the fabric's.
        targets: the graphs' labels; of graphs that are never learned from nor looked at, anything.
        encoder: where every fit starts; changed in place.
        how: see :class:`Finetune`.
        fabric: the device, precision and launch, of Lightning.
        pool: augmentations; every training batch is shown under one of them, drawn uniformly; none: as it is.
        fast: whether to train on padded batches; None: on a GPU, where possible.
        seed: of the linear layer's first weights.
    """

    def __init__(
        self,
        store: GraphStore,
        targets: Targets,
        encoder: Encoder,
        how: Finetune,
        fabric: Fabric | None = None,
        pool: Sequence[Augmentation] = (),
        fast: bool | None = None,
        seed: int = 0,
    ) -> None:
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.device = self.fabric.device
        self.store, self.targets = store.to(self.device), targets.to(self.device)
        self.how, self.pool = how, list(pool) or [Identity()]
        if how.choose_by == "accuracy" and not isinstance(targets, ClassTargets):
            raise UserError("fine-tuning: only classes have an accuracy to choose by. Choose by 'score' or 'loss'.")
        on_gpu = self.device.type == "cuda"
        reason = "a frozen encoder needs none" if how.frozen else find_padding_obstacle(encoder, self.pool, self.fabric)
        self.is_fast = choose_fast_path("fine-tuning", fast, reason, on_gpu)
        with temporary_seed(seed, "classifier"):
            self.classifier = Classifier(encoder, targets.num_outputs).to(self.device)
        learning = self.classifier.linear if how.frozen else self.classifier
        self.optimiser = torch.optim.Adam(
            learning.parameters(), lr=how.learning_rate, fused=True, capturable=on_gpu and self.is_fast
        )
        self.model, self.wrapped_optimiser = self.fabric.setup(self.classifier, self.optimiser)
        self.scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        self.scaler_start = None if self.scaler is None else copy.deepcopy(self.scaler.state_dict())
        self.start = self.last = self.state()
        nobody = torch.zeros(0, dtype=torch.long, device=self.device)
        self.statistics = self.targets.training_statistics(nobody, how.balanced).unsqueeze(0)
        self.loss_sum = torch.zeros((), device=self.device)
        self.views_generator = torch_generator(seed, "fine-tuning views", self.device)
        self.recorder = CudaGraphRunner(self.device, [self.views_generator])
        self.rooms = BufferPool(drop_unused_edge_attr(encoder, self.store), 1, self.recorder) if self.is_fast else None

    def fit(
        self,
        train: Tensor,
        validation: Tensor,
        seed: int = 0,
        on_epoch: Callable[[FitEpoch], None] = lambda epoch: None,
        start: Sequence[Tensor] | None = None,
    ) -> Fit:
        """Starts again and learns from the graphs ``train``; the epoch that the graphs ``validation`` prefer is kept.

        :meth:`to_last` goes on to the last epoch.

        Args:
            train, validation: ``(n,)`` numbers of graphs, on the CPU; without validation graphs the last epoch is kept.
            seed: of batches and augmentations.
            on_epoch: told what each epoch showed.
            start: weights to start with, see :meth:`start_of`; None: those that it was made with.
        """
        if train.numel() < 2:
            raise UserError(f"fine-tuning: needs two graphs or more to learn from, got {train.numel()}.")
        self.begin(train, seed, start)
        generators = [torch_generator(seed, f"fine-tuning {purpose}") for purpose in ("batches", "augmentations")]
        looked_at = self._batches(validation)
        frozen = self._embeddings(train) if self.how.frozen else None
        kept, chosen, improved, best = self.state(), 0, 0, -math.inf
        epochs: list[FitEpoch] = []
        while len(epochs) < self.how.epochs:
            with temporary_seed(seed, f"fine-tuning epoch {len(epochs)}", self.device), matmul_precision(self.fabric):
                loss = self._train_epoch(train, frozen, *generators)
                epochs.append(self._look(loss, looked_at, validation))
            on_epoch(epochs[-1])
            score = epochs[-1].score(self.how.choose_by)
            if score > best:
                best, improved = score, len(epochs)
            if score == best:
                chosen = len(epochs)
                torch._foreach_copy_(kept, list(self.classifier.state_dict().values()))
            if looked_at and self.how.patience and len(epochs) - improved >= self.how.patience:
                break
        self.last = self.state()
        self.set_state(kept)
        return Fit(tuple(epochs), chosen)

    def to_last(self) -> None:
        """Goes from the epoch that was chosen to the last one of the same fit."""
        self.set_state(self.last)

    @torch.no_grad()
    def logits(self, graphs: Tensor) -> Tensor:
        """``(n, C)`` for the graphs numbered ``graphs`` ``(n,)``, in evaluation mode."""
        return self._logits(self._batches(graphs))

    @torch.no_grad()
    def score(self, graphs: Tensor) -> float:
        """Of the graphs numbered ``graphs`` ``(n,)``, see :class:`~joao.evaluation.targets.Targets`; it may be NaN."""
        numbers = graphs.to(self.device).unsqueeze(0)
        return self.targets.scores(self.logits(graphs).unsqueeze(0), numbers, self.statistics).item()

    def start_of(self, seed: int, encoder: Encoder | None = None) -> list[Tensor]:
        """Other weights to start with: a linear layer's, drawn by ``seed``, and an encoder's, by default its own."""
        with temporary_seed(seed, "classifier"):
            made = Classifier(encoder or self.classifier.encoder, self.targets.num_outputs).to(self.device)
        return [
            (first if encoder is None and name.startswith("encoder.") else drawn).clone()
            for first, (name, drawn) in zip(self.start, made.state_dict().items(), strict=True)
        ]

    def begin(self, train: Tensor, seed: int, start: Sequence[Tensor] | None = None) -> None:
        """Puts everything into the state from which the graphs ``train`` are learned."""
        self.set_state(self.start if start is None else start)
        if self.scaler is not None:
            self.scaler.load_state_dict(self.scaler_start)
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()
        self.views_generator.manual_seed(torch_generator(seed, "fine-tuning views").initial_seed())
        self.statistics.copy_(self.targets.training_statistics(train.to(self.device), self.how.balanced))
        if self.how.standardise:
            if not self.how.frozen:  # after a short pre-training, what normalisation remembers is not settled
                draws = torch_generator(seed, "fine-tuning calibration")
                calibrate(self.classifier.encoder, self.store, self.how.batch_size, draws, train.cpu())
            embeddings = self._embeddings(train)
            deviation = embeddings.std(0, correction=0)
            rounding = 1e-5 * embeddings.abs().amax(0)  # the deviation of equal numbers may come out as 1e-8, not 0
            self.classifier.shift.copy_(embeddings.mean(0))
            self.classifier.scale.copy_(torch.where(deviation > rounding, deviation, 1))

    def _train_epoch(
        self, train: Tensor, frozen: Tensor | None, batches: torch.Generator, augmentations: torch.Generator
    ) -> float:
        self.classifier.train()
        self.loss_sum.zero_()
        drawn = split_into_batches(torch.randperm(train.numel(), generator=batches), self.how.batch_size)
        if frozen is not None:
            for places in drawn:
                logits = self.classifier.classify(frozen[places.to(self.device)])
                self._descend(logits, train[places].to(self.device))
            return self.loss_sum.item() / train.numel()
        graphs = [train[places] for places in drawn]
        placed = (
            [DeviceBatch(each.to(self.device)) for each in graphs] if self.rooms is None else self.rooms.place(graphs)
        )
        for batch in placed:
            number = int(torch.randint(len(self.pool), (), generator=augmentations))
            if self.rooms is not None and batch.fits:
                self._replay(self.rooms, batch.graphs, number)
            else:
                view = self.pool[number](self.store.batch(batch.graphs), self.views_generator)
                self._descend(self.model(*view.fields), batch.graphs)
        return self.loss_sum.item() / train.numel()

    def _loss(self, logits: Tensor, graphs: Tensor) -> Tensor:
        loss = self.targets.losses(logits.float().unsqueeze(0), graphs.unsqueeze(0), self.statistics).squeeze(0)
        self.loss_sum += loss.detach() * graphs.numel()
        return loss

    def _descend(self, logits: Tensor, graphs: Tensor) -> None:
        self.wrapped_optimiser.zero_grad()
        self.fabric.backward(self._loss(logits, graphs))
        self.wrapped_optimiser.step()

    def _replay(self, rooms: BufferPool, graphs: Tensor, number: int) -> None:
        room = rooms.filled(graphs)
        rooms.show(room, 0, number, cast(list[PaddedAugmentation], self.pool), self.views_generator)
        self.recorder.run(("step", graphs.numel()), lambda: self._padded_step(room))

    def _padded_step(self, room: PaddedBuffers) -> None:
        with self.fabric.autocast():
            embeddings = cast(PaddedEncoder, self.classifier.encoder).encode_padded(room.views)[0]
            logits = self.classifier.classify(embeddings)
        self.optimiser.zero_grad()
        self._loss(logits, room.graphs).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    @torch.no_grad()
    def _look(self, loss: float, batches: Sequence[GraphBatch], graphs: Tensor) -> FitEpoch:
        epoch = FitEpoch(loss)
        if batches:
            shown = self._logits(batches).unsqueeze(0), graphs.to(self.device).unsqueeze(0), self.statistics
            epoch = FitEpoch.of(loss, self.targets.losses(*shown).item(), self.targets.scores(*shown).item())
        epoch.check(self.how.learning_rate)
        return epoch

    def _batches(self, graphs: Tensor) -> list[GraphBatch]:
        """The graphs in batches that memory holds; what is once looked at is looked at after every epoch."""
        if not graphs.numel():
            return []
        graphs = graphs.to(self.device)
        return [self.store.batch(part) for part in batches_by_size(self.store, graphs)]

    @torch.no_grad()
    def _embeddings(self, graphs: Tensor) -> Tensor:
        self.classifier.eval()
        return torch.cat([self.classifier.encoder(batch) for batch in self._batches(graphs)]).float()

    def _logits(self, batches: Sequence[GraphBatch]) -> Tensor:
        self.classifier.eval()
        return torch.cat([self.classifier.classify(self.classifier.encoder(batch)) for batch in batches]).float()

    def state(self) -> list[Tensor]:
        """A copy of the tensors of the classifier's ``state_dict``."""
        return [value.clone() for value in self.classifier.state_dict().values()]

    def set_state(self, values: Sequence[Tensor]) -> None:
        """Gives the classifier the tensors of another's ``state_dict``."""
        torch._foreach_copy_(list(self.classifier.state_dict().values()), list(values))
