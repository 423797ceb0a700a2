"""Speed of the SVM protocol, compared with a plain grid search that gives the same scores."""

import os
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from joao.config.recipe import make_recipe
from joao.core.errors import UserError
from joao.data import read_whole
from joao.evaluation.folds import Fold, folds
from joao.evaluation.svm import C_GRID, NUM_INNER_FOLDS, FoldScores, score_folds
from joao.runs.pretraining import pretrain
from joao.runs.scoring import require_classes
from repro.benchmarks.plan import Plan
from repro.benchmarks.timing import paired_ratio

NUM_FOLDS = 10
DATA, QUICK_DATA = "NCI1", "MUTAG"
MEASURED_FOLDS = 4
Scorer = Callable[[Sequence[Fold]], FoldScores]


def measure_svm(plan: Plan) -> dict[str, Any]:
    """Measure the protocol on embeddings of JOAO with its older default settings."""
    dataset = read_whole(QUICK_DATA if plan.quick else DATA, plan.data_root)
    classes = require_classes(dataset)
    trained = pretrain(
        make_recipe(
            {"features": "auto", "encoder": {"name": "gin", "readout": "sum"}, "training": {"seed": plan.seed}}
        ),
        dataset,
    )
    measured = svm_protocol(trained.embed(dataset).numpy(), classes, MEASURED_FOLDS)
    return {"data": dataset.name, **measured}


def svm_protocol(
    embeddings: ArrayLike, classes: NDArray[np.int64], num_folds_measured: int = 2, jobs: int = 2
) -> dict[str, Any]:
    """Time four ways to score the same folds, in turns, and compare their scores.

    A turn is ``jobs`` folds, and every turn begins with another way, so that a machine that is busy for a while is
    unfair to none. Other programs still
    take from the ways with several jobs what those would gain: the record tells the machine's load, and the
    processor's seconds where all of the work is in this process.

    Args:
        embeddings: ``(G, d)``.
        classes: ``(G,)`` class numbers.
        num_folds_measured: outer folds, taken from the shared partitions into ten in their order.
        jobs: of the parallel ways: folds at a time for ours, ``n_jobs`` of the plain search inside each fold.
    """
    if num_folds_measured < 1 or jobs < 2:
        raise UserError(
            f"svm benchmark: needs one fold or more and two jobs or more, got {num_folds_measured} and {jobs}."
        )
    x = np.ascontiguousarray(embeddings, dtype=np.float64)
    partitions = range(-(-num_folds_measured // NUM_FOLDS))
    measured = list(chain.from_iterable(folds(classes, number, NUM_FOLDS) for number in partitions))
    measured = measured[:num_folds_measured]
    ways: dict[str, Scorer] = {
        "plain, 1 job": lambda part: plain_scores(x, classes, part, jobs=1),
        f"plain, {jobs} jobs": lambda part: plain_scores(x, classes, part, jobs=jobs),
        "ours, 1 job": lambda part: score_folds(x, classes, part, jobs=1),
        f"ours, {jobs} jobs": lambda part: score_folds(x, classes, part, jobs=jobs),
    }
    _start_workers(jobs)
    load = [os.getloadavg()[0]]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    of_processor: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[FoldScores]] = {name: [] for name in ways}
    for turn, first in enumerate(range(0, len(measured), jobs)):
        order = list(ways)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            score = ways[name]
            started, used = time.perf_counter(), time.process_time()
            scores = score(measured[first : first + jobs])
            seconds[name].append(time.perf_counter() - started)
            of_processor[name].append(time.process_time() - used)
            found[name].append(scores)
        load.append(os.getloadavg()[0])
    del of_processor[f"plain, {jobs} jobs"]  # it works in other processes
    return {
        "graphs": len(x),
        "dimensions": x.shape[1],
        "classes": len(np.unique(classes)),
        "folds": len(measured),
        "jobs": jobs,
        "load of the machine before and after each turn": load,
        "seconds of each turn": seconds,
        "times faster": _ratios(seconds),
        "processor seconds of each turn": of_processor,
        "times less of the processor": _ratios(of_processor),
        "identical": all(each == found["plain, 1 job"] for each in found.values()),
        "scores": {
            name: {
                "accuracies": [accuracy for scores in each for accuracy in scores.accuracies],
                "chosen_c": [c for scores in each for c in scores.chosen_c],
            }
            for name, each in found.items()
        },
    }


def plain_scores(
    x: NDArray[np.float64], classes: NDArray[np.int64], measured: Sequence[Fold], *, jobs: int = 1
) -> FoldScores:
    """A grid search over scaler and SVM in every fold, without this package."""
    accuracies, chosen = [], []
    for train, test in measured:
        search: Any = GridSearchCV(
            make_pipeline(StandardScaler(), SVC()),
            {"svc__C": C_GRID},
            cv=StratifiedKFold(NUM_INNER_FOLDS),
            n_jobs=jobs,
        ).fit(x[train], classes[train])
        accuracies.append(float(search.score(x[test], classes[test])))
        chosen.append(float(search.best_params_["svc__C"]))
    return FoldScores(tuple(accuracies), tuple(chosen))


def _ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Compare each plain way with each of ours: the median of the ratios inside turns."""
    plain, ours = ([name for name in seconds if name.startswith(way)] for way in ("plain", "ours"))
    return {f"{one} / {other}": paired_ratio(seconds[one], seconds[other]).median for one in plain for other in ours}


def _start_workers(jobs: int) -> None:
    """Worker processes of the plain search, which are reused; their start is not timed."""
    classes = np.arange(8 * NUM_INNER_FOLDS) % 2
    x = np.stack([classes, 1.0 - classes], axis=1)
    plain_scores(x, classes, [(np.arange(len(x)), np.arange(len(x)))], jobs=jobs)
