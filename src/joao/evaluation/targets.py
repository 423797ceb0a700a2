"""What fine-tuning learns of graphs: a class, several tasks of yes or no, or numbers; its loss and its score.

Losses and scores are of F parts at once, each with G graphs and a model of its own. They have fixed shapes and ask the
device nothing, so that they can be recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.errors import UserError, short_repr, suggest
from joao.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Targets(ABC):
    """Labels of graphs.

    Attributes:
        values: a row for each graph.
        missing: stands in ``values`` where there is no label; it has a say in no loss and no score.
        metric: what :meth:`scores` are called.
    """

    values: Tensor
    missing: ClassVar[float]
    metric: ClassVar[str]

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Columns of the model's outputs."""

    @abstractmethod
    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        """What the training graphs ``(n,)`` determine for losses and scores, in a tensor of one shape.

        Args:
            train: numbers of graphs.
            balanced: whether every class weighs the same, however many graphs have it.
        """

    @abstractmethod
    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        """``(F,)`` means over all labels; 0 where there are none.

        Args:
            outputs: ``(F, G, C)`` of the models.
            graphs: ``(F, G)`` their numbers.
            statistics: ``(F, ...)`` by :meth:`training_statistics`.
        """

    @abstractmethod
    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        """``(F,)`` in float64, the higher the better; NaN where the labels do not allow one. Takes what losses take."""

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return replace(self, values=self.values.to(device))

    def with_unlabelled_graph(self) -> Self:
        """One more graph, the last, without labels."""
        nobody = torch.full_like(self.values[:1], self.missing)
        return replace(self, values=torch.cat([self.values, nobody]))


@final
@dataclass(frozen=True, eq=False)
class ClassTargets(Targets):
    r"""One class out of several: weighted cross-entropy, and the weighted share of graphs that are told right.

    Settled are the weights of the classes, ``(C,)``: 1, or balanced :math:`n / (k n_c)` if :math:`n_c` of :math:`n`
    graphs are of class c, and there are k classes among them.

    Args:
        values: ``(G,)`` class numbers from 0 on; -1 for a graph without.
        num_classes: of the data.
    """

    num_classes: int
    missing = -1
    metric = "accuracy"

    @property
    def num_outputs(self) -> int:
        return self.num_classes

    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        counts = torch.bincount(self.values[train], minlength=self.num_classes)
        weights = train.numel() / (counts.clamp(min=1) * (counts > 0).sum().clamp(min=1))
        return weights if balanced else torch.ones_like(weights)

    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        classes = self.values[graphs]
        some_class = classes.clamp(min=0)
        weights = statistics.gather(1, some_class) * (classes >= 0)
        costs = F.cross_entropy(outputs.flatten(0, 1), some_class.flatten(), reduction="none").view_as(classes)
        return weighted_mean(weights, costs)

    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        r""":math:`\sum_c w_c r_c / \sum_c w_c n_c`: r of the n graphs of a class are right.

        By counts, so that it is the same number whichever graphs of a class are right.
        """
        classes = self.values[graphs]
        member = F.one_hot(classes.clamp(min=0), self.num_classes).double() * (classes >= 0).unsqueeze(2)
        of_right = (member * (outputs.argmax(2) == classes).unsqueeze(2)).sum(1)
        weights = statistics.double()
        return (weights * of_right).sum(1) / (weights * member.sum(1)).sum(1)


@final
@dataclass(frozen=True, eq=False)
class BinaryTargets(Targets):
    r"""Several tasks of yes or no: binary cross-entropy over all labels there are, and the mean ROC-AUC.

    Settled are the weights of no and yes, ``(2, T)``, as those of classes, task by task. The ROC-AUC is the mean over
    the tasks that have both among the labels; NaN where an output for a label is.

    Args:
        values: ``(G, T)`` 0 or 1; NaN where not measured.
    """

    missing = float("nan")
    metric = "ROC-AUC"

    @property
    def num_outputs(self) -> int:
        return self.values.shape[1]

    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        labels = self.values[train]
        counts = torch.stack([(labels == 0).sum(0), (labels == 1).sum(0)])
        weights = counts.sum(0) / (counts.clamp(min=1) * (counts > 0).sum(0).clamp(min=1))
        return weights if balanced else torch.ones_like(weights)

    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        labels = self.values[graphs]
        weights = torch.where(labels == 1, statistics[:, 1:], statistics[:, :1]) * ~labels.isnan()
        costs = F.binary_cross_entropy_with_logits(outputs, labels.nan_to_num(), reduction="none")
        return weighted_mean(weights.flatten(1), costs.flatten(1))

    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        labels = self.values[graphs]
        is_damaged = (outputs.isnan() & ~labels.isnan()).flatten(1).any(1)
        return torch.where(is_damaged, torch.nan, torch.nanmean(roc_auc(outputs, labels), dim=1))


