"""Labels of several tasks, of which some are not measured: what they are, and how well they are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.data.base import Dataset, shown
from joao.errors import UserError, nearest
from joao.training.targets import roc_auc

Labels = NDArray[np.float32]


def with_tasks(dataset: Dataset, tasks: Sequence[str] = ()) -> Dataset:
    """The graphs that have a label of ``tasks``, with these alone; of all tasks, if none are named."""
    if dataset.targets is None:
        raise UserError(f"{dataset.name}: has no tasks, that is, no columns of labels that are numbers.")
    unknown = [name for name in tasks if name not in dataset.target_names]
    if unknown:
        raise UserError(f"{dataset.name}: no task {shown(unknown[0])}. {nearest(unknown[0], dataset.target_names)}")
    names = tuple(dict.fromkeys(tasks)) or dataset.target_names
    targets = dataset.targets[:, [dataset.target_names.index(name) for name in names]]
    labelled = np.flatnonzero(~np.isnan(targets).all(axis=1))
    if not len(labelled):
        raise UserError(f"{dataset.name}: no graph has a label of {_listed(names)}. Fill some in, or name other tasks.")
    dataset = dataset if len(labelled) == len(dataset) else dataset.subset(labelled)
    return replace(dataset, targets=targets[labelled], target_names=names)


def kind_of(dataset: Dataset, wanted: str | None = None) -> str:
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
            _listed([name for name, each in zip(dataset.target_names, is_binary, strict=True) if each == wanted])
            for wanted in (True, False)
        )
        raise UserError(
            f"{dataset.name}: some tasks have 0 and 1 alone ({yes_or_no}), others have other numbers ({numbers}); "
            "they cannot be learned together. Choose some with --tasks (tasks= in Python)."
        )
    return "numbers"


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
            f"({_listed(dataset.target_names)}). Label more graphs, or try another split or seed."
        )


def task_figures(kind: str, predicted: Labels, labels: Labels, names: Sequence[str]) -> dict[str, Any]:
    """How well tasks are predicted, each of them, and on average over those of which it can be told.

    ``roc_auc`` of ``binary`` tasks needs both labels. ``numbers`` have ``rmse`` and ``mae``, in their own units. What
    cannot be told is None.

    Args:
        kind: ``binary`` or ``numbers``.
        predicted: ``(G, T)`` anything that is higher for graphs more likely to be 1, or numbers.
        labels: ``(G, T)``, NaN where not measured.
        names: of the tasks.
    """
    if kind == "binary":
        found = {"roc_auc": roc_auc(torch.from_numpy(predicted), torch.from_numpy(labels)).numpy()}
    else:
        errors = np.abs(predicted.astype(np.float64) - labels)
        count = np.maximum((~np.isnan(errors)).sum(axis=0), 1)
        nothing = np.where(np.isnan(errors).all(axis=0), np.nan, 0)
        found = {
            "rmse": np.sqrt(np.nansum(errors**2, axis=0) / count) + nothing,
            "mae": np.nansum(errors, axis=0) / count + nothing,
        }
    measured = (~np.isnan(labels)).sum(axis=0)
    return {
        **{name: _mean(values) for name, values in found.items()},
        "labels": int(measured.sum()),
        "tasks": {
            task: {**{name: _told(values[place]) for name, values in found.items()}, "labels": int(measured[place])}
            for place, task in enumerate(names)
        },
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _told(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
