"""Compute a comparison and write its record, which can be continued."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.comparison.methods import OnStep, Outcome, Task, method_settings, run_here, run_in_processes
from joao.comparison.own import describe_own, kind_of_own
from joao.comparison.summary import KINDS, finished_partitions, first_partitions, record_verdict, rows
from joao.config.methods import CHEAP_BASELINES
from joao.config.recipe import METHODS
from joao.core.errors import UserError, short_repr, user_error_on_failure
from joao.core.files import check_new_file, parse_json, read_regular, user_error_on_os_error, write_json
from joao.core.registry import check_minimum, check_value, make_record
from joao.data.dataset import Dataset
from joao.data.refinement import find_twins
from joao.evaluation.embeddings import Scorer, choose_scorer
from joao.evaluation.folds import fold_hash, folds
from joao.evaluation.statistics import chance_level
from joao.runs.scoring import TWINS_TOGETHER, describe_data, describe_scoring, labelled_graphs, provenance
from joao.training.device import pick_device

PROTOCOL = {
    "name": "comparison",
    "pre-training": "transductive: all graphs, no labels",
    "seeds": "seed s makes the rows that are scored on partition s",
}
# A record can only be continued if these are equal.
IDENTITY = ("protocol", "data", "folds", "versions", "machine")

Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """The settings of a comparison, see :func:`joao.compare`; ``methods`` already include the cheap baselines."""

    methods: tuple[str, ...]
    partitions: int = 5
    folds: int = 10
    epochs: int | None = None
    device: str = "auto"
    jobs: int | None = None
    twins_together: bool = False
    scorer: Scorer = "auto"
    own: Mapping[str, Any] = field(default_factory=dict)  # own methods by name

    def __post_init__(self) -> None:
        check_minimum("compare", 1, partitions=self.partitions, epochs=self.epochs, jobs=self.jobs)
        pick_device(self.device)
        choose_scorer(self.scorer, 0, self.folds)


def compute(
    dataset: Dataset,
    plan: Plan,
    out: Path | None = None,
    on_done: Callable[[Outcome], None] = lambda done: None,
    on_partition: Callable[[Record], None] = lambda record: None,
    on_step: OnStep = lambda step: None,
) -> Record:
    """Score every method on the same folds and return the record; see :func:`joao.compare`.

    ``on_done`` is called after every seed and for every method that fails, ``on_partition`` with the record of the
    first partitions whenever all methods have finished one more, and ``on_step`` inside a seed. After Ctrl-C the result
    is such a record, with the key ``interrupted``; it may have no partition.
    """
    record = start_record(dataset, plan, out)
    shown = finished_partitions(record)
    try:
        for outcome in _run(dataset, plan, missing_seeds(record), on_step):
            entry = record["methods"][outcome.method]
            if outcome.score is None:
                entry["failure"] = outcome.failure
            else:
                entry["seeds"][str(outcome.score["seed"])] = outcome.score
            if out is not None:
                write_json(out, record)
            on_done(outcome)
            finished = finished_partitions(record)
            if shown < finished < plan.partitions:
                shown = finished
                on_partition(first_partitions(record, finished))
    except KeyboardInterrupt:
        finished = finished_partitions(record)
        record = first_partitions(record, finished)
        record["interrupted"] = f"after {finished} of {plan.partitions} partitions"
        if not finished:
            return record  # ``out`` has all seeds that are finished
    table, verdict = rows(record), record_verdict(record)
    if all(row.failure for row in table):
        raise UserError(f"compare: all methods failed. {table[0].method}: {table[0].failure}")
    record["rows"] = [asdict(row) for row in table]
    record["verdict"] = None if verdict is None else {"sentence": str(verdict), **asdict(verdict)}
    if out is not None:
        write_json(out, record)
    return record


def start_record(dataset: Dataset, plan: Plan, out: Path | None = None) -> Record:
    """Make a record without scores, or with the scores in ``out`` if that is a record of the same comparison."""
    _, classes, _ = labelled_graphs(dataset)
    names, groups = dataset.class_names, _groups(dataset, plan)
    parts = [folds(classes, each, plan.folds, class_names=names, groups=groups) for each in range(plan.partitions)]
    labels = hashlib.sha256(np.ascontiguousarray(dataset.classes, dtype=np.int64).tobytes()).hexdigest()[:16]
    record: Record = {
        "protocol": {
            **PROTOCOL,
            **({"folds": TWINS_TOGETHER} if plan.twins_together else {}),
            **describe_scoring(plan.scorer, len(classes), plan.folds, plan.device),
        },
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
        check_same_comparison(out, before, record, IDENTITY)
        record["methods"] = before["methods"]
        for name, entry in record["methods"].items():
            for number, expected in enumerate(record["fold hashes"]):
                if entry["seeds"].get(str(number), {"fold_hash": expected})["fold_hash"] != expected:
                    raise UserError(f"{out}: seed {number} of {name} was scored on other folds. Choose another file.")
    elif out is not None:
        check_new_file(out)
    for name in plan.methods:
        own = plan.own.get(name)
        kind = kind_of(name) if own is None else kind_of_own(own)
        described = method_settings(name, dataset.kind, plan.epochs) if own is None else describe_own(own)
        settings = _as_json(described)
        entry = record["methods"].setdefault(name, {"kind": kind, "settings": settings, "seeds": {}})
        if entry["settings"] != settings:
            raise UserError(
                f"{out}: contains {name} with different settings or code (for example --epochs). Choose another file."
            )
        entry.pop("failure", None)
    return record


def check_same_comparison(path: Path, before: Record, record: Record, keys: Iterable[str]) -> None:
    """Raise an error if the record ``before`` of a file differs in one of ``keys``."""
    for key in keys:
        if before.get(key) != _as_json(record[key]):
            raise UserError(f"{path}: belongs to a different comparison ('{key}' differs). Choose another file.")


def kind_of(name: str) -> str:
    """One of :data:`joao.comparison.summary.KINDS`."""
    if "+" in name:
        return "combination"
    return "pre-trained" if name in METHODS else "cheap baseline" if name in CHEAP_BASELINES else "baseline"


def missing_seeds(record: Record) -> dict[str, list[int]]:
    seeds = range(record["partitions"])
    done = {name: record["methods"][name]["seeds"] for name in record["compared"]}
    missing = {name: [seed for seed in seeds if str(seed) not in done[name]] for name in done}
    return {name: to_do for name, to_do in missing.items() if to_do}


def _run(dataset: Dataset, plan: Plan, missing: dict[str, list[int]], on_step: OnStep) -> Iterator[Outcome]:
    # One method at a time on a GPU: methods that share it would slow each other down and spoil the timing.
    at_once = 1 if pick_device(plan.device).type == "cuda" else max(1, min(plan.jobs or 1, len(missing)))
    jobs, groups = (plan.jobs or 1) // at_once, _groups(dataset, plan)
    settings = plan.folds, plan.epochs, plan.device, jobs, groups, plan.scorer
    tasks = [Task(name, seeds, dataset, *settings, plan.own.get(name)) for name, seeds in missing.items()]
    return run_here(tasks, on_step) if plan.jobs is None else run_in_processes(tasks, at_once, on_step)


def _groups(dataset: Dataset, plan: Plan) -> NDArray[np.int64] | None:
    return find_twins(labelled_graphs(dataset)[0]) if plan.twins_together else None


@dataclass(frozen=True)
class _Method:
    """An entry of the record; its ``seeds`` are :class:`_Seed`."""

    kind: str
    settings: Mapping[str, Any]
    seeds: Mapping[str, Mapping[str, Any]]
    failure: str = ""


@dataclass(frozen=True)
class _Seed:
    fold_hash: str
    accuracies: tuple[float, ...]
    seconds: float


def read_record(path: Path) -> Record:
    place = f"{path}: is not a record of 'joao compare'"
    with user_error_on_os_error(path, "cannot be read"), user_error_on_failure(place, "Choose another file."):
        record: Record = parse_json(read_regular(path))
        if record["protocol"]["name"] != PROTOCOL["name"]:
            raise ValueError(f"protocol {short_repr(record['protocol']['name'])}")
        for name, values in record["methods"].items():
            entry = make_record(_Method, values, f"{place}: {name}", allow_unknown=True)
            if entry.kind not in KINDS:
                raise ValueError(f"{name}: unknown kind {short_repr(entry.kind)}")
            for number, each in entry.seeds.items():
                seed = make_record(_Seed, each, f"{place}: {name}: seed {number}", allow_unknown=True)
                check_value(each["peak bytes"], int | None, f"{place}: {name}: peak bytes")
                if len(seed.accuracies) != record["folds"] or not all(0 <= share <= 1 for share in seed.accuracies):
                    raise ValueError(f"{name}: expected {record['folds']} accuracies between 0 and 1")
    return record


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
