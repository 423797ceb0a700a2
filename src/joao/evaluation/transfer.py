"""The transfer protocol: an encoder is fine-tuned on one split of the labelled graphs, from several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from joao.evaluation.labels import Split
from joao.randomness import derived_seed
from joao.training.finetune import Finetuning
from joao.training.stacked import Part, fit_all


@final
@dataclass(frozen=True)
class TransferScore:
    """What a seed showed.

    Attributes:
        seed: of linear layer and batches; side by side, the dropout of all seeds is drawn together.
        epoch: that the validation graphs chose, from 1 on.
        validation, test: scores at that epoch; validation is None where its labels allow none.
        last_test: that of the last epoch, which the published tables have.
    """

    seed: int
    epoch: int
    validation: float | None
    test: float
    last_test: float


def parts_of(split: Split, starts: Mapping[int, Sequence[Tensor]]) -> list[Part]:
    """A fit for every seed, to the same graphs."""
    train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
    return [Part(train, validation, derived_seed(seed, "transfer"), start) for seed, start in starts.items()]


def score_seeds(finetuning: Finetuning, split: Split, starts: Mapping[int, Sequence[Tensor]]) -> list[TransferScore]:
    """Fine-tunes from every seed; the test graphs are looked at when all is over, and choose nothing.

    Args:
        finetuning: of all graphs.
        split: of their numbers.
        starts: seed to weights, see :meth:`Finetuning.start_of`.
    """
    test, scores = torch.from_numpy(split.test), []
    for seed, fit in zip(starts, fit_all(finetuning, parts_of(split, starts)), strict=True):
        validation = fit.epochs[fit.chosen - 1].validation_score
        at_chosen = finetuning.score(test)
        finetuning.to_last()
        scores.append(TransferScore(seed, fit.chosen, validation, at_chosen, last_test=finetuning.score(test)))
    return scores
