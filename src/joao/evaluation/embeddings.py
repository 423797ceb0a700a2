"""The unsupervised protocol: frozen embeddings, ten folds, five shared partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.evaluation import statistics
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.svm import FoldScores, Kernel, score_folds
from joao.kernels.svm_dual import has_fast_solver


@final
@dataclass(frozen=True)
class PartitionScores:
    """The scores of one partition's folds, and the hash that says which folds these were."""

    partition: int
    fold_hash: str
    folds: FoldScores

    @property
    def mean(self) -> float:
        return statistics.mean(self.folds.accuracies)


@final
@dataclass(frozen=True)
class Scores:
    """Accuracies, as shares of 1, on all folds of all partitions, by libsvm or by machines fitted side by side."""

    partitions: tuple[PartitionScores, ...]
    standardise: bool = True
    kernel: Kernel = "rbf"
    side_by_side: bool = False

    @property
    def mean(self) -> float:
        """Of the partitions' mean accuracies."""
        return statistics.mean([part.mean for part in self.partitions])

    @property
    def std(self) -> float | None:
        """Sample deviation of the partitions' mean accuracies; None for one partition."""
        return statistics.sample_std([part.mean for part in self.partitions])

    @property
    def accuracies(self) -> list[list[float]]:
        """A row for each partition, a column for each fold."""
        return [list(part.folds.accuracies) for part in self.partitions]

    def gain_over(self, baseline: Scores) -> statistics.Gain:
        """The paired gain over a baseline that was scored on the same folds."""
        ours, theirs = ([part.fold_hash for part in scores.partitions] for scores in (self, baseline))
        if ours != theirs:
            raise UserError(
                f"paired gain: the folds differ ({', '.join(ours)} against {', '.join(theirs)}). "
                "Score both on the same classes, partitions and number of folds."
            )
        num_folds = len(self.accuracies[0])
        return statistics.paired_gain(self.accuracies, baseline.accuracies, num_train_per_test=num_folds - 1)

    def to_json(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        partitions = [
            {
                "partition": part.partition,
                "fold_hash": part.fold_hash,
                "mean": part.mean,
                "accuracies": list(part.folds.accuracies),
                "chosen_c": list(part.folds.chosen_c),
            }
            for part in self.partitions
        ]
        return {
            "mean": self.mean,
            "std": self.std,
            "standardise": self.standardise,
            **({} if self.kernel == "rbf" else {"kernel": self.kernel}),
            **({"machines": "side by side on a GPU"} if self.side_by_side else {}),
            "partitions": partitions,
        }


def evaluate_embeddings(
    embeddings: ArrayLike | csr_array,
    classes: NDArray[np.int64],
    *,
    class_names: Sequence[str] = (),
    partitions: Sequence[int] = range(5),
    num_folds: int = 10,
    kernel: Kernel = "rbf",
    standardise: bool = True,
    groups: NDArray[np.int64] | None = None,
    jobs: int = 1,
    device: str = "cpu",
    on_fold: Callable[[int, float], None] | None = None,
) -> Scores:
    """Scores frozen embeddings with a support vector machine on every fold of every partition.

    Args:
        embeddings: ``(G, d)``, for the linear kernel also a sparse array.
        classes: ``(G,)`` class numbers.
        class_names: what messages call the classes.
        partitions: numbers of the shared partitions; they alone decide the folds, the same for every method.
        num_folds: of each partition.
        kernel: ``linear`` for the feature map of a graph kernel; see :mod:`joao.evaluation.svm`.
        standardise: False is the published, unscaled form; the linear kernel has no other.
        groups: ``(G,)`` numbers; graphs of the same number are in the same fold, also where C is chosen. See
            :func:`joao.data.refinement.find_twins`.
        jobs: folds at a time, of all partitions; the scores do not depend on it.
        device: of the machines, ``cpu`` or ``cuda``; see :func:`joao.evaluation.svm.score_folds`.
        on_fold: called after each fold with how many were done before it and its accuracy.
    """
    if not len(partitions):
        raise UserError("evaluation: no partitions given. Name at least one, such as 0.")
    folds_of = [
        folds(classes, partition, num_folds, class_names=class_names, groups=groups) for partition in partitions
    ]
    scores = score_folds(
        embeddings,
        classes,
        [fold for partition in folds_of for fold in partition],
        kernel=kernel,
        standardise=standardise,
        groups=groups,
        jobs=jobs,
        device=device,
        on_fold=on_fold,
    )
    parts = []
    for index, (partition, partition_folds) in enumerate(zip(partitions, folds_of, strict=True)):
        own = slice(index * num_folds, (index + 1) * num_folds)
        fold_scores = FoldScores(scores.accuracies[own], scores.chosen_c[own])
        parts.append(PartitionScores(partition, fold_hash(partition_folds), fold_scores))
    side_by_side = has_fast_solver(len(classes), device)
    return Scores(tuple(parts), standardise and kernel == "rbf", kernel, side_by_side)


def permute_classes(classes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The same classes on other graphs: an evaluation that is honest scores no better than chance on them."""
    return numpy_generator(seed, "labels").permutation(classes)
