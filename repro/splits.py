"""Folds with few labelled graphs, as in the semi-supervised table, and the hash of splits in records."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.evaluation.folds import folds, hash_parts
from joao.evaluation.splits import Split, hold_out, sample_stratified


def few_label_splits(
    classes: NDArray[np.int64],
    partition: int,
    label_rate: float,
    *,
    num_folds: int = 10,
    validation_share: float = 0.1,
    class_names: Sequence[str] = (),
) -> list[Split]:
    r"""Make the folds of a partition with few labelled training graphs each.

    In a training part of :math:`n` graphs, a stratified sample of :math:`\mathrm{round}(r n)` graphs keeps its labels,
    with at least one graph per class. :func:`joao.evaluation.splits.hold_out` takes the validation graphs from this
    budget. The other graphs of the training part are unlabelled, and the test part is separate.

    The result depends on the arguments only, so that all methods learn from the same labels.

    Args:
        classes, partition, num_folds, class_names: see :func:`joao.evaluation.folds.folds`.
        label_rate: :math:`r`, the labelled share of the training part.
        validation_share: share of the labelled graphs that is used for validation.
    """
    if not 0 < label_rate <= 1:
        raise UserError(f"labels: the label rate must be above 0 and at most 1 (100 %), got {label_rate}.")
    splits = []
    for number, (train, test) in enumerate(folds(classes, partition, num_folds, class_names=class_names)):
        generator = numpy_generator(partition, f"labels of fold {number} at {label_rate}")
        budget = round(label_rate * len(train))
        needed = len(np.unique(classes)) + 1
        if budget < needed:
            enough = np.ceil(1000 * needed / len(train)) / 10
            raise UserError(
                f"labels: a label rate of {100 * label_rate:.3g} % labels {budget} of {len(train)} graphs; "
                f"{needed - 1} classes need one each for training and one for validation. Use at least {enough:g} %."
            )
        labelled = sample_stratified(classes[train], budget, generator)
        learn, choose = hold_out(classes[train[labelled]], validation_share, generator)
        splits.append(Split(train[labelled[learn]], train[labelled[choose]], test))
    return splits


def split_hash(splits: Sequence[Split]) -> str:
    """Hash all parts of all folds to 16 hexadecimal digits; scores with equal hashes can be paired."""
    return hash_parts(part for split in splits for part in split)
