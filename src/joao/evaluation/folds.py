"""The shared partitions of a data set into folds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from joao.errors import UserError
from joao.randomness import derived_seed

Indices = NDArray[np.int64]
Fold = tuple[Indices, Indices]


def folds(
    classes: NDArray[np.int64], partition: int, num_folds: int = 10, *, class_names: Sequence[str] = ()
) -> list[Fold]:
    """Partition number ``partition`` of the graphs into stratified, shuffled folds.

    A function of its arguments alone, so that all methods are scored on the same folds.

    Args:
        classes: ``(G,)`` class numbers.
        partition: which of the shared partitions; any integer.
        num_folds: at least 2, at most the size of the smallest class.
        class_names: what messages call the classes.

    Returns:
        Train and test graphs of each fold, ascending.
    """
    classes = np.asarray(classes)
    if num_folds < 2:
        raise UserError(f"folds: num_folds must be at least 2, got {num_folds}.")
    values, counts = np.unique(classes, return_counts=True)
    if len(values) < 2:
        raise UserError(f"folds: {len(values)} class among {len(classes)} graphs; scoring needs at least two.")
    if counts.min() < num_folds:
        rarest, count = values[counts.argmin()], counts.min()
        name = class_names[rarest] if class_names else rarest
        raise UserError(
            f"folds: class '{name}' has {count} graphs, fewer than the {num_folds} folds. "
            + (f"Use at most {count} folds, or leave" if count > 1 else "Leave")
            + " the class out."
        )
    splitter = StratifiedKFold(num_folds, shuffle=True, random_state=derived_seed(partition, "folds") % 2**32)
    return [
        (train.astype(np.int64), test.astype(np.int64))
        for train, test in splitter.split(np.zeros(len(classes)), classes)
    ]


def fold_hash(folds: Sequence[Fold]) -> str:
    """16 hexadecimal digits of the test parts; scores with equal hashes may be paired."""
    digest = hashlib.sha256()
    for _, test in folds:
        digest.update(np.asarray(test, dtype="<i8").tobytes() + b"/")
    return digest.hexdigest()[:16]
