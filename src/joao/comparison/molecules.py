"""Compare methods on a table of molecules: which one predicts its tasks best, and is an encoder worth it?"""

import copy
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from joao.baselines.forests import Columns, Forests, molecule_columns
from joao.baselines.kernel_ridge import KernelRidge, fit_ridge, mean_and_scale, to_predictions
from joao.comparison.molecule_table import KERNELS, MEMBERS, METHODS, METRICS, TableComparison
from joao.comparison.record import Record, check_same_comparison
from joao.core.errors import UserError, short_repr, suggest, user_error_on_failure
from joao.core.files import check_new_file, parse_json, read_regular, user_error_on_os_error, write_json
from joao.core.processes import map_in_processes
from joao.core.provenance import command, machine, versions
from joao.core.registry import check_minimum, check_value
from joao.data.dataset import Dataset, as_bytes
from joao.data.duplicates import merge_duplicates
from joao.evaluation.folds import hash_parts
from joao.evaluation.splits import SHARES, Split, given_split, molecule_folds
from joao.evaluation.targets import (
    BinaryTargets,
    NumberTargets,
    check_learnable,
    column_means,
    infer_label_kind,
    select_tasks,
    select_tasks_of_a_kind,
    task_figures,
)
from joao.runs.parts import model_hash
from joao.runs.trained import load_run, model_path
from joao.training.device import limit_threads, make_fabric, pick_device
from joao.training.finetune import Finetune, Finetuning

Predictions = dict[str, NDArray[np.float64]]
Splits = Sequence[Sequence[Split]]  # by seed and fold
# Fine-tuning takes longest, so it comes first.
GROUPS = (("finetuned",), tuple(name for name in METHODS if name != "finetuned"))
# A record can only be continued if these are equal.
IDENTITY = ("protocol", "data", "kind", "tasks", "plan", "split hashes", "encoder", "versions", "machine")


