"""Many independent runs, spread over processes, with a limit on the time; one JSON line each."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.provenance import versions
from joao.core.randomness import numpy_generator
from joao.data import Dataset, read_whole
from joao.data.refinement import find_twins
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.statistics import Gain
from joao.runs.trained import TrainedEncoder
from repro.intervals import estimate_over_sets
from repro.record_files import RECORDS, RecordFile
from repro.studies.common import parse_options
from repro.tasks import run_tasks

Compute = Callable[[Any, Path | None, str], dict[str, Any]]
SETS = ("COX2", "MSRC_9", "DHFR", "MSRC_21", "Mutagenicity", "reddit10k")


@cache
def load(name: str, root: Path | None, most: int) -> tuple[Dataset, NDArray[np.int64], NDArray[np.int64]]:
    """The data set, at most ``most`` graphs to score, and the group of isomorphic graphs of each of those."""
    dataset = read_whole(name, root=root)
    groups = find_twins(dataset)
    scored = np.arange(len(dataset))
    if len(dataset) > most:
        order = numpy_generator(0, "headroom sample").permutation(np.unique(groups))
        sizes = np.bincount(groups)[order]
        scored = np.flatnonzero(np.isin(groups, order[np.cumsum(sizes) <= most]))
    return dataset, scored, np.unique(groups[scored], return_inverse=True)[1]


def score(
    embeddings: NDArray[np.float32], name: str, root: Path | None, most: int, seed: int, device: str
) -> dict[str, Any]:
    """Accuracy of an SVM on each fold of partition ``seed``, from the embeddings of all graphs of a data set."""
    dataset, scored, groups = load(name, root, most)
    assert dataset.classes is not None
    classes = np.unique(dataset.classes[scored], return_inverse=True)[1].astype(np.int64)
    found = evaluate_embeddings(embeddings[scored], classes, partitions=[seed], groups=groups, device=device)
    return {"accuracies": [round(each, 6) for each in found.accuracies[0]], "fold_hash": found.partitions[0].fold_hash}


def made_with(trained: TrainedEncoder) -> str:
    found, machine = versions(), trained.info.machine
    return (
        f"joao {found['joao']} ({found['source']}), torch {found['torch']}, {machine.get('gpu', machine['processor'])}"
    )


def interval(values: Sequence[float]) -> Gain:
    """Mean and 95 % interval with the set as the unit."""
    return estimate_over_sets(values).interval()


def record_file(path: Path) -> RecordFile:
    return RecordFile(path, _key)


def _key(record: dict[str, Any]) -> str:
    return "/".join(map(str, record["cell"].values()))


def main(
    description: str | None, name: str, cells: Callable[[Sequence[str], int], Iterable[Any]], compute: Compute
) -> None:
    """Compute the cells that have no record yet."""
    sizes = {"data": ",".join(SETS), "data_root": Path, "seeds": 5, "jobs": 1, "device": "auto", "minutes": 600.0}
    given = parse_options(description, records=Path(RECORDS / f"{name}.jsonl"), **sizes)
    records, end = record_file(given.records), time.time() + 60 * given.minutes
    todo = [
        cell for cell in cells(given.data.split(","), given.seeds) if records.get(_key({"cell": asdict(cell)})) is None
    ]
    run = partial(_run, compute=compute, records=records, root=given.data_root, device=given.device, end=end)
    for number, cell in enumerate(run_tasks(run, todo, given.jobs), 1):
        print(number, "of", len(todo), cell, flush=True)


def _run(cell: Any, compute: Compute, records: RecordFile, root: Path | None, device: str, end: float) -> None:
    if time.time() < end:
        records.write({"cell": asdict(cell), **compute(cell, root, device)})