@final
@dataclass(frozen=True, eq=False)
class NumberTargets(Targets):
    r"""Several tasks of numbers: the mean squared error, and less the root of it.

    Settled are mean and deviation, ``(2, T)``, of each task's labels. The model's outputs are numbers shifted and
    scaled by them, and so are losses and scores: no task weighs more because of its unit. The score is
    :math:`-\frac1T \sum_t \mathrm{RMSE}_t / \sigma_t`, over the tasks that have labels.

    Args:
        values: ``(G, T)``; NaN where not measured.
    """

    missing = float("nan")
    metric = "-RMSE"

    @property
    def num_outputs(self) -> int:
        return self.values.shape[1]

    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        labels = self.values[train].double()
        is_measured = ~labels.isnan()
        mean = weighted_mean(is_measured.T, labels.nan_to_num().T)
        deviation = weighted_mean(is_measured.T, (labels - mean).nan_to_num().square().T).sqrt()
        rounding = 1e-7 * mean.abs()  # the deviation of equal numbers may not come out as 0
        return torch.stack([mean, torch.where(deviation > rounding, deviation, 1)]).to(self.values.dtype)

    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        is_measured, squares = self._squares(outputs, graphs, statistics)
        return weighted_mean(is_measured.flatten(1), squares.flatten(1))

    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        is_measured, squares = self._squares(outputs.double(), graphs, statistics)
        errors = weighted_mean(is_measured.mT, squares.mT).sqrt()
        return -torch.nanmean(torch.where(is_measured.any(1), errors, torch.nan), dim=1)

    @torch.no_grad()
    def restore_units(self, linear: nn.Linear, statistics: Tensor) -> None:
        """Changes the layer that gives outputs so that they are numbers in their own units, by :meth:`training_statistics`."""
        mean, deviation = statistics
        linear.weight.mul_(deviation.unsqueeze(1))
        linear.bias.mul_(deviation).add_(mean)

    def _squares(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """``(F, G, T)`` whether there is a label, and the squared error, 0 where there is none."""
        labels = (self.values[graphs] - statistics[:, :1]) / statistics[:, 1:]
        return ~labels.isnan(), torch.where(labels.isnan(), 0, outputs - labels.nan_to_num()).square()


KINDS: dict[str, type[Targets]] = {"classes": ClassTargets, "binary": BinaryTargets, "numbers": NumberTargets}


def roc_auc(outputs: Tensor, labels: Tensor) -> Tensor:
    r"""The area under the ROC curve of each column, in float64; NaN for one that has not both labels, or an output NaN.

    .. math:: \frac{1}{n_1 n_0} \sum_{i : y_i = 1} \sum_{j : y_j = 0} [s_i > s_j] + \tfrac12 [s_i = s_j]

    The inner sum is found by a search among the sorted outputs of label 0; infinities are numbers like others.

    Args:
        outputs: ``(..., G, T)`` s.
        labels: ``(..., G, T)`` y, 0 or 1; all others are left out.
    """
    s, y = outputs.mT.contiguous(), labels.mT.contiguous()
    is_one, is_zero = y == 1, y == 0
    num_ones, num_zeros = is_one.sum(-1, dtype=torch.float64), is_zero.sum(-1)
    zeros = torch.where(is_zero, s, torch.inf).sort(dim=-1).values
    below, not_above = (torch.searchsorted(zeros, s, right=right) for right in (False, True))
    not_above = not_above.minimum(num_zeros.unsqueeze(-1))  # the infinities that stand for nothing come last
    wins = torch.where(is_one, (below + not_above).double() / 2, 0).sum(-1)
    is_damaged = (s.isnan() & (is_one | is_zero)).any(-1)
    return torch.where(is_damaged, torch.nan, wins / (num_ones * num_zeros))


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted mean over the last dimension; 0 where nothing has a weight."""
    total = weights.sum(-1)
    return (weights * values).sum(-1) / torch.where(total > 0, total, 1)


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
