"""Partitions of a data set into folds, shared by all methods."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from joao.core.errors import UserError, quantity
from joao.core.randomness import derive_seed, numpy_generator
from joao.core.registry import check_minimum

Indices = NDArray[np.int64]
Fold = tuple[Indices, Indices]


def folds(
    classes: NDArray[np.int64],
    partition: int,
    num_folds: int = 10,
    *,
    class_names: Sequence[str] = (),
    groups: NDArray[np.int64] | None = None,
) -> list[Fold]:
    """Divide the graphs into stratified, shuffled folds.

    The result depends on the arguments only, so that all methods are scored on the same folds.

    Args:
        classes: ``(G,)`` class numbers.
        partition: number of the shared partition; any integer.
        num_folds: at least 2, at most the size of the smallest class.
        class_names: names of the classes in error messages.
        groups: ``(G,)`` group numbers, for example of :func:`joao.data.refinement.find_twins`. Graphs of one group stay
            in the same fold. Folds then have about the same size and are stratified as far as the groups allow.

    Returns:
        Train and test graphs of each fold, in ascending order.
    """
    classes = np.asarray(classes)
    check_minimum("folds", 2, num_folds=num_folds)
    values, counts = count_per_class(classes, groups)
    if len(values) < 2:
        raise UserError(
            f"folds: expected at least two classes, got {len(values)} in {quantity(len(classes), 'graphs')}."
        )
    if counts.min() < num_folds:
        rarest, count = values[counts.argmin()], counts.min()
        name = class_names[rarest] if class_names else rarest
        graphs = quantity(int(count), "graphs" if groups is None else "different_graphs")
        raise UserError(
            f"folds: class '{name}' has {graphs}, fewer than the {num_folds} folds. "
            + (f"Use at most {count} folds, or remove" if count > 1 else "Remove")
            + " the class."
        )
    if groups is not None:
        # StratifiedGroupKFold(shuffle=True) does not keep groups together in scikit-learn 1.6. Shuffle the numbers
        # of the groups instead: the splitter processes groups in the order of their numbers.
        order = numpy_generator(partition, "folds").permutation(len(classes))
        return grouped_folds(classes, order[np.unique(groups, return_inverse=True)[1]], num_folds)
    splitter = StratifiedKFold(num_folds, shuffle=True, random_state=derive_seed(partition, "folds") % 2**32)
    splits = splitter.split(np.zeros(len(classes)), classes)
    return [(train.astype(np.int64), test.astype(np.int64)) for train, test in splits]


def count_per_class(classes: Indices, groups: Indices | None) -> tuple[Indices, Indices]:
    """Return the classes that occur and the number of groups with each; without groups, the number of graphs."""
    if groups is not None:
        classes = np.unique(np.stack([classes, groups]), axis=1)[0]
    return np.unique(classes, return_counts=True)


def grouped_folds(classes: NDArray[np.int64], groups: NDArray[np.int64], num_folds: int) -> list[Fold]:
    """Divide graphs into stratified folds that keep groups together; depends on the order of the group numbers."""
    splits = list(StratifiedGroupKFold(num_folds).split(np.zeros(len(classes)), classes, groups))
    num_classes = len(np.unique(classes))
    if any(len(np.unique(classes[train])) < num_classes for train, _ in splits):
        raise UserError(
            f"folds: groups of identical graphs are too large for {num_folds} folds: a training part would lack a "
            "class. Use fewer folds, or do not keep twins together."
        )
    return [(train.astype(np.int64), test.astype(np.int64)) for train, test in splits]


def fold_hash(folds: Sequence[Fold]) -> str:
    """Hash the test parts to 16 hexadecimal digits; scores with equal hashes can be paired."""
    return hash_parts(test for _, test in folds)


def hash_parts(parts: Iterable[Indices]) -> str:
    """Hash lists of graphs, in order, to 16 hexadecimal digits."""
    return hashlib.sha256(b"".join(np.asarray(part, dtype="<i8").tobytes() + b"/" for part in parts)).hexdigest()[:16]
