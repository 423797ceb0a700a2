"""Few labels: which graphs of a training part have one, and which of those choose the epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.errors import UserError
from joao.evaluation.folds import Indices, folds
from joao.randomness import numpy_generator


class Split(NamedTuple):
    """Graphs to learn from, to choose the epoch with, and to test on."""

    train: Indices
    validation: Indices
    test: Indices


def few_labels(
    classes: NDArray[np.int64],
    partition: int,
    label_rate: float,
    *,
    num_folds: int = 10,
    validation_share: float = 0.1,
    class_names: Sequence[str] = (),
) -> list[Split]:
    r"""The folds of partition ``partition`` with few labels each.

    Of a training part of :math:`n` graphs, :math:`\mathrm{round}(r n)` have a label, every class its share of them and
    one graph at least. :func:`hold_out` takes the validation graphs out of this budget. The test part is no part of
    either, and the graphs between are unlabelled.

    A function of its arguments alone, so that all methods learn from the same labels.

    Args:
        classes: ``(G,)`` class numbers.
        partition: which of the shared partitions, see :func:`joao.evaluation.folds.folds`.
        label_rate: :math:`r`, the share of the training part that has a label.
        num_folds: of the partition.
        validation_share: of the labelled graphs.
        class_names: what messages call the classes.
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
                f"labels: a label rate of {100 * label_rate:.3g} % gives {budget} labelled graphs; {needed - 1} "
                f"classes need one each to learn from and one more to choose the epoch. Use at least {enough:g} %."
            )
        labelled = stratified(classes[train], budget, generator)
        learn, choose = hold_out(classes[train[labelled]], validation_share, generator)
        splits.append(Split(train[labelled[learn]], train[labelled[choose]], test))
    return splits


def split_hash(splits: Sequence[Split]) -> str:
    """16 hexadecimal digits of all parts of all folds; scores with equal hashes may be paired."""
    digest = hashlib.sha256()
    for split in splits:
        for part in split:
            digest.update(part.astype("<i8").tobytes() + b"/")
    return digest.hexdigest()[:16]


def hold_out(classes: NDArray[np.int64], share: float, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """The places of labelled graphs to learn from, and of about a ``share`` of them held out to choose the epoch with.

    Every class keeps a graph to learn from; what is held out is stratified as far as that allows.
    """
    if not 0 < share < 1:
        raise UserError(f"labels: the share of validation graphs must be between 0 and 1, got {share}.")
    num_classes = len(np.unique(classes))
    most = len(classes) - num_classes
    held_out = min(max(1, round(share * len(classes))), most)
    if held_out < 1:
        raise UserError(
            f"labels: {len(classes)} labelled graphs of {num_classes} classes leave none to choose the epoch with. "
            "Label more graphs."
        )
    learn = stratified(classes, len(classes) - held_out, generator)
    return learn, np.setdiff1d(np.arange(len(classes)), learn)


def stratified(classes: NDArray[np.int64], number: int, generator: np.random.Generator) -> Indices:
    """``number`` places, ascending, every class with its share of them (by largest remainder) and one at least."""
    values, sizes = np.unique(classes, return_counts=True)
    assert number >= len(values)
    exact = number * sizes / len(classes)
    counts = np.maximum(np.floor(exact).astype(np.int64), 1)
    while counts.sum() < number:
        counts[np.argmax(np.where(counts < sizes, exact - counts, -np.inf))] += 1
    while counts.sum() > number:  # where a rare class got its one
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    chosen = [
        generator.choice(np.flatnonzero(classes == value), count, replace=False)
        for value, count in zip(values, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)
