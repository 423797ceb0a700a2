"""Fine-tuning: an encoder and a linear layer on top of it learn the labels of some graphs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from joao.augmentations import Augmentation, Identity
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.randomness import temporary_seed, torch_generator
from joao.encoders import Encoder
from joao.evaluation.targets import ClassTargets, Targets
from joao.training.device import make_fabric, matmul_precision
from joao.training.fast.batches import choose_fast_path, find_padding_obstacle
from joao.training.fast.steps import PaddedFinetuningSteps
from joao.training.metrics import Fit, FitEpoch
from joao.training.model import (
    batches_by_size,
    calibrate,
    preserve_buffers,
    reset_silent_channels,
    split_into_batches,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Classifier(nn.Module):
    """Encoder, standardisation of its embeddings, and a linear layer."""

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
        """Map ``(G, d)`` embeddings to ``(G, C)`` logits or, with stacked weights, ``(F, G, d)`` to ``(F, G, C)``."""
        standardised = (embeddings - self.shift.unsqueeze(-2)) / self.scale.unsqueeze(-2)
        return standardised @ self.linear.weight.mT + self.linear.bias.unsqueeze(-2)

    def forward(self, *fields: Any) -> Tensor:
        # The arguments are plain tensors, because Fabric's wrappers for precision do not look into a GraphBatch.
        return self.classify(self.encoder(GraphBatch(*fields)))


@dataclass(frozen=True)
class Finetune:
    """Settings of fine-tuning.

    Args:
        epochs: maximum number of passes over the training graphs.
        batch_size: graphs in a batch.
        learning_rate: learning rate of Adam.
        patience: stop after this many epochs without a strictly better validation; 0: never stop early.
        choose_by: criterion on the validation graphs that chooses the epoch: ``score`` (see
            :mod:`joao.evaluation.targets`; for classes also called ``accuracy``) or ``loss``, which is also used if the
            score is undefined for their labels; of equally good epochs the last is kept (decision 0007).
        frozen: train only the linear layer and leave the encoder as it is.
        balanced: give every class the same weight in the loss and in the validation accuracy, whatever its size; for
            tasks, likewise the two classes of each task. Ignored for regression.
        standardise: shift and scale embeddings, once, to mean 0 and deviation 1 over the training graphs before
            fine-tuning; unless the encoder is frozen, its batch normalisation is calibrated on these graphs first.
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
    """Return the default learning rate, which is larger if only the linear layer is trained."""
    return 0.01 if frozen else 0.001


