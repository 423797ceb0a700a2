"""The semi-supervised protocol: an encoder is fine-tuned with few labels in each fold and tested on the rest."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from joao.core.randomness import derive_seed
from joao.evaluation import statistics
from joao.evaluation.splits import Split
from joao.training.finetune import Finetuning
from repro.protocols.stacked_fits import Part, fit_all


@final
@dataclass(frozen=True)
class FewLabelsScore:
    """What a fold showed.

    Attributes:
        accuracy: on the test graphs, at the epoch that the validation graphs chose.
        epoch: that epoch, from 1 on.
        validation_accuracy: of that epoch; 0 if all labelled graphs train.
    """

    accuracy: float
    epoch: int
    validation_accuracy: float


@final
@dataclass(frozen=True)
class FewLabelsScores:
    """The scores of all folds of a partition."""

    folds: tuple[FewLabelsScore, ...]

    @property
    def mean(self) -> float:
        return statistics.mean([fold.accuracy for fold in self.folds])

    def to_json(self) -> dict[str, Any]:
        """Everything, in types that JSON has; one list for each kind of figure."""
        rows = [asdict(fold) for fold in self.folds]
        return {"mean": self.mean, **{name: [row[name] for row in rows] for name in rows[0]}}


def score_splits(
    finetuning: Finetuning, classes: NDArray[np.int64], splits: Sequence[Split], seed: int, *, last_epoch: bool = False
) -> FewLabelsScores:
    """Fine-tunes from the same start in every fold; the test graphs are looked at once, when the epoch is chosen.

    Args:
        finetuning: of all graphs.
        classes: ``(G,)`` class numbers.
        splits: the folds, see :func:`repro.splits.few_label_splits`.
        seed: of batches and augmentations; each fold has its own from it.
        last_epoch: train on all labelled graphs and keep the last epoch.
    """
    parts = []
    for number, split in enumerate(splits):
        train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
        if last_epoch:
            # Stacked fits need a validation graph; the epoch that it selects is not used.
            train = torch.cat([train, validation]).sort().values
            validation = train[:1]
        parts.append(Part(train, validation, derive_seed(seed, f"fold {number}")))
    scores = []
    for split, fit in zip(splits, fit_all(finetuning, parts), strict=True):
        if last_epoch:
            finetuning.restore_last_epoch()
        predicted = finetuning.logits(torch.from_numpy(split.test)).argmax(1).cpu().numpy()
        epoch = len(fit.epochs) if last_epoch else fit.chosen
        validation_accuracy = 0.0 if last_epoch else float(fit.epochs[epoch - 1].validation_score or 0)
        accuracy = float((predicted == classes[split.test]).mean())
        scores.append(FewLabelsScore(accuracy, epoch, validation_accuracy))
    return FewLabelsScores(tuple(scores))
