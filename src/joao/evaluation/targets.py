"""Labels for fine-tuning: one class, several binary tasks, or numbers. Their losses, scores and checks.

Losses and scores are computed for F folds at once, each with G graphs and its own model. Their tensors have fixed
shapes and they never synchronise with the host, so that they can be recorded in a CUDA graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.errors import UserError, join_names, short_repr, suggest
from joao.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Targets(ABC):
    """Labels of graphs.

    Attributes:
        values: one row per graph.
        missing: value of a missing label, which losses and scores ignore.
        metric: name of the score.
    """

    values: Tensor
    missing: ClassVar[float]
    metric: ClassVar[str]

    @property
    def num_outputs(self) -> int:
        """Number of columns of the model's outputs."""
        return self.values.shape[1]

    @abstractmethod
    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        """Compute what losses and scores need from the training graphs, as one tensor.

        Args:
            train: ``(n,)`` numbers of the training graphs.
            balanced: whether every class has the same total weight.
        """

    @abstractmethod
    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        """Compute the mean loss ``(F,)`` over all labels; 0 without labels.

        Args:
            outputs: ``(F, G, C)`` outputs of the models.
            graphs: ``(F, G)`` numbers of the graphs.
            statistics: ``(F, ...)`` of :meth:`training_statistics`.
        """

    @abstractmethod
    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        """Compute float64 scores ``(F,)``, higher is better; NaN if the labels do not allow one. See :meth:`losses`."""

    def to(self, device: torch.device) -> Self:
        return replace(self, values=self.values.to(device))