class Finetuning:
    """Fine-tune one encoder repeatedly, each time from the same weights, on different parts of the same graphs.

    Args:
        store: the graphs, on any device; they are moved to the device of ``fabric``.
        targets: labels of the graphs; those of graphs outside of training and validation are ignored.
        encoder: start of every fit; changed in place.
        settings: see :class:`Finetune`.
        fabric: Lightning's device and precision.
        pool: augmentations; every training batch is augmented with one of them, drawn uniformly; empty: none.
        fast: whether to train on padded batches; None: on a GPU, if possible.
        seed: seed of the initial weights of the linear layer.
        resets_silent: whether validation and the result of a fit use :func:`joao.training.model.reset_silent_channels`,
            unless the encoder is frozen. The published code has nothing like it.
    """

    def __init__(
        self,
        store: GraphStore,
        targets: Targets,
        encoder: Encoder,
        settings: Finetune,
        fabric: Fabric | None = None,
        pool: Sequence[Augmentation] = (),
        fast: bool | None = None,
        seed: int = 0,
        resets_silent: bool = False,
    ) -> None:
        self.resets_silent = resets_silent and not settings.frozen
        self.fabric = fabric or make_fabric("cpu", "32-true")
        self.device = self.fabric.device
        self.store, self.targets = store.to(self.device), targets.to(self.device)
        self.settings, self.pool = settings, list(pool) or [Identity()]
        if settings.choose_by == "accuracy" and not isinstance(targets, ClassTargets):
            raise UserError("fine-tuning: choose_by = 'accuracy' needs classes. Use 'score' or 'loss'.")
        on_gpu = self.device.type == "cuda"
        self.is_fast = False
        if fast or (fast is None and on_gpu):
            frozen = "a frozen encoder is not trained" if settings.frozen else ""
            obstacle = frozen or find_padding_obstacle(encoder, self.pool, self.fabric)
            self.is_fast = choose_fast_path("fine-tuning", fast, obstacle)
        with temporary_seed(seed, "classifier"):
            self.classifier = Classifier(encoder, targets.num_outputs).to(self.device)
        trained = self.classifier.linear if settings.frozen else self.classifier
        self.optimiser = torch.optim.Adam(
            trained.parameters(), lr=settings.learning_rate, fused=True, capturable=on_gpu and self.is_fast
        )
        self.model, self.wrapped_optimiser = self.fabric.setup(self.classifier, self.optimiser)
        self.scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        self.scaler_start = None if self.scaler is None else copy.deepcopy(self.scaler.state_dict())
        self.start = self.last = self.state()
        none = torch.zeros(0, dtype=torch.long, device=self.device)
        self.statistics = self.targets.training_statistics(none, settings.balanced).unsqueeze(0)
        self.loss_sum = torch.zeros((), device=self.device)
        self.views_generator = torch_generator(seed, "fine-tuning views", self.device)
        self.padded_steps = PaddedFinetuningSteps(self) if self.is_fast else None

    def fit(
        self,
        train: Tensor,
        validation: Tensor,
        seed: int = 0,
        on_epoch: Callable[[FitEpoch], None] = lambda epoch: None,
        start: Sequence[Tensor] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Fit:
        """Reset the weights, train on the graphs ``train`` and keep the epoch that is best on ``validation``.

        :meth:`restore_last_epoch` switches to the weights of the last epoch.

        Args:
            train, validation: ``(n,)`` indices of graphs, on the CPU; without validation graphs the last epoch is kept.
            seed: seed of batches and augmentations.
            on_epoch: called with the metrics of each epoch.
            start: initial weights, see :meth:`initial_weights`; None: those at construction.
            should_stop: called after each epoch; training ends when it returns True.
        """
        if train.numel() < 2:
            raise UserError(f"fine-tuning: needs at least two training graphs, got {train.numel()}.")
        self.reset(train, seed, start)
        generators = [torch_generator(seed, f"fine-tuning {purpose}") for purpose in ("batches", "augmentations")]
        validation_batches = self._batches(validation)
        frozen = self._embeddings(train) if self.settings.frozen else None
        chosen_state, chosen, improved, best = self.state(), 0, 0, -math.inf
        epochs: list[FitEpoch] = []
        while len(epochs) < self.settings.epochs:
            with temporary_seed(seed, f"fine-tuning epoch {len(epochs)}", self.device), matmul_precision(self.fabric):
                loss = self._train_epoch(train, frozen, *generators)
                epochs.append(self._validate(loss, validation_batches, validation))
            on_epoch(epochs[-1])
            score = epochs[-1].score(self.settings.choose_by)
            if score > best:
                best, improved = score, len(epochs)
            if score == best:
                chosen = len(epochs)
                torch._foreach_copy_(chosen_state, list(self.classifier.state_dict().values()))
            if validation_batches and self.settings.patience and len(epochs) - improved >= self.settings.patience:
                break
            if should_stop():
                break
        self.last = self.state()
        self.set_state(chosen_state)
        if self.resets_silent:
            reset_silent_channels(self.classifier)
        return Fit(tuple(epochs), chosen)

    def restore_last_epoch(self) -> None:
        """Switch from the weights of the chosen epoch to those of the last epoch of the same fit."""
        self.set_state(self.last)
        if self.resets_silent:
            reset_silent_channels(self.classifier)

    @torch.no_grad()
    def logits(self, graphs: Tensor) -> Tensor:
        """Return the logits ``(n, C)`` of the graphs with indices ``graphs`` ``(n,)``, in evaluation mode."""
        return self._logits(self._batches(graphs))

    @torch.no_grad()
    def score(self, graphs: Tensor) -> float:
        """Return the score of ``graphs`` ``(n,)``, see :class:`~joao.evaluation.targets.Targets`; it may be NaN."""
        indices = graphs.to(self.device).unsqueeze(0)
        return self.targets.scores(self.logits(graphs).unsqueeze(0), indices, self.statistics).item()

    def initial_weights(self, seed: int, encoder: Encoder | None = None) -> list[Tensor]:
        """Return other initial weights: a new linear layer drawn with ``seed``, and those of ``encoder`` if given."""
        with temporary_seed(seed, "classifier"):
            new = Classifier(encoder or self.classifier.encoder, self.targets.num_outputs).to(self.device)
        return [
            (first if encoder is None and name.startswith("encoder.") else drawn).clone()
            for first, (name, drawn) in zip(self.start, new.state_dict().items(), strict=True)
        ]

    def reset(self, train: Tensor, seed: int, start: Sequence[Tensor] | None = None) -> None:
        """Prepare weights, optimiser, generators and standardisation for training on the graphs ``train``."""
        self.set_state(self.start if start is None else start)
        if self.scaler is not None:
            self.scaler.load_state_dict(self.scaler_start)
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()
        self.views_generator.manual_seed(torch_generator(seed, "fine-tuning views").initial_seed())
        self.statistics.copy_(self.targets.training_statistics(train.to(self.device), self.settings.balanced))
        if self.settings.standardise:
            if not self.settings.frozen:  # after a short pre-training the running statistics have not converged
                draws = torch_generator(seed, "fine-tuning calibration")
                calibrate(self.classifier.encoder, self.store, self.settings.batch_size, draws, train.cpu())
            embeddings = self._embeddings(train)
            deviation = embeddings.std(0, correction=0)
            rounding = 1e-5 * embeddings.abs().amax(0)  # rounding may make the deviation of equal numbers 1e-8, not 0
            self.classifier.shift.copy_(embeddings.mean(0))
            self.classifier.scale.copy_(torch.where(deviation > rounding, deviation, 1))

    def _train_epoch(
        self, train: Tensor, frozen: Tensor | None, batches: torch.Generator, augmentations: torch.Generator
    ) -> float:
        self.classifier.train()
        self.loss_sum.zero_()
        drawn = split_into_batches(torch.randperm(train.numel(), generator=batches), self.settings.batch_size)
        if frozen is not None:
            for indices in drawn:
                logits = self.classifier.classify(frozen[indices.to(self.device)])
                self._update(logits, train[indices].to(self.device))
        else:
            steps = self.padded_steps or self
            for batch in steps.load([train[indices] for indices in drawn]):
                steps.train(batch, int(torch.randint(len(self.pool), (), generator=augmentations)))
        return self.loss_sum.item() / train.numel()

    def load(self, batches: Sequence[Tensor]) -> list[Any]:
        """Move batches (indices of graphs on the CPU) to the device."""
        return [graphs.to(self.device) for graphs in batches]

    def train(self, batch: Any, index: int) -> None:
        """Update the weights on the graphs ``batch``, augmented with augmentation ``index``."""
        view = self.pool[index](self.store.batch(batch), self.views_generator)
        self._update(self.model(*view.fields), batch)

    def loss(self, logits: Tensor, graphs: Tensor) -> Tensor:
        """Return the loss, ``()``, of a batch and add it to the sum of the epoch."""
        loss = self.targets.losses(logits.float().unsqueeze(0), graphs.unsqueeze(0), self.statistics).squeeze(0)
        self.loss_sum += loss.detach() * graphs.numel()
        return loss

    def _update(self, logits: Tensor, graphs: Tensor) -> None:
        self.wrapped_optimiser.zero_grad()
        self.fabric.backward(self.loss(logits, graphs))
        self.wrapped_optimiser.step()

    @torch.no_grad()
    def _validate(self, loss: float, batches: Sequence[GraphBatch], graphs: Tensor) -> FitEpoch:
        epoch = FitEpoch(loss)
        if batches:
            outcome = self._logits(batches).unsqueeze(0), graphs.to(self.device).unsqueeze(0), self.statistics
            epoch = FitEpoch.of(loss, self.targets.losses(*outcome).item(), self.targets.scores(*outcome).item())
        epoch.check(self.settings.learning_rate)
        return epoch

    def _batches(self, graphs: Tensor) -> list[GraphBatch]:
        """Batch the graphs so that memory suffices; validation batches are made once and reused in every epoch."""
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
        with preserve_buffers(self.classifier) if self.resets_silent else nullcontext():
            if self.resets_silent:
                reset_silent_channels(self.classifier)
            return torch.cat([self.classifier.classify(self.classifier.encoder(batch)) for batch in batches]).float()

    def state(self) -> list[Tensor]:
        """Return a copy of the tensors of the classifier's ``state_dict``."""
        return [value.clone() for value in self.classifier.state_dict().values()]

    def set_state(self, values: Sequence[Tensor]) -> None:
        """Set the tensors of the classifier's ``state_dict``."""
        torch._foreach_copy_(list(self.classifier.state_dict().values()), list(values))
