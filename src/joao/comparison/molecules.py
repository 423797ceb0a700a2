"""Compare methods on a table of molecules: which one predicts its tasks best, and is an encoder worth it?"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from joao.baselines.forests import Columns, Forests, molecule_columns
from joao.comparison.summary import INCONCLUSIVE, NO, YES, best_over_best
from joao.core.errors import UserError, short_repr, suggest
from joao.core.processes import map_in_processes
from joao.core.provenance import command, machine, versions
from joao.core.randomness import numpy_generator
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset
from joao.evaluation.folds import Indices, hash_parts
from joao.evaluation.splits import Split, scaffold_numbers
from joao.evaluation.statistics import Gain, mean, paired_gain, sample_std
from joao.evaluation.tables import markdown
from joao.evaluation.targets import (
    BinaryTargets,
    NumberTargets,
    check_learnable,
    infer_label_kind,
    join_names,
    select_tasks,
    task_figures,
)
from joao.runs.trained import load_run, model_path
from joao.training.device import limit_threads, make_fabric, pick_device
from joao.training.finetune import Finetune, Finetuning

# Every method, in the order of the table, and what it does.
METHODS = {
    "mean": "always predicts the mean label",
    "ecfp": "random forest on ECFP counts",
    "descriptors": "random forest on RDKit's 2D descriptors",
    "frozen_forest": "random forest on embeddings of the encoder",
    "frozen_linear": "ridge regression on embeddings of the encoder",
    "finetuned": "fine-tuned encoder",
    "ensemble": "mean of ecfp, descriptors and finetuned",
}
MEMBERS = ("ecfp", "descriptors", "finetuned")
CHEAP, WITH_ENCODER = ("ecfp", "descriptors"), ("frozen_forest", "frozen_linear", "finetuned", "ensemble")
REFERENCE = "ecfp"
# The first metric of a kind of label decides; whether a larger value is better.
METRICS = {"binary": {"roc_auc": True}, "numbers": {"rmse": False, "mae": False, "spearman": True}}
SPLITS = ("scaffold", "random")

Predictions = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class TablePlan:
    """The settings of a comparison on a table, see :func:`joao.compare`.

    Attributes:
        model: the encoder: a run, an export, or the name of a bundled model.
        split: ``scaffold``: molecules with the same scaffold stay in the same fold; ``random``: equal molecules do.
        folds, partitions: number of folds, and how often the molecules are divided into folds.
        epochs: maximum number of epochs of fine-tuning.
        jobs: number of processes.
        device, precision: of fine-tuning.
    """

    model: str | Path = "molecules"
    split: str = "scaffold"
    folds: int = 5
    partitions: int = 1
    epochs: int = 20
    jobs: int = 1
    device: str = "auto"
    precision: str = "32-true"

    def __post_init__(self) -> None:
        check_minimum("compare", 1, partitions=self.partitions, epochs=self.epochs, jobs=self.jobs)
        check_minimum("compare", 2, folds=self.folds)
        if self.split not in SPLITS:
            raise UserError(f"compare: unknown split {short_repr(self.split)}. {suggest(self.split, SPLITS)}")
        pick_device(self.device)


class Labelled(NamedTuple):
    """Molecules with labels for at least one task."""

    dataset: Dataset
    kind: str
    columns: Columns


class Work(NamedTuple):
    """A split to compute in some process, with the seed of all methods."""

    split: Split
    seed: int
    methods: Sequence[str]


def split_into_folds(dataset: Dataset, plan: TablePlan, partition: int) -> list[Split]:
    """Divide molecules into folds; a tenth of each training part chooses the epoch of fine-tuning.

    Groups of molecules are never divided. They go to the smallest fold, the largest group first, and groups of one size
    in the order of their labels in the first task, so that all folds have similar labels; equal ones in random order.
    """
    from rdkit import Chem, rdBase

    generator = numpy_generator(partition, "folds of molecules")
    with rdBase.BlockLogs():
        groups = (
            scaffold_numbers(dataset.smiles, jobs=plan.jobs)
            if plan.split == "scaffold"
            else np.unique([Chem.CanonSmiles(text) for text in dataset.smiles], return_inverse=True)[1]
        )
    if len(np.unique(groups)) < 2 * plan.folds:
        what, fix = ("scaffolds", "Split at random, or use") if plan.split == "scaffold" else ("molecules", "Use")
        raise UserError(
            f"{dataset.name}: {len(np.unique(groups))} different {what} are too few for {plan.folds} folds. {fix} "
            "fewer folds."
        )
    assert dataset.targets is not None
    labels = np.nan_to_num(dataset.targets[:, 0], nan=-np.inf)
    fold = _divide(groups, labels, plan.folds, generator)
    found = []
    for number in range(plan.folds):
        rest, test = (np.flatnonzero(part) for part in (fold != number, fold == number))
        is_validation = _divide(groups[rest], labels[rest], 10, generator) == 0
        found.append(Split(rest[~is_validation], rest[is_validation], test))
    return found


def _divide(groups: Indices, labels: NDArray[np.float32], parts: int, generator: np.random.Generator) -> Indices:
    names, first, member = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(member)
    order = np.lexsort((generator.random(len(names)), labels[first], -sizes))
    part, filled = np.zeros(len(names), dtype=np.int64), np.zeros(parts, dtype=np.int64)
    for group in order:
        part[group] = filled.argmin()
        filled[part[group]] += sizes[group]
    found: Indices = part[member]
    return found


def given_split(dataset: Dataset, parts: Sequence[str]) -> Split:
    """Read a split that the user gives: ``train``, ``test`` and, optionally, ``validation`` for each molecule."""
    names = np.array([str(part).strip().casefold() for part in parts])
    known = {"train": "train", "test": "test", "validation": "validation", "valid": "validation", "val": "validation"}
    unknown = next((row for row, name in enumerate(names) if name not in known), None)
    if unknown is not None:
        raise UserError(
            f"{dataset.name}: molecule {unknown}: expected train, validation or test in the split column, got "
            f"{short_repr(parts[unknown])}."
        )
    of = np.array([known[name] for name in names])
    train, validation, test = (np.flatnonzero(of == part) for part in ("train", "validation", "test"))
    if len(train) < 10 or not len(test):
        raise UserError(
            f"{dataset.name}: the split column has {len(train)} molecules for training and {len(test)} for testing; "
            "expected at least 10 and 1."
        )
    if not len(validation):
        is_validation = np.zeros(len(train), dtype=bool)
        is_validation[numpy_generator(0, "validation molecules").permutation(len(train))[: len(train) // 10]] = True
        train, validation = train[~is_validation], train[is_validation]
    return Split(train, validation, test)


@limit_threads()
def predict_split(work: Work, data: Labelled, plan: TablePlan) -> tuple[Predictions, dict[str, float]]:
    """Train methods on a split; return their predictions ``(n, T)`` for the test molecules, and their seconds."""
    dataset, kind, columns = data
    assert dataset.targets is not None
    learn = np.concatenate([work.split.train, work.split.validation])  # what needs no validation also learns from it
    labels, test = dataset.targets, work.split.test
    predicted, seconds = Predictions(), {}
    for name in work.methods:
        started = time.perf_counter()
        if name == "mean":
            predicted[name] = np.tile(np.nan_to_num(_nanmean(labels[learn])), (len(test), 1))
        elif name == "finetuned":
            predicted[name] = _finetune(data, work, plan)
        elif name == "frozen_linear":
            predicted[name] = _ridge(columns["encoder"][learn], labels[learn], columns["encoder"][test])
        else:
            column = columns["encoder" if name == "frozen_forest" else name]
            predicted[name] = Forests.fit(column[learn], labels[learn], kind, work.seed).predict(column[test])
        seconds[name] = time.perf_counter() - started
    return predicted, seconds


def _finetune(data: Labelled, work: Work, plan: TablePlan) -> NDArray[np.float64]:
    trained, values = load_run(model_path(plan.model), device=plan.device), torch.from_numpy(data.dataset.targets)
    targets = BinaryTargets(values) if data.kind == "binary" else NumberTargets(values)
    settings = Finetune(plan.epochs, 32, patience=0, balanced=True, standardise=True)
    fabric = make_fabric(plan.device, plan.precision)
    fitting = Finetuning(
        trained.store(data.dataset), targets, copy.deepcopy(trained.encoder), settings, fabric, seed=work.seed
    )
    fitting.fit(torch.from_numpy(work.split.train), torch.from_numpy(work.split.validation), work.seed)
    outputs = fitting.logits(torch.from_numpy(work.split.test)).double().cpu()
    if data.kind == "binary":
        return outputs.sigmoid().numpy()
    average, deviation = fitting.statistics[0].double().cpu().numpy()
    found: NDArray[np.float64] = average + deviation * outputs.numpy()
    return found


def _ridge(train: NDArray[np.float32], labels: NDArray[np.float32], test: NDArray[np.float32]) -> NDArray[np.float64]:
    """Ridge regression on standardised columns for every task, also for 0 and 1; leave-one-out chooses the penalty."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = np.zeros((len(test), labels.shape[1]))
    for task, of_task in enumerate(labels.T):
        known = ~np.isnan(of_task)
        if known.any():
            model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 5, 13)))
            found[:, task] = model.fit(train[known], of_task[known]).predict(test)
    return found