@final
@dataclass(frozen=True, eq=False)
class ClassTargets(Targets):
    r"""One class per graph: weighted cross-entropy and weighted accuracy.

    The statistics are class weights ``(C,)``: 1, or balanced :math:`n / (k n_c)` if :math:`n_c` of :math:`n` graphs
    have class c and k classes occur.

    Args:
        values: ``(G,)`` class numbers from 0; -1 for a missing label.
        num_classes: number of classes in the data.
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
        r""":math:`\sum_c w_c r_c / \sum_c w_c n_c`, where r of the n graphs of a class are correct.

        Counting first makes the result independent of which graphs of a class are correct, bit for bit.
        """
        classes = self.values[graphs]
        member = F.one_hot(classes.clamp(min=0), self.num_classes).double() * (classes >= 0).unsqueeze(2)
        of_right = (member * (outputs.argmax(2) == classes).unsqueeze(2)).sum(1)
        weights = statistics.double()
        return (weights * of_right).sum(1) / (weights * member.sum(1)).sum(1)


@final
@dataclass(frozen=True, eq=False)
class BinaryTargets(Targets):
    r"""Several binary tasks: binary cross-entropy over all labels and mean ROC-AUC.

    The statistics are the weights of 0 and 1 in each task, ``(2, T)``, as for classes. The ROC-AUC is the mean over the
    tasks with both labels; NaN if the output for a label is NaN.

    Args:
        values: ``(G, T)`` 0 or 1; NaN for a missing label.
    """

    missing = float("nan")
    metric = "ROC-AUC"

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
    r"""Several regression tasks: mean squared error, and the negative root of it as score.

    The statistics are mean and standard deviation of each task's labels, ``(2, T)``. Outputs, losses and scores are in
    standardised units, so that no task dominates because of its unit. The score is
    :math:`-\frac1T \sum_t \mathrm{RMSE}_t / \sigma_t` over the tasks with labels.

    Args:
        values: ``(G, T)`` numbers; NaN for a missing label.
    """

    missing = float("nan")
    metric = "-RMSE"

    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        labels = self.values[train].double()
        is_measured = ~labels.isnan()
        mean = weighted_mean(is_measured.T, labels.nan_to_num().T)
        deviation = weighted_mean(is_measured.T, (labels - mean).nan_to_num().square().T).sqrt()
        rounding = 1e-7 * mean.abs()  # rounding may give equal numbers a deviation above 0
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
        """Fold mean and deviation into the output layer, so that its outputs are in the labels' own units."""
        mean, deviation = statistics
        linear.weight.mul_(deviation.unsqueeze(1))
        linear.bias.mul_(deviation).add_(mean)

    def _squares(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """``(F, G, T)`` whether there is a label, and the squared error, 0 without a label."""
        labels = (self.values[graphs] - statistics[:, :1]) / statistics[:, 1:]
        return ~labels.isnan(), torch.where(labels.isnan(), 0, outputs - labels.nan_to_num()).square()


KINDS: dict[str, type[Targets]] = {"classes": ClassTargets, "binary": BinaryTargets, "numbers": NumberTargets}


def roc_auc(outputs: Tensor, labels: Tensor) -> Tensor:
    r"""Compute the area under the ROC curve of each column in float64; NaN without both labels or with a NaN output.

    .. math:: \frac{1}{n_1 n_0} \sum_{i : y_i = 1} \sum_{j : y_j = 0} [s_i > s_j] + \tfrac12 [s_i = s_j]

    The inner sum is a binary search in the sorted outputs of label 0. Infinite outputs are ordinary values.

    Args:
        outputs: ``(..., G, T)`` s.
        labels: ``(..., G, T)`` y, 0 or 1; other values are ignored.
    """
    s, y = outputs.mT.contiguous(), labels.mT.contiguous()
    is_one, is_zero = y == 1, y == 0
    num_ones, num_zeros = is_one.sum(-1, dtype=torch.float64), is_zero.sum(-1)
    zeros = torch.where(is_zero, s, torch.inf).sort(dim=-1).values
    below, not_above = (torch.searchsorted(zeros, s, right=right) for right in (False, True))
    not_above = not_above.minimum(num_zeros.unsqueeze(-1))  # placeholders for other labels are sorted last
    wins = torch.where(is_one, (below + not_above).double() / 2, 0).sum(-1)
    is_damaged = (s.isnan() & (is_one | is_zero)).any(-1)
    return torch.where(is_damaged, torch.nan, wins / (num_ones * num_zeros))


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """Compute the weighted mean over the last dimension; 0 if all weights are 0."""
    total = weights.sum(-1)
    return (weights * values).sum(-1) / torch.where(total > 0, total, 1)


Labels = NDArray[np.float32]


def select_tasks(dataset: Dataset, tasks: Sequence[str] = ()) -> Dataset:
    """Keep the given tasks (all if empty) and the graphs with a label for at least one of them."""
    if dataset.targets is None:
        raise UserError(f"{dataset.name}: has no tasks (columns of numeric labels).")
    unknown = [name for name in tasks if name not in dataset.target_names]
    if unknown:
        raise UserError(
            f"{dataset.name}: no task {short_repr(unknown[0])}. {suggest(unknown[0], dataset.target_names)}"
        )
    names = tuple(dict.fromkeys(tasks)) or dataset.target_names
    targets = dataset.targets[:, [dataset.target_names.index(name) for name in names]]
    labelled = np.flatnonzero(~np.isnan(targets).all(axis=1))
    if not len(labelled):
        raise UserError(f"{dataset.name}: no graph has a label for {join_names(names)}. Add labels or choose others.")
    dataset = dataset if len(labelled) == len(dataset) else dataset.subset(labelled)
    return replace(dataset, targets=targets[labelled], target_names=names)


def infer_label_kind(dataset: Dataset, kind: str | None = None) -> str:
    """Return ``binary`` if all labels are 0 or 1, ``numbers`` if every task has other values; a mixture is an error."""
    assert dataset.targets is not None
    is_label = np.isnan(dataset.targets) | np.isin(dataset.targets, (0, 1))
    if kind == "numbers":
        return kind
    if kind == "binary" and not is_label.all():
        row, task = np.argwhere(~is_label)[0]
        raise UserError(
            f"{dataset.name}: graph {row}: task {dataset.target_names[task]}: expected 0, 1 or NaN, got "
            f"{dataset.targets[row, task]:g}. Use JOAORegressor for numbers."
        )
    is_binary: NDArray[np.bool_] = np.all(is_label, axis=0)
    if is_binary.all():
        return "binary"
    if is_binary.any():
        binary, numbers = (
            join_names([name for name, each in zip(dataset.target_names, is_binary, strict=True) if each == selected])
            for selected in (True, False)
        )
        raise UserError(
            f"{dataset.name}: cannot learn binary tasks ({binary}) and numbers ({numbers}) together. Choose one kind "
            "with --tasks (tasks= in Python)."
        )
    return "numbers"


def select_tasks_of_a_kind(dataset: Dataset) -> tuple[Dataset, str | None]:
    """Keep the tasks of 0 and 1 or, if there are none, all; also return a notice about those that are left out."""
    assert dataset.targets is not None
    is_binary = np.all(np.isnan(dataset.targets) | np.isin(dataset.targets, (0, 1)), axis=0)
    if is_binary.all() or not is_binary.any():
        return dataset, None
    names = np.array(dataset.target_names)
    numbers = names[~is_binary].tolist()
    notice = (
        f"{dataset.name}: {join_names(numbers)} left out: other values than 0 and 1. For a model of numbers, run the "
        f"same command with --task {short_repr(numbers[0])} (in Python, tasks=[...])."
    )
    return select_tasks(dataset, names[is_binary].tolist()), notice


def integer_labels_notice(dataset: Dataset) -> str | None:
    """Return a notice if numeric tasks look like classes: at most ten distinct integers between -10 and 10."""
    assert dataset.targets is not None
    columns = zip(dataset.target_names, dataset.targets.T, strict=True)
    values_of_tasks = [(name, np.unique(column[~np.isnan(column)])) for name, column in columns]
    small = [(name, values) for name, values in values_of_tasks if 1 < len(values) <= 10 and np.abs(values).max() <= 10]
    few = [(name, values) for name, values in small if (values == np.round(values)).all()]
    if not few:
        return None
    name, values = few[0]
    *others, last = [f"{value:g}" for value in values]
    more = f" (and {len(few) - 1} more tasks like it)" if len(few) > 1 else ""
    fix = "For a binary task use 0 and 1." if len(values) == 2 else "For classes use one column of 0 and 1 per class."
    return (
        f"{dataset.name}: {name} has only the values {', '.join(others)} and {last}{more}; learned as numbers "
        f"(regression). {fix}"
    )


def check_learnable(dataset: Dataset, kind: str, train: NDArray[np.int64]) -> None:
    """Raise an error if no task has two different labels among the training graphs."""
    assert dataset.targets is not None
    labels = dataset.targets[train]
    largest = np.where(np.isnan(labels), -np.inf, labels).max(axis=0)
    smallest = np.where(np.isnan(labels), np.inf, labels).min(axis=0)
    if not (largest > smallest).any():
        what = "0 and 1" if kind == "binary" else "different numbers"
        raise UserError(
            f"{dataset.name}: no task has {what} among the {len(train)} training graphs "
            f"({join_names(dataset.target_names)}). Label more graphs, or try another split or seed."
        )


def task_figures(
    kind: str, predicted: Labels, labels: Labels, names: Sequence[str], learned: Sequence[Sequence[float]] | None = None
) -> dict[str, Any]:
    """Compute metrics of each task and their means over tasks; metrics that are undefined are None.

    ``binary`` tasks have ``roc_auc``, which needs both labels. ``numbers`` have ``rmse`` and ``mae`` in their own
    units, the rank correlation ``spearman`` of predictions and labels and, if ``learned`` is given, ``rmse_of_mean``,
    the RMSE of always predicting the training mean. Both RMSE are also averaged in units of each task's standard
    deviation, as ``..._in_deviations``.

    Args:
        kind: ``binary`` or ``numbers``.
        predicted: ``(G, T)`` numbers, or any score that increases with the probability of a 1.
        labels: ``(G, T)``, NaN for missing labels.
        names: names of the tasks.
        learned: for ``numbers``, mean and standard deviation of each task's training labels.
    """
    if kind == "binary":
        figures = {"roc_auc": roc_auc(torch.from_numpy(predicted), torch.from_numpy(labels)).numpy()}
    else:
        errors = np.abs(predicted.astype(np.float64) - labels)
        figures = {"rmse": np.sqrt(column_means(errors**2)), "mae": column_means(errors)}
        figures["spearman"] = np.array([_spearman(*both) for both in zip(predicted.T, labels.T, strict=True)])
    averages = {name: _mean(values) for name, values in figures.items()}
    if kind == "numbers" and learned is not None:
        mean, deviation = np.array(learned, dtype=np.float64).T
        figures["rmse_of_mean"] = np.sqrt(column_means((labels - mean) ** 2))
        averages |= {f"{name}_in_deviations": _mean(figures[name] / deviation) for name in ("rmse", "rmse_of_mean")}
    measured = (~np.isnan(labels)).sum(axis=0)
    return {
        **averages,
        "labels": int(measured.sum()),
        "tasks": {
            task: {**{name: _mean(values[[t]]) for name, values in figures.items()}, "labels": int(measured[t])}
            for t, task in enumerate(names)
        },
    }


def _spearman(predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compute the rank correlation over known labels, ties with their mean rank; NaN if either side is constant."""
    known = ~np.isnan(labels)
    ranks = [rankdata(values[known]) - (known.sum() + 1) / 2 for values in (predicted, labels)]
    size = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / size if size else float("nan")


def column_means(values: NDArray[Any]) -> NDArray[np.float64]:
    """Compute column means without NaN; NaN for an empty column."""
    count = (~np.isnan(values)).sum(axis=0)
    return np.where(count > 0, np.nansum(values, axis=0, dtype=np.float64) / np.maximum(count, 1), np.nan)


def _mean(values: NDArray[np.float64]) -> float | None:
    """Compute the mean without NaN; None if there is nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
