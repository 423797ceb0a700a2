"""One method: makes its rows for every seed, scores them, and measures what that took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.baselines import BASELINES
from joao.baselines.base import Rows
from joao.comparison.methods import has_seed, is_kernel, make_rows
from joao.data.base import Dataset
from joao.errors import UserError, is_out_of_memory
from joao.evaluation.unsupervised import evaluate_embeddings
from joao.memory import measured
from joao.scoring import classes_of
from joao.training.device import pick_device

Piece = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The seeds of a method that are to be done, on labelled graphs.

    Attributes:
        jobs: folds scored at a time.
        groups: ``(G,)`` numbers of graphs that stay in the same fold.
    """

    method: str
    seeds: Sequence[int]
    dataset: Dataset
    num_folds: int = 10
    epochs: int | None = None
    device: str = "auto"
    jobs: int = 1
    groups: NDArray[np.int64] | None = None


def pieces(task: Task) -> Iterator[Piece]:
    """What each seed showed: accuracies on the partition of its number, time and memory.

    Time and memory are those of making the rows, learning included, from graphs in memory; scoring has its own time.
    What is not random is made once, and its time and memory stand in every piece.
    """
    classes = classes_of(task.dataset)
    device = "cpu" if task.method in BASELINES else pick_device(task.device).type
    rows: Rows | None = None
    cost: dict[str, Any] = {}
    for seed in task.seeds:
        if rows is None or has_seed(task.method):
            make = partial(make_rows, task.method, task.dataset, seed=seed, epochs=task.epochs, device=device)
            rows, seconds, memory = measured(make, device)
            cost = {"seconds": seconds, **memory}
        started = time.perf_counter()
        scores = evaluate_embeddings(
            rows,
            classes,
            class_names=task.dataset.class_names,
            partitions=[seed],
            num_folds=task.num_folds,
            groups=task.groups,
            jobs=task.jobs,
            device=pick_device(task.device).type,  # one scorer for all methods
            kernel="linear" if is_kernel(task.method) else "rbf",
        )
        (partition,) = scores.to_json()["partitions"]
        yield {"seed": seed, **partition, **cost, "seconds of scoring": time.perf_counter() - started}


def reason_of(error: Exception) -> str | None:
    """Why a method cannot do these graphs, in one line; None where the error is a fault of the program."""
    if isinstance(error, UserError):
        return str(error)
    if is_out_of_memory(error):
        return "out of memory."
    return None