def _nanmean(labels: NDArray[np.float32]) -> NDArray[np.float64]:
    count = (~np.isnan(labels)).sum(axis=0)
    return np.where(count > 0, np.nansum(labels, axis=0, dtype=np.float64) / np.maximum(count, 1), np.nan)


def select_tasks_of_a_kind(dataset: Dataset) -> tuple[Dataset, str, str | None]:
    """Keep the tasks of 0 and 1 or, if there are none, all; return them, their kind and a notice about the others."""
    assert dataset.targets is not None
    is_binary = np.all(np.isnan(dataset.targets) | np.isin(dataset.targets, (0, 1)), axis=0)
    if is_binary.all() or not is_binary.any():
        return dataset, infer_label_kind(dataset), None
    names = np.array(dataset.target_names)
    left_out = join_names(names[~is_binary].tolist())
    notice = f"{dataset.name}: {left_out} have other values than 0 and 1 and are left out; compare them with --task."
    return select_tasks(dataset, names[is_binary].tolist()), "binary", notice


def compare_table(
    dataset: Dataset,
    plan: TablePlan,
    split: Sequence[str] | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> TableComparison:
    """Train and test all methods on the same splits of a table of molecules.

    Args:
        dataset: molecules with SMILES and tasks; those without a label are ignored.
        plan: the settings.
        split: a given split, see :func:`given_split`, one entry per molecule of ``dataset``; None: folds. A given split
            is computed with ``max(3, plan.partitions)`` seeds.
        on_done: called with the number of finished fits and of all fits.
        on_notice: called with notices for the user.
    """
    if not dataset.smiles or dataset.kind != "molecules":
        raise UserError(f"{dataset.name}: comparing tasks needs molecules with SMILES. Give a table of SMILES.")
    numbered = replace(dataset, groups=np.arange(len(dataset)))
    numbered, kind, notice = select_tasks_of_a_kind(select_tasks(numbered))
    if notice is not None:
        on_notice(notice)
    assert numbered.groups is not None
    assert numbered.targets is not None
    if split is not None:
        part = given_split(numbered, [split[number] for number in numbered.groups])
        splits = [[part] for _ in range(max(3, plan.partitions))]
    else:
        splits = [split_into_folds(numbered, plan, partition) for partition in range(plan.partitions)]
    for each in (part for partition in splits for part in partition):
        check_learnable(numbered, kind, each.train)
        if kind == "binary" and all(
            len(np.unique(column[~np.isnan(column)])) < 2 for column in numbered.targets[each.test].T
        ):
            raise UserError(
                f"{dataset.name}: no task has both 0 and 1 among the {len(each.test)} test molecules of a fold. Use "
                "fewer folds or --split random."
            )
    started = time.perf_counter()
    columns = molecule_columns(numbered.smiles, ("ecfp", "descriptors"), jobs=plan.jobs)
    trained = load_run(model_path(plan.model), device=plan.device)
    columns["encoder"] = trained.embed(numbered).numpy()
    seconds_of_columns = time.perf_counter() - started
    data = Labelled(replace(numbered, groups=None), kind, columns)
    # Fine-tuning takes longest, so it comes first.
    quick = tuple(name for name in METHODS if name not in ("finetuned", "ensemble"))
    places = [(seed, fold) for seed, partition in enumerate(splits) for fold in range(len(partition))]
    work = [
        (place, Work(splits[place[0]][place[1]], place[0], methods))
        for methods in (("finetuned",), quick)
        for place in places
    ]
    compute = partial(predict_split, data=data, plan=plan)
    jobs = 1 if pick_device(plan.device).type == "cuda" else min(plan.jobs, len(work))
    items = [each for _, each in work]
    found = map_in_processes(compute, items, jobs) if jobs > 1 else enumerate(map(compute, items))
    predicted: dict[tuple[int, int], Predictions] = {place: {} for place in places}
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for done, (number, (predictions, times)) in enumerate(found, 1):
        predicted[work[number][0]] |= predictions
        for name, value in times.items():
            seconds[name].append(value)
        on_done(done, len(work))
    scale = _scale(numbered.targets)
    metrics: dict[str, dict[str, list[list[float]]]] = {}
    for name in METHODS:
        metrics[name] = {metric: [[] for _ in splits] for metric in METRICS[kind]}
        for (seed, fold), of in predicted.items():
            values = np.mean([of[each] for each in MEMBERS], axis=0) if name == "ensemble" else of[name]
            labels = numbered.targets[splits[seed][fold].test]
            first, second = ((each / scale).astype(np.float32) for each in (values, labels))
            figures = task_figures(kind, first, second, numbered.target_names)
            for metric in METRICS[kind]:
                metrics[name][metric][seed].append(figures[metric])
    return TableComparison(
        {
            "protocol": {
                "name": "table of molecules",
                "split": "given" if split is not None else plan.split,
                "units": "labels" if len(scale) == 1 else "standard deviations of each task",
                "test": "predicted once, by models that were trained on the other molecules",
            },
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint, "molecules": len(numbered)},
            "unlabelled": len(dataset) - len(numbered),
            "kind": kind,
            "tasks": list(numbered.target_names),
            "plan": {**asdict(plan), "model": str(plan.model)},
            "sizes": [[[len(part) for part in each] for each in partition] for partition in splits],
            "split hashes": [hash_parts(each.test for each in partition) for partition in splits],
            "seconds of columns": seconds_of_columns,
            "methods": {
                name: {
                    "what": what,
                    "metrics": metrics[name],
                    "seconds": mean(seconds[name]) if seconds[name] else None,
                }
                for name, what in METHODS.items()
            },
            "versions": versions(),
            "machine": machine(pick_device(plan.device)),
            "command": command(),
        }
    )