@dataclass(frozen=True)
class TablePlan:
    """The settings of a comparison on a table, see :func:`joao.compare`.

    Attributes:
        model: the encoder: a run, an export, or the name of a bundled model.
        split: ``scaffold``: molecules with the same scaffold stay in the same fold; ``random``: equal molecules do.
        folds, partitions: number of folds, and how often the molecules are divided into folds.
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
        if self.split not in SHARES:
            raise UserError(f"compare: unknown split {short_repr(self.split)}. {suggest(self.split, list(SHARES))}")
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
    fold: int

    def __repr__(self) -> str:  # in messages about workers that died
        return f"seed {self.seed}, fold {self.fold + 1}: {', '.join(self.methods)}"


class State(NamedTuple):
    """What is being done with a split, and which share of it is finished."""

    text: str
    share: float


OnState = Callable[[State], None]


@limit_threads()
def predict_split(
    work: Work, on_state: OnState = lambda state: None, *, data: Labelled, plan: TablePlan
) -> tuple[Predictions, dict[str, float]]:
    """Train methods on a split; return their predictions ``(n, T)`` for the test molecules, and their seconds."""
    dataset, kind, columns = data
    assert dataset.targets is not None
    # Methods without epochs need no validation molecules, and also learn from them.
    train = np.concatenate([work.split.train, work.split.validation])
    labels, test = dataset.targets, work.split.test
    predicted, seconds = Predictions(), dict[str, float]()
    for number, name in enumerate(work.methods):
        started = time.perf_counter()
        on_state(State(name, number / len(work.methods)))
        if name == "mean":
            predicted[name] = np.tile(np.nan_to_num(column_means(labels[train])), (len(test), 1))
        elif name == "finetuned":
            predicted[name] = _finetune(data, work, plan, on_state)
        elif name == "frozen_linear":
            predicted[name] = _ridge(columns["encoder"][train], labels[train], columns["encoder"][test], kind)
        elif name == "ensemble":  # its members come before it
            predicted[name] = np.mean([predicted[each] for each in MEMBERS], axis=0)
            started -= sum(seconds[each] for each in MEMBERS)
        elif name in KERNELS:
            parts = [{each: columns[each][rows] for each in KERNELS[name]} for rows in (train, test)]
            predicted[name] = KernelRidge.fit(parts[0], labels[train], kind, work.seed).predict(parts[1])
        else:
            column = columns["encoder" if name == "frozen_forest" else name]
            predicted[name] = Forests.fit(column[train], labels[train], kind, work.seed).predict(column[test])
        seconds[name] = time.perf_counter() - started
    return predicted, seconds


def _finetune(data: Labelled, work: Work, plan: TablePlan, on_state: OnState) -> NDArray[np.float64]:
    trained, values = load_run(model_path(plan.model), device=plan.device), torch.from_numpy(data.dataset.targets)
    targets = BinaryTargets(values) if data.kind == "binary" else NumberTargets(values)
    settings = Finetune(plan.epochs, 32, patience=0, balanced=True, standardise=True)
    fabric = make_fabric(plan.device, plan.precision)
    store, encoder = trained.store(data.dataset), copy.deepcopy(trained.encoder)
    fitting = Finetuning(store, targets, encoder, settings, fabric, seed=work.seed, resets_silent=True)
    epochs = itertools.count(1)

    def on_epoch(_: object) -> None:
        done = next(epochs)
        on_state(State(f"finetuned, epoch {done} of {plan.epochs}", done / plan.epochs))

    train, validation = map(torch.from_numpy, (work.split.train, work.split.validation))
    fitting.fit(train, validation, work.seed, on_epoch=on_epoch)
    outputs = fitting.logits(torch.from_numpy(work.split.test)).double().cpu()
    if data.kind == "binary":
        return outputs.sigmoid().numpy()
    average, deviation = fitting.statistics[0].double().cpu().numpy()
    numbers: NDArray[np.float64] = average + deviation * outputs.numpy()
    return numbers


def _ridge(
    train: NDArray[np.float32], labels: NDArray[np.float32], test: NDArray[np.float32], kind: str
) -> NDArray[np.float64]:
    """Ridge regression on standardised columns."""
    mean, scale = mean_and_scale(train)
    weight, bias = fit_ridge(((train - mean) / scale).astype(np.float64), labels, kind)
    return to_predictions((test - mean) / scale @ weight.T + bias, kind)


def has_tasks_only(dataset: Dataset) -> bool:
    """Whether these are molecules with tasks instead of classes."""
    return dataset.kind == "molecules" and dataset.classes is None and dataset.targets is not None


def compare_table(
    dataset: Dataset,
    plan: TablePlan,
    split: Sequence[str] | None = None,
    on_state: Callable[[str, float, int], None] = lambda text, done, total: None,
    on_notice: Callable[[str], None] = lambda notice: None,
    out: Path | None = None,
) -> TableComparison:
    """Train and test all methods on the same splits of a table of molecules.

    Standardised molecules that occur several times are merged, see :func:`joao.data.duplicates.merge_duplicates`.

    Args:
        dataset: molecules with SMILES and tasks; those without a label are ignored.
        split: a given split, see :func:`given_split`, one entry per molecule of ``dataset``; None: folds. A given split
            is computed with ``max(3, plan.partitions)`` seeds.
        on_state: called with what is being done, the number of finished fits with a share of these, and of all fits.
        out: the record, written after every fit; fits that it already contains are skipped.
    """
    if not dataset.smiles or dataset.kind != "molecules":
        raise UserError(f"{dataset.name}: comparing tasks needs molecules with SMILES. Give a table of SMILES.")
    if out is not None and not out.exists():
        check_new_file(out)
    dataset, kept, merged = merge_duplicates(dataset, split)
    if merged is not None:
        on_notice(merged)
        split = None if split is None else [split[row] for row in kept]
    # The groups number the molecules, so that a given split can follow those that have labels.
    labelled = replace(dataset, groups=np.arange(len(dataset)))
    labelled, notice = select_tasks_of_a_kind(select_tasks(labelled))
    kind = infer_label_kind(labelled)
    if notice is not None:
        on_notice(notice)
    assert labelled.groups is not None
    assert labelled.targets is not None
    if split is None:
        splits = [
            molecule_folds(labelled, plan.split, plan.folds, partition, jobs=plan.jobs)
            for partition in range(plan.partitions)
        ]
    else:
        part = given_split(labelled, [split[number] for number in labelled.groups])
        splits = [[part] for _ in range(max(3, plan.partitions))]
    for each in itertools.chain.from_iterable(splits):
        _check_split(labelled, kind, each)
    trained = load_run(model_path(plan.model), device=plan.device)
    record = _start_record(dataset, labelled, kind, plan, splits, is_given=split is not None)
    record["encoder"] = model_hash(trained)
    if out is not None and out.exists():
        record = _read_record(out, record)
    work = [
        Work(part, seed, group, fold)
        for group in GROUPS
        for seed, partition in enumerate(splits)
        for fold, part in enumerate(partition)
        if any(record["methods"][name]["seconds"][seed][fold] is None for name in group)
    ]
    if work:
        started = time.perf_counter()
        columns = molecule_columns(labelled.smiles, ("ecfp", "descriptors"), jobs=plan.jobs)
        columns["encoder"] = trained.embed(labelled).numpy()
        record["seconds of columns"] = time.perf_counter() - started
        data, scale = Labelled(replace(labelled, groups=None), kind, columns), _scale(labelled.targets)
        for (part, seed, _, fold), (predictions, seconds) in _predict_splits(data, plan, work, on_state):
            for name, values in predictions.items():
                entry = record["methods"][name]
                entry["seconds"][seed][fold] = seconds[name]
                place = f"compare: {name}, seed {seed}, fold {fold + 1}"
                for metric, value in _score(data, part, values, scale, place).items():
                    entry["metrics"][metric][seed][fold] = value
            if out is not None:
                write_json(out, record)
    return TableComparison(record)


def _score(
    data: Labelled, split: Split, predicted: NDArray[np.float64], scale: NDArray[np.float64], place: str
) -> dict[str, float | None]:
    """Each metric of the predictions for the test molecules, with errors in units of ``scale`` ``(T,)``."""
    dataset, kind, _ = data
    assert dataset.targets is not None
    first, second = ((each / scale).astype(np.float32) for each in (predicted, dataset.targets[split.test]))
    figures = task_figures(kind, first, second, dataset.target_names)
    for metric in METRICS[kind]:
        if figures[metric] is not None and not np.isfinite(figures[metric]):
            raise UserError(f"{place}: {metric} is {figures[metric]}. Scale the labels.")
    return {metric: figures[metric] for metric in METRICS[kind]}


def _start_record(
    dataset: Dataset, labelled: Dataset, kind: str, plan: TablePlan, splits: Splits, *, is_given: bool
) -> Record:
    """Make a record without scores."""
    assert labelled.targets is not None
    labels = hashlib.sha256("\n".join(labelled.smiles).encode())
    labels.update(as_bytes(labelled.targets))
    settings = {name: value for name, value in asdict(plan).items() if name != "jobs"}
    return {
        "protocol": {
            "name": "table of molecules",
            "split": "given" if is_given else plan.split,
            "units": "labels" if len(_scale(labelled.targets)) == 1 else "standard deviations of each task",
            "test": "predicted once, by models that were trained on the other molecules",
        },
        "data": {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "molecules": len(labelled),
            "labels": labels.hexdigest()[:16],
        },
        "unlabelled": len(dataset) - len(labelled),
        "kind": kind,
        "tasks": list(labelled.target_names),
        "plan": {**settings, "model": str(plan.model)},
        "sizes": [[[len(part) for part in each] for each in partition] for partition in splits],
        "split hashes": [hash_parts(itertools.chain.from_iterable(partition)) for partition in splits],
        "methods": {
            name: {
                "what": what,
                "metrics": {metric: _unfinished(splits) for metric in METRICS[kind]},
                "seconds": _unfinished(splits),
            }
            for name, what in METHODS.items()
        },
        "cores": plan.jobs,
        "versions": versions(),
        "machine": machine(pick_device(plan.device)),
        "command": command(),
    }


def _unfinished(splits: Splits) -> list[list[float | None]]:
    """Make a value for each seed and fold."""
    return [[None] * len(partition) for partition in splits]


def _read_record(path: Path, record: Record) -> Record:
    """Return ``record``, which has no scores yet, with those of an earlier record of the same comparison."""
    place = f"{path}: is not a record of 'joao compare'"
    with user_error_on_os_error(path, "cannot be read"), user_error_on_failure(place, "Choose another file."):
        before: Record = parse_json(read_regular(path))
        check_same_comparison(path, before, record, IDENTITY)
        columns = check_value(before.get("seconds of columns"), float | None, f"{place}: seconds of columns")
        for name, new in record["methods"].items():
            entry = before["methods"][name]
            for old, empty in ((entry, new), (entry["metrics"], new["metrics"])):
                if old.keys() != empty.keys():
                    raise ValueError(f"{name}: expected {', '.join(empty)}")
            for values in (entry["seconds"], *entry["metrics"].values()):
                check_value(values, list[list[float | None]], f"{place}: {name}: each value")
                if np.shape(values) != np.shape(new["seconds"]):
                    raise ValueError(f"{name}: expected a value for each seed and fold")
            new |= {"metrics": entry["metrics"], "seconds": entry["seconds"]}
    return record | {"seconds of columns": columns}


def _check_split(dataset: Dataset, kind: str, split: Split) -> None:
    """Raise an error if the tasks cannot be learned or tested on a split."""
    assert dataset.targets is not None
    check_learnable(dataset, kind, split.train)
    tested = dataset.targets[split.test].T
    if kind == "binary" and all(len(np.unique(column[~np.isnan(column)])) < 2 for column in tested):
        raise UserError(
            f"{dataset.name}: no task has both 0 and 1 among the {len(split.test)} test molecules of a fold. Use "
            "fewer folds or --split random."
        )


def _predict_splits(
    data: Labelled, plan: TablePlan, work: Sequence[Work], on_state: Callable[[str, float, int], None]
) -> Iterator[tuple[Work, tuple[Predictions, dict[str, float]]]]:
    """Compute ``work`` in ``plan.jobs`` processes; yield what :func:`predict_split` returns."""
    compute = partial(predict_split, data=data, plan=plan)
    jobs = 1 if pick_device(plan.device).type == "cuda" else min(plan.jobs, len(work))
    states: dict[int, State] = {}
    finished = 0

    def note(number: int, state: State) -> None:
        states[number] = state
        show()

    def show() -> None:
        texts = [f"seed {work[each].seed}, fold {work[each].fold + 1}: {state.text}" for each, state in states.items()]
        on_state("; ".join(texts), finished + sum(state.share for state in states.values()), len(work))

    results: Iterable[tuple[int, tuple[Predictions, dict[str, float]]]]
    if jobs > 1:
        results = map_in_processes(compute, work, jobs, on_note=note)
    else:
        results = ((number, compute(each, partial(note, number))) for number, each in enumerate(work))
    for number, result in results:
        yield work[number], result
        del states[number]
        finished += 1
        show()


def _scale(labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """``(T,)`` the unit of the errors: 1 for one task, else the standard deviation of each task's labels."""
    if labels.shape[1] == 1 or np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        return np.ones(labels.shape[1])
    deviation = np.sqrt(column_means((labels - column_means(labels).astype(np.float32)) ** 2))
    return np.where(deviation > 0, deviation, 1.0)
