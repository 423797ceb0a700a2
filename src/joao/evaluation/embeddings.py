"""The unsupervised protocol: an SVM on frozen embeddings, ten folds, five shared partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from joao.core.errors import UserError, short_repr
from joao.core.randomness import numpy_generator
from joao.evaluation import statistics
from joao.evaluation.folds import Fold, fold_hash, folds
from joao.evaluation.svm import C_GRID, FoldScores, Kernel, Parts, check_embeddings, kernel_matrix, score_folds
from joao.evaluation.svm_linear import NUM_LANDMARKS, cosines, scale_rows, score_folds_linear
from joao.kernels.native import load_library, native_level
from joao.kernels.svm_dual import has_fast_solver

Scorer = Literal["auto", "exact", "compiled", "linear"]
SCORERS = ("auto", "exact", "compiled", "linear")
# ``auto`` is linear above this number of graphs: time and memory of the others grow at least with its square.
EXACT_UP_TO = 10_000


def choose_scorer(name: str, num_graphs: int, num_folds: int = 10, device: str = "cpu") -> Scorer:
    """Return ``exact``, ``compiled`` or ``linear``; an error if it is not possible."""
    if name not in SCORERS:
        raise UserError(f"scorer: expected {', '.join(SCORERS)}, got {short_repr(name)}.")
    if name == "compiled" and load_library() is None:
        raise UserError(f"scorer 'compiled': the compiled core is {native_level()}. Use the exact scorer.")
    chosen = cast(Scorer, name)
    if name == "auto":
        is_compiled = load_library() is not None and not has_fast_solver(num_graphs, device)
        chosen = "linear" if num_graphs > EXACT_UP_TO else "compiled" if is_compiled else "exact"
    if chosen == "linear" and num_folds < 3:
        raise UserError(
            f"scorer 'linear': expected at least 3 folds, got {num_folds}. Use more folds or the exact scorer."
        )
    return chosen


def describe_scorer(scorer: str) -> str:
    """Name a scorer in the output and in records."""
    if scorer in ("exact", "compiled"):
        return "SVM" if scorer == "exact" else "SVM of the compiled core"
    return f"linear scorer (Nyström, {NUM_LANDMARKS:,} landmarks, squared loss)"


@final
@dataclass(frozen=True)
class PartitionScores:
    """Scores on the folds of one partition, and the hash that identifies these folds."""

    partition: int
    fold_hash: str
    folds: FoldScores

    @property
    def mean(self) -> float:
        return statistics.mean(self.folds.accuracies)


@final
@dataclass(frozen=True)
class Scores:
    """Accuracies (0 to 1) on all folds of all partitions."""

    partitions: tuple[PartitionScores, ...]
    standardise: bool = True
    kernel: Kernel = "rbf"
    side_by_side: bool = False  # whether the machines were fitted together on a GPU, not one by one with libsvm
    scorer: Scorer = "exact"

    @property
    def mean(self) -> float:
        return statistics.mean([part.mean for part in self.partitions])

    @property
    def std(self) -> float | None:
        """Sample standard deviation of the partitions' mean accuracies; None for one partition."""
        return statistics.sample_std([part.mean for part in self.partitions])

    @property
    def accuracies(self) -> list[list[float]]:
        """One row per partition, one column per fold."""
        return [list(part.folds.accuracies) for part in self.partitions]

    def gain_over(self, baseline: Scores) -> statistics.Gain:
        """Compute the paired gain over a baseline that was scored on the same folds."""
        ours, theirs = ([part.fold_hash for part in scores.partitions] for scores in (self, baseline))
        if ours != theirs:
            raise UserError(
                f"paired gain: the fold hashes differ: {', '.join(ours)} and {', '.join(theirs)}. "
                "Score both on the same classes, partitions and number of folds."
            )
        return statistics.paired_gain(self.accuracies, baseline.accuracies)

    def to_json(self) -> dict[str, Any]:
        """Return everything in types that JSON supports."""
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
            **({} if self.scorer == "exact" else {"scorer": describe_scorer(self.scorer)}),
            "partitions": partitions,
        }


def evaluate_embeddings(
    embeddings: ArrayLike | csr_array | Parts,
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
    scorer: Scorer = "exact",
    on_fold: Callable[[int, float], None] | None = None,
) -> Scores:
    """Score frozen embeddings with a support vector machine on every fold of every partition.

    The other arguments are those of :func:`joao.evaluation.svm.score_folds`.

    Args:
        class_names: names of the classes in error messages.
        partitions: numbers of the shared partitions. They determine the folds, which are the same for every method.
        groups: ``(G,)`` group numbers. Graphs of one group stay in the same fold, also in the inner folds. See
            :func:`joao.data.refinement.find_twins`.
        scorer: ``exact`` (libsvm or, on a GPU, its machines side by side), ``compiled`` (the compiled core: several
            times as fast, but within libsvm's tolerance instead of equal to it), ``linear``
            (:mod:`joao.evaluation.svm_linear`), or ``auto``: linear above :data:`EXACT_UP_TO` graphs, otherwise
            compiled if there is a compiled core and ``device`` is no GPU, otherwise exact.
    """
    if not len(partitions):
        raise UserError("evaluation: no partitions given. Give at least one, such as 0.")
    folds_of = [folds(classes, each, num_folds, class_names=class_names, groups=groups) for each in partitions]
    scorer = choose_scorer(scorer, len(classes), num_folds, device)
    all_folds = [fold for partition in folds_of for fold in partition]
    if scorer == "linear":
        scores = _score_linear(embeddings, classes, folds_of, kernel, standardise, jobs, on_fold)
    else:
        options: dict[str, Any] = {"groups": groups, "jobs": jobs, "device": device, "on_fold": on_fold}
        options["compiled"] = scorer == "compiled"
        scores = score_folds(embeddings, classes, all_folds, kernel=kernel, standardise=standardise, **options)
    parts = []
    for index, (partition, partition_folds) in enumerate(zip(partitions, folds_of, strict=True)):
        own = slice(index * num_folds, (index + 1) * num_folds)
        fold_scores = FoldScores(scores.accuracies[own], scores.chosen_c[own])
        parts.append(PartitionScores(partition, fold_hash(partition_folds), fold_scores))
    side_by_side = scorer == "exact" and has_fast_solver(len(classes), device)
    return Scores(tuple(parts), standardise and kernel != "linear", kernel, side_by_side, scorer)


def _score_linear(
    embeddings: ArrayLike | csr_array | Parts,
    classes: NDArray[np.int64],
    partitions: Sequence[Sequence[Fold]],
    kernel: Kernel,
    standardise: bool,
    jobs: int,
    on_fold: Callable[[int, float], None] | None,
) -> FoldScores:
    parts: Any = embeddings if kernel == "mean" else [(embeddings, kernel)]
    scaled = []
    for rows, own in parts:
        x, gamma = scale_rows(check_embeddings(rows, classes)[0], own == "linear", standardise)
        scaled.append((x, cosines if own == "linear" else partial(kernel_matrix, gamma=gamma)))
    scores: list[tuple[float, float]] = []
    with threadpool_limits(jobs, user_api="blas"):
        for folds_of_partition in partitions:
            for score in score_folds_linear(scaled, classes, folds_of_partition, C_GRID):
                scores.append(score)
                if on_fold is not None:
                    on_fold(len(scores) - 1, score[0])
    return FoldScores(*map(tuple, zip(*scores, strict=True)))


def permute_classes(classes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Permute the classes over the graphs: a sound evaluation then scores at chance level."""
    return numpy_generator(seed, "labels").permutation(classes)
