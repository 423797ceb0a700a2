"""Labels of several tasks, of which some are not measured: what they are, and how well they are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.core.errors import UserError, short_repr, suggest
from joao.data.dataset import Dataset
from joao.evaluation.targets import roc_auc

Labels = NDArray[np.float32]


def select_tasks(dataset: Dataset, tasks: Sequence[str] = ()) -> Dataset:
    """The graphs that have a label of ``tasks``, with these alone; of all tasks, if none are named."""
    if dataset.targets is None:
        raise UserError(f"{dataset.name}: has no tasks, that is, no columns of labels that are numbers.")
    unknown = [name for name in tasks if name not in dataset.target_names]
    if unknown:
        raise UserError(
            f"{dataset.name}: no task {short_repr(unknown[0])}. {suggest(unknown[0], dataset.target_names)}"
        )
    names = tuple(dict.fromkeys(tasks)) or dataset.target_names
    targets = dataset.targets[:, [dataset.target_names.index(name) for name in names]]
    labelled = np.flatnonzero(~np.isnan(targets).all(axis=1))
    if not len(labelled):
        raise UserError(
            f"{dataset.name}: no graph has a label of {join_names(names)}. Fill some in, or name other tasks."
        )
    dataset = dataset if len(labelled) == len(dataset) else dataset.subset(labelled)
    return replace(dataset, targets=targets[labelled], target_names=names)


def infer_label_kind(dataset: Dataset, wanted: str | None = None) -> str:
    """``binary`` if all labels are 0 or 1, ``numbers`` if every task has others; tasks of both kinds are an error.

    Where one of them is ``wanted``, it is that, or an error.
    """
    assert dataset.targets is not None
    is_label = np.isnan(dataset.targets) | np.isin(dataset.targets, (0, 1))
    if wanted == "numbers":
        return wanted
    if wanted == "binary" and not is_label.all():
        row, task = np.argwhere(~is_label)[0]
        raise UserError(
            f"{dataset.name}: graph {row} has {dataset.targets[row, task]:g} for task {dataset.target_names[task]}; a "
            "classifier of tasks takes 0, 1 and NaN. JOAORegressor learns numbers."
        )
    is_binary: NDArray[np.bool_] = np.all(is_label, axis=0)
    if is_binary.all():
        return "binary"
    if is_binary.any():
        yes_or_no, numbers = (
            join_names([name for name, each in zip(dataset.target_names, is_binary, strict=True) if each == wanted])
            for wanted in (True, False)
        )
        raise UserError(
            f"{dataset.name}: some tasks have 0 and 1 alone ({yes_or_no}), others have other numbers ({numbers}); "
            "they cannot be learned together. Choose some with --tasks (tasks= in Python)."
        )
    return "numbers"


def integer_labels_notice(dataset: Dataset) -> str | None:
    """Says which tasks of ``numbers`` look as if they were classes: at most ten different whole numbers, up to 10."""
    assert dataset.targets is not None
    columns = zip(dataset.target_names, dataset.targets.T, strict=True)
    found = [(name, np.unique(column[~np.isnan(column)])) for name, column in columns]
    few = [(name, values) for name, values in found if 1 < len(values) <= 10 and _are_small_and_whole(values)]
    if not few:
        return None
    name, values = few[0]
    *others, last = [f"{value:g}" for value in values]
    more = f" ({len(few) - 1} more tasks are like it)" if len(few) > 1 else ""
    fix = "write 0 and 1 for yes and no" if len(values) == 2 else "for classes, write a column of 0 and 1 for each"
    return f"{dataset.name}: {name} holds only {', '.join(others)} and {last}{more}: learned as numbers; {fix}."


def check_learnable(dataset: Dataset, kind: str, train: NDArray[np.int64]) -> None:
    """An error where the graphs ``train`` have the same label throughout, in every task."""
    assert dataset.targets is not None
    labels = dataset.targets[train]
    most = np.where(np.isnan(labels), -np.inf, labels).max(axis=0)
    least = np.where(np.isnan(labels), np.inf, labels).min(axis=0)
    if not (most > least).any():
        what = "0 and 1" if kind == "binary" else "different numbers"
        raise UserError(
            f"{dataset.name}: no task has {what} among the {len(train)} graphs to learn from "
            f"({join_names(dataset.target_names)}). Label more graphs, or try another split or seed."
        )


def task_figures(
    kind: str,
    predicted: Labels,
    labels: Labels,
    names: Sequence[str],
    learned: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """How well tasks are predicted, each of them, and on average over those of which it can be told.

    ``roc_auc`` of ``binary`` tasks needs both labels. ``numbers`` have ``rmse`` and ``mae``, in their own units, and,
    where it is known what was learned from, ``rmse_of_mean``, of always predicting the mean; of both RMSE there is the
    average in units of each task's deviation, ``..._in_deviations``. What cannot be told is None.

    Args:
        kind: ``binary`` or ``numbers``.
        predicted: ``(G, T)`` anything that is higher for graphs more likely to be 1, or numbers.
        labels: ``(G, T)``, NaN where not measured.
        names: of the tasks.
        learned: of each task of ``numbers``, mean and deviation of the labels learned from.
    """
    if kind == "binary":
        found = {"roc_auc": roc_auc(torch.from_numpy(predicted), torch.from_numpy(labels)).numpy()}
    else:
        errors = np.abs(predicted.astype(np.float64) - labels)
        found = {"rmse": np.sqrt(_column_means(errors**2)), "mae": _column_means(errors)}
    averages = {name: _mean(values) for name, values in found.items()}
    if kind == "numbers" and learned is not None:
        mean, deviation = np.array(learned, dtype=np.float64).T
        found["rmse_of_mean"] = np.sqrt(_column_means((labels - mean) ** 2))
        averages |= {f"{name}_in_deviations": _mean(found[name] / deviation) for name in ("rmse", "rmse_of_mean")}
    measured = (~np.isnan(labels)).sum(axis=0)
    return {
        **averages,
        "labels": int(measured.sum()),
        "tasks": {
            task: {
                **{name: _nan_to_none(values[place]) for name, values in found.items()},
                "labels": int(measured[place]),
            }
            for place, task in enumerate(names)
        },
    }


def _are_small_and_whole(values: Labels) -> bool:
    return bool((values == np.round(values)).all() and (np.abs(values) <= 10).all())


def _column_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over what is not NaN; NaN where all is."""
    count = (~np.isnan(values)).sum(axis=0)
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def join_names(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
