"""Does a comparison and writes its record, as it goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.comparison.methods import CHEAP_BASELINES, Outcome, Task, method_settings, run_here, run_in_processes
from joao.comparison.summary import record_verdict, rows
from joao.config.recipe import METHODS
from joao.core.errors import UserError
from joao.core.files import check_new_file, write_json
from joao.data.dataset import Dataset
from joao.data.refinement import find_twins
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.statistics import chance_level
from joao.runs.scoring import TWINS_TOGETHER, describe_data, provenance, require_classes
from joao.training.device import pick_device

PROTOCOL = {
    "name": "comparison",
    "pre-training": "transductive: all graphs, no labels",
    "seeds": "seed s makes the rows that are scored on partition s",
}
# Records that differ in one of these are of different comparisons.
IDENTITY = ("protocol", "data", "folds", "versions", "machine")

Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is compared, and how.

    Attributes:
        methods: names, see :mod:`joao.comparison.methods`.
        partitions: how many, from 0 on.
        folds: of each partition.
        epochs: of pre-training; None is the usual number.
        device: of pre-training.
        jobs: cores to use, with a process of its own for every method; None does everything in this process.
        twins_together: whether graphs that cannot be told apart are in the same fold.
    """

    methods: tuple[str, ...]
    partitions: int = 5
    folds: int = 10
    epochs: int | None = None
    device: str = "auto"
    jobs: int | None = None
    twins_together: bool = False

    def __post_init__(self) -> None:
        for name in ("partitions", "epochs", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"compare: {name} must be at least 1, got {value}.")
        pick_device(self.device)


def compute(
    dataset: Dataset, plan: Plan, out: Path | None = None, on_done: Callable[[Outcome], None] = lambda done: None
) -> Record:
    """Scores every method on the same folds.

    Args:
        dataset: with classes, which only the scoring sees.
        plan: of the comparison.
        out: file of the record, written whenever a seed is done; what it has already is not done again.
        on_done: told of every seed that is done, and of methods that fail.
    """
    record = start_record(dataset, plan, out)
    for done in _work(dataset, plan, missing_seeds(record)):
        entry = record["methods"][done.method]
        if done.piece is None:
            entry["failure"] = done.failure
        else:
            entry["seeds"][str(done.piece["seed"])] = done.piece
        if out is not None:
            write_json(out, record)
        on_done(done)
    table, verdict = rows(record), record_verdict(record)
    if all(row.failure for row in table):
        raise UserError(f"compare: no method could be scored. {table[0].method}: {table[0].failure}")
    record["rows"] = [asdict(row) for row in table]
    record["verdict"] = None if verdict is None else {"sentence": str(verdict), **asdict(verdict)}
    if out is not None:
        write_json(out, record)
    return record


def start_record(dataset: Dataset, plan: Plan, out: Path | None = None) -> Record:
    """A record with everything but scores; with those in ``out``, if that is a record of the same comparison."""
    classes = require_classes(dataset)
    names, groups = dataset.class_names, _groups(dataset, plan)
    parts = [folds(classes, each, plan.folds, class_names=names, groups=groups) for each in range(plan.partitions)]
    labels = hashlib.sha256(np.ascontiguousarray(classes, dtype=np.int64).tobytes()).hexdigest()[:16]
    record: Record = {
        "protocol": {**PROTOCOL, **({"folds": TWINS_TOGETHER} if plan.twins_together else {})},
        "data": {**describe_data(dataset), "labels": labels},
        "folds": plan.folds,
        "partitions": plan.partitions,
        "fold hashes": [fold_hash(part) for part in parts],
        "chance": chance_level(classes),
        "compared": list(plan.methods),
        "cores": plan.jobs or 1,
        **provenance(plan.device),
        "methods": {},
    }
    if out is not None and out.exists():
        before = read_record(out)
        for key in IDENTITY:
            if before.get(key) != _as_json(record[key]):
                raise UserError(f"{out}: is of another comparison: its {key} differ. Choose another name for this one.")
        record["methods"] = before["methods"]
    elif out is not None:
        check_new_file(out)
    for name in plan.methods:
        settings = _as_json(method_settings(name, dataset.kind, plan.epochs))
        entry = record["methods"].setdefault(name, {"kind": _kind_of(name), "settings": settings, "seeds": {}})
        if entry["settings"] != settings:
            raise UserError(f"{out}: has {name} with other settings, such as --epochs. Choose another name for this.")
        entry.pop("failure", None)
    return record


def missing_seeds(record: Record) -> dict[str, list[int]]:
    """Of each compared method, what is still to be done."""
    seeds = range(record["partitions"])
    missing = {
        name: [s for s in seeds if str(s) not in record["methods"][name]["seeds"]] for name in record["compared"]
    }
    return {name: of_method for name, of_method in missing.items() if of_method}


def _work(dataset: Dataset, plan: Plan, missing: dict[str, list[int]]) -> Iterator[Outcome]:
    # On a GPU, methods side by side would wait for each other, and their seconds would say nothing.
    at_once = 1 if pick_device(plan.device).type == "cuda" else max(1, min(plan.jobs or 1, len(missing)))
    jobs, groups = (plan.jobs or 1) // at_once, _groups(dataset, plan)
    tasks = [
        Task(name, seeds, dataset, plan.folds, plan.epochs, plan.device, jobs, groups)
        for name, seeds in missing.items()
    ]
    return run_here(tasks) if plan.jobs is None else run_in_processes(tasks, at_once)


def _groups(dataset: Dataset, plan: Plan) -> NDArray[np.int64] | None:
    return find_twins(dataset) if plan.twins_together else None


def _kind_of(name: str) -> str:
    if name in METHODS:
        return "pre-trained"
    return "cheap baseline" if name in CHEAP_BASELINES else "baseline"


def read_record(path: Path) -> Record:
    """A record that was written before."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        if record["protocol"]["name"] != PROTOCOL["name"]:
            raise ValueError(f"its protocol is {record['protocol']['name']}")
        for entry in record["methods"].values():
            _ = entry["settings"], entry["kind"], [seed["fold_hash"] for seed in entry["seeds"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not a record of 'joao compare' ({error}). Choose another name.") from error
    return record


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
