"""What pre-training and fine-tuning report, as plain values: importing this loads no model code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from joao.core.errors import UserError


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch of pre-training. Tables are ``(K, K)`` nested lists; row: first view, column: second view.

    Attributes:
        loss: mean over the graphs of the epoch.
        probabilities: table of the policy after the epoch.
        pair_losses: last measured loss of every pair, or None for a policy that does not learn.
        drawn: number of graphs that were augmented with each pair.

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


class BatchMetrics(NamedTuple):
    """How far a pre-training is inside an epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        batch: number of batches done in this epoch.
        batches: number of batches of an epoch.
        loss: mean over the graphs of this epoch so far.
        graphs_per_second: speed since the last report.
        seconds_left: estimated time until the end of the last epoch.
    """

    epoch: int
    batch: int
    batches: int
    loss: float
    graphs_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class FitEpoch:
    """Metrics of one epoch of fine-tuning.

    Attributes:
        loss: mean over the training graphs.
        validation_loss: loss of the validation graphs; None without validation graphs.
        validation_score: score of the validation graphs; None if it is undefined for their labels.
    """

    loss: float
    validation_loss: float | None = None
    validation_score: float | None = None

    @classmethod
    def of(cls, loss: float, validation_loss: float, validation_score: float) -> FitEpoch:
        """Make the metrics from a score that may be NaN."""
        return cls(loss, validation_loss, None if math.isnan(validation_score) else validation_score)

    def __str__(self) -> str:
        """The metrics beside a progress bar."""
        score = self.validation_loss if self.validation_score is None else self.validation_score
        return f"loss {self.loss:.3f}" + ("" if score is None else f", validation {score:.3f}")

    def check(self, learning_rate: float) -> None:
        """Raise a :class:`UserError` if a loss is not finite."""
        for value in (self.loss, self.validation_loss):
            if value is not None and not math.isfinite(value):
                raise UserError(
                    f"fine-tuning: the loss became {value}. Lower the learning rate ({learning_rate}) or scale the "
                    "node attributes."
                )

    def score(self, choose_by: str) -> float:
        """Return the value to maximise; without validation graphs all epochs are equally good."""
        if self.validation_loss is None:
            return 0.0
        return -self.validation_loss if choose_by == "loss" or self.validation_score is None else self.validation_score


@dataclass(frozen=True)
class Fit:
    """A finished fine-tuning: the metrics of every epoch, and the number (from 1) of the epoch that was kept."""

    epochs: tuple[FitEpoch, ...]
    chosen: int