def _scale(labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """``(T,)`` the unit of the errors: 1 for one task, else the standard deviation of each task's labels."""
    if labels.shape[1] == 1 or np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        return np.ones(labels.shape[1])
    deviation = np.sqrt(_nanmean((labels - _nanmean(labels).astype(np.float32)) ** 2))
    return np.where(deviation > 0, deviation, 1.0)


TITLES = {"roc_auc": "ROC-AUC", "rmse": "RMSE", "mae": "MAE", "spearman": "Spearman"}


@final
@dataclass(frozen=True)
class TableRow:
    """The result of a method.

    Attributes:
        metrics: mean over folds and partitions of each metric; None if it is undefined.
        deviation: standard deviation of the first metric over folds, or over seeds of a given split.
        difference: difference of the first metric to that of :data:`REFERENCE` on the same molecules.
        seconds: seconds of one fit with its predictions, mean over folds; columns and embeddings are computed before.
    """

    method: str
    what: str
    metrics: Mapping[str, float | None]
    deviation: float | None
    difference: Gain | None
    seconds: float | None


@final
class TableComparison:
    """The result of comparing methods on a table of molecules. It prints as a table with a verdict.

    Attributes:
        record: all results, as written by ``joao compare --out``.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.metric, self.is_score = next(iter(METRICS[record["kind"]].items()))

    @property
    def rows(self) -> list[TableRow]:
        """One row per method."""
        found = []
        for name, entry in self.record["methods"].items():
            known = {
                metric: [each for row in rows for each in row if each is not None]
                for metric, rows in entry["metrics"].items()
            }
            metrics = {metric: mean(values) if values else None for metric, values in known.items()}
            values = self._values(name)
            difference = None if name == REFERENCE else paired_gain(values, self._values(REFERENCE))
            deviation = sample_std(values.ravel().tolist())
            found.append(TableRow(name, entry["what"], metrics, deviation, difference, entry["seconds"]))
        return found

    @property
    def verdict(self) -> tuple[str, str]:
        """``yes``, ``no`` or ``cannot be told`` (inconclusive): whether an encoder helps; and a sentence."""
        sign = 1 if self.is_score else -1
        cheap, others = ({name: sign * self._values(name) for name in group} for group in (CHEAP, WITH_ENCODER))
        best, strongest = (max(group, key=lambda name: float(group[name].mean())) for group in (others, cheap))
        gain = best_over_best(list(others.values()), list(cheap.values()))
        helps = YES if gain.low > 0 else NO if gain.high < 0 else INCONCLUSIVE
        words = {
            YES: f"use {best}. It is better than {strongest}, the better forest,",
            NO: f"use {strongest}. It is better than {best}, the best method with an encoder,",
            INCONCLUSIVE: f"inconclusive; {strongest} is cheaper. The best method with an encoder, {best}, differs "
            f"from {strongest}",
        }[helps]
        low, high = sorted((sign * gain.low, sign * gain.high))
        difference = f"{sign * gain.mean:+.3f} {TITLES[self.metric]} (95 % CI {low:+.3f} to {high:+.3f}"
        name = self.record["data"]["name"]
        return helps, f"Verdict on {name}: {words} by {difference}, corrected for choosing the best methods)."

    def _values(self, name: str) -> NDArray[np.float64]:
        """``(partitions, folds)`` of the first metric."""
        return np.array(self.record["methods"][name]["metrics"][self.metric], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        """Return the record, which has JSON types only."""
        return self.record

    @property
    def header(self) -> list[str]:
        """Titles of the columns of :attr:`lines`."""
        first, *others = (TITLES[metric] for metric in METRICS[self.record["kind"]])
        return ["method", first, f"{first} - {REFERENCE} (95 % CI)", *others, "seconds"]

    @property
    def lines(self) -> list[list[str]]:
        """The cells of the table under :attr:`header`."""
        found = []
        for row in self.rows:
            first, *others = row.metrics.values()
            gain = row.difference
            difference = "" if gain is None else f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"
            assert first is not None  # checked before training
            cell = f"{first:.3f}" if row.deviation is None else f"{first:.3f} ± {row.deviation:.3f}"
            seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
            further = ["" if value is None else f"{value:.3f}" for value in others]
            found.append([row.method, cell, difference, *further, seconds])
        return found

    @property
    def heading(self) -> str:
        """Describe data and protocol in one line."""
        record = self.record
        sizes = [fold for partition in record["sizes"] for fold in partition]
        tasks, test = record["tasks"], sum(size[2] for size in sizes) / len(sizes)
        how = (
            f"the given split ({test:.0f} test molecules), {len(sizes)} seeds; intervals are about other seeds only"
            if record["protocol"]["split"] == "given"
            else f"{record['plan']['folds']} {record['protocol']['split']} folds of {test:.0f} molecules"
            + (f", {record['plan']['partitions']} times" if record["plan"]["partitions"] > 1 else "")
        )
        unlabelled = f" {record['unlabelled']} molecules without a label are left out." if record["unlabelled"] else ""
        what = f"task {tasks[0]}" if len(tasks) == 1 else f"{len(tasks)} tasks (mean)"
        data = f"{record['data']['name']}: {record['data']['molecules']} molecules"
        return f"{data}, {what}. All methods on {how}.{unlabelled}"

    @property
    def closing_lines(self) -> list[str]:
        """What the methods are, the units, and the verdict."""
        record = self.record
        units = "" if self.is_score or len(record["tasks"]) == 1 else " Errors are in standard deviations of each task."
        better = "A larger ROC-AUC is better" if self.is_score else "A smaller RMSE is better"
        methods = ", ".join(f"{name}: {what}" for name, what in METHODS.items())
        return [
            f"{better}.{units} The encoder is {record['plan']['model']}. Seconds are for one fit.",
            f"Methods: {methods}.",
            self.verdict[1],
        ]

    def __repr__(self) -> str:
        return "\n".join([self.heading, "", markdown(self.header, self.lines), "", *self.closing_lines])
