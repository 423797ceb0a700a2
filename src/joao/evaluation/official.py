"""The protocol of the OGB setting: few labels of the official training part, the official validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from joao.data.ogb_labels import OfficialSplit
from joao.errors import UserError
from joao.evaluation.labels import Split, stratified
from joao.randomness import derived_seed, numpy_generator
from joao.training.finetune import Finetuning


@final
@dataclass(frozen=True)
class OfficialScore:
    """What a seed showed.

    Attributes:
        seed: of the labelled graphs, the linear layer and the batches.
        epoch: that the validation graphs chose, from 1 on.
        validation, test: scores at that epoch; validation is None where its labels allow none.
    """

    seed: int
    epoch: int
    validation: float | None
    test: float


def labelled_part(
    split: OfficialSplit, label_rate: float, seed: int, classes: NDArray[np.int64] | None = None
) -> Split:
    r"""The official split with labels for :math:`\lfloor r n \rfloor` of the :math:`n` training graphs.

    They are drawn with every class having its share where there are ``classes`` ``(G,)`` of graphs, and at random where
    there are none. A function of its arguments alone, so that all methods learn from the same labels. The other parts
    stay whole.
    """
    if not 0 < label_rate <= 1:
        raise UserError(f"labels: the label rate must be above 0 and at most 1 (100 %), got {label_rate}.")
    number = int(np.floor(label_rate * len(split.train) + 1e-9))
    least = 2 if classes is None else max(2, len(np.unique(classes[split.train])))
    if number < least:
        raise UserError(
            f"labels: {100 * label_rate:.3g} % of {len(split.train)} training graphs are {number}; {least} are needed."
        )
    generator = numpy_generator(seed, f"labels of the training part at {label_rate}")
    if classes is None:
        places = np.sort(generator.choice(len(split.train), number, replace=False))
    else:
        places = stratified(classes[split.train], number, generator)
    return Split(split.train[places], split.validation, split.test)


def score_seed(finetuning: Finetuning, split: Split, seed: int) -> OfficialScore:
    """Fine-tunes once; the test graphs are looked at once, when the epoch is chosen."""
    train, validation, test = map(torch.from_numpy, split)
    fit = finetuning.fit(train, validation, derived_seed(seed, "OGB"))
    kept = fit.epochs[fit.chosen - 1]
    return OfficialScore(seed, fit.chosen, kept.validation_score, finetuning.score(test))


def strata_of(targets: NDArray[np.float32]) -> NDArray[np.int64] | None:
    """Classes to draw by, where there is one task of 0 and 1 without gaps; None for others."""
    if targets.shape[1] != 1 or not np.isin(targets, (0, 1)).all():
        return None
    return targets[:, 0].astype(np.int64)
