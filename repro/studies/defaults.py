"""Which settings should ``JOAO()`` have? Candidates compared with the current default on development data sets.

    OMP_NUM_THREADS=1 python -m repro.studies.defaults --jobs 2

No data set of the paper's table is used. Each set is used with its node labels and, to represent sets without labels,
with one-hot degrees and with a constant. Candidates that differ only in the readout or in the number of epochs share a
pre-training. Cells that have a record are skipped.
"""

import copy
import dataclasses
import math
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from joao.config.builder import Method, build_method, build_pool
from joao.config.recipe import Recipe, Schedule, make_recipe
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.randomness import numpy_generator, temporary_seed, torch_generator
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.encoders import NodeEncoder
from joao.encoders.base import PaddedEncoder
from joao.evaluation.statistics import chance_level
from joao.heads import HEADS
from joao.objectives import PairObjective
from joao.runs.scoring import describe_data, provenance, require_classes
from joao.training.device import limit_threads, make_fabric, pick_device
from joao.training.distributed.launch import find_process_layout
from joao.training.model import calibrate
from joao.training.pretrain import Pretraining
from joao.training.steps import BatchViews, pair_losses
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, record_file
from repro.record_files import RECORDS, RecordFile
from repro.studies.common import parse_options, score_rows, write_page
from repro.studies.default_candidates import CANDIDATES, SEEDS, Candidate, Training
from repro.studies.defaults_page import page
from repro.studies.readouts import (
    Logged,
    LoggedReadouts,
    augmented,
    criteria,
    read_out,
    signed_log,
    whole,
    with_log_degree,
)
from repro.tasks import run_tasks

DATA = ("MSRC_9", "COX2", "DHFR", "MSRC_21", "Mutagenicity")
FEATURES = ("labels", "degree", "constant")
HELD_OUT = 0.2


@dataclass(frozen=True, order=True)
class Work:
    """Candidates that share pre-trainings on one data set with one kind of features."""

    dataset: str
    features: str
    seed: int
    training: Training
    names: tuple[str, ...]

    def cell(self, name: str) -> Cell:
        return Cell(f"{self.dataset}-{self.features}", name, self.seed)


def recipe_of(training: Training, features: str, epochs: int, seed: int) -> Recipe:
    """Return the recipe of `JOAO()`, as it was then, with the width of a training; its other settings cannot be part of a recipe."""
    return make_recipe(
        {
            "features": features,
            "encoder": {"name": "gin", "width": training.width, "readout": "sum"},
            "training": {"epochs": max(1, epochs), "seed": seed},
        }
    )


def method_of(recipe: Recipe, store: GraphStore, training: Training) -> Method:
    """Build the method of a recipe. An encoder with more readouts gets a wider projection head."""
    method = build_method(recipe, store)
    encoder = method.encoder
    assert isinstance(encoder, PaddedEncoder)
    if training.inside == ("sum",):
        return dataclasses.replace(method, encoder=Logged(encoder))
    if not training.inside:
        return method
    wider = LoggedReadouts(encoder, training.inside, store.num_features)
    with temporary_seed(recipe.training.seed, "heads"):
        heads = HEADS[recipe.heads.name](wider.num_dimensions, len(method.augmentations), **recipe.heads.options)
    return dataclasses.replace(method, encoder=wider, heads=heads)


def store_of(dataset: Dataset, features: Features, training: Training) -> GraphStore:
    store = make_store(dataset, features)
    return with_log_degree(store) if training.log_degree else store


def trained(
    training: Training, recipe: Recipe, store: GraphStore, wanted: Collection[int], device: str
) -> Iterator[tuple[Pretraining, int, float]]:
    """Pre-train and yield after each number of epochs in ``wanted``, with the seconds so far.

    On a CPU this is CPU time, which does not depend on other processes.
    """
    method = method_of(recipe, store, training)
    run = Pretraining(store, method, recipe.training, make_fabric(device, "32-true", find_process_layout()))
    clock = time.perf_counter if run.store.device.type == "cuda" else time.process_time
    if 0 in wanted:
        yield run, 0, 0.0
    seconds, started = 0.0, clock()
    for epoch in run.run() if max(wanted) > 0 else ():
        seconds += clock() - started
        if epoch.epoch in wanted:
            yield run, epoch.epoch, seconds
        started = clock()


def held_out_losses(work: Work, dataset: Dataset, wanted: Collection[int], device: str) -> dict[int, float]:
    """Return the loss on a fifth of the graphs, which a second pre-training did not see, minus the loss of random
    embeddings, which is the logarithm of the number of compared graphs. All pairs of augmentations count equally."""
    features = Features.from_dataset(dataset, work.features)
    order = numpy_generator(work.seed, "held out").permutation(len(dataset))
    few = max(3, round(HELD_OUT * len(dataset)))
    seen, unseen = (store_of(dataset.subset(part), features, work.training) for part in (order[few:], order[:few]))
    recipe = recipe_of(work.training, work.features, max(wanted), work.seed)
    losses = {}
    for run, epoch, _ in trained(work.training, recipe, seen, wanted, device):
        unseen = unseen.to(run.store.device)
        batch_views = BatchViews(unseen, torch.arange(few, device=unseen.device))
        generator = torch_generator(work.seed, "held out views", unseen.device)
        assert isinstance(run.method.objective, PairObjective)
        table = pair_losses(run.model, batch_views, run.pool, run.method.objective, generator)
        losses[epoch] = float(table.mean()) - math.log(few - 1)
    return losses


def embeddings(
    candidate: Candidate,
    encoders: Mapping[int, NodeEncoder],
    store: GraphStore,
    shown: Sequence[Sequence[GraphBatch]],
) -> list[Tensor]:
    """Return embeddings ``(G, d)`` of a candidate for each set of batches in ``shown``; several encoders are concatenated."""
    if candidate.calibrated:
        encoders = copy.deepcopy(encoders)
        for seed, encoder in encoders.items():
            calibrate(encoder, store, Schedule().batch_size, torch_generator(seed, "calibration"))
    rows = [
        torch.cat([read_out(encoder, batches, candidate.readouts) for encoder in encoders.values()], dim=1)
        for batches in shown
    ]
    return [signed_log(each) for each in rows] if candidate.log else rows


@limit_threads()
def compute(work: Work, records: RecordFile, device: str) -> None:
    """Compute candidates that share pre-trainings and write their records."""
    dataset = dataclasses.replace(dataset_of(work.dataset, None), node_attributes=None)
    features = Features.from_dataset(dataset, work.features)
    store = store_of(dataset, features, work.training).to(pick_device(device))
    chosen = {name: CANDIDATES[name] for name in work.names}
    wanted: dict[int, set[int]] = {}
    for candidate in chosen.values():
        for seed in candidate.training_seeds(work.seed):
            wanted.setdefault(seed, set()).add(candidate.epochs)
    encoders: dict[tuple[int, int], NodeEncoder] = {}
    seconds: dict[tuple[int, int], float] = {}
    for seed, epochs in wanted.items():
        recipe = recipe_of(work.training, work.features, max(epochs), seed)
        for run, epoch, so_far in trained(work.training, recipe, store, epochs, device):
            assert isinstance(run.method.encoder, NodeEncoder)
            encoders[seed, epoch], seconds[seed, epoch] = copy.deepcopy(run.method.encoder), so_far
    epochs = wanted.get(work.seed, set()) - {0}
    losses = held_out_losses(work, dataset, epochs, device) if epochs else {}
    pool = build_pool(recipe_of(work.training, work.features, 1, work.seed))
    shown = [whole(store)] + [
        augmented(store, each, torch_generator(work.seed, f"shown by {name}", store.device))
        for name, each in pool.items()
        if name != "identity"
    ]
    for name, candidate in chosen.items():
        mine = {seed: encoders[seed, candidate.epochs] for seed in candidate.training_seeds(work.seed)}
        rows, *views = embeddings(candidate, mine, store, shown)
        scores = score_rows(rows.numpy(), dataset, work.seed, device)
        found = {"dimensions": rows.shape[1], **criteria(rows, views)}
        if candidate.later == 0 and candidate.epochs in losses:
            found["held-out loss"] = losses[candidate.epochs]
        record = {
            **identity(work, name),
            "data": describe_data(dataset),
            "chance": chance_level(require_classes(dataset)),
            "scores": scores.to_json(),
            "criteria": found,
            "seconds of pre-training": sum(seconds[seed, candidate.epochs] for seed in mine),
            **provenance(device),
        }
        records.write(record)


def identity(work: Work, name: str) -> dict[str, Any]:
    """Return the settings that identify a record."""
    candidate = CANDIDATES[name]
    recipe = recipe_of(candidate.training, work.features, candidate.epochs, work.seed + candidate.later)
    return {
        "cell": dataclasses.asdict(work.cell(name)),
        "candidate": dataclasses.asdict(candidate),
        "recipe": recipe.table(),
    }


def is_done(work: Work, name: str, records: RecordFile) -> bool:
    """Return whether a candidate has a record. A record of another candidate with the same name is an error."""
    cell = work.cell(name)
    return records.is_current(cell.key, identity(work, name), f"{name} on {cell.dataset}")


def works(
    records: RecordFile, datasets: Sequence[str], features: Sequence[str], seeds: int, names: Sequence[str]
) -> list[Work]:
    """Return the missing work. Data sets named last take longest and come first."""
    trainings = sorted({CANDIDATES[name].training for name in names})
    left = []
    for dataset, rule, seed, training in product(datasets, features, range(seeds), trainings):
        work = Work(dataset, rule, seed, training, tuple(n for n in names if CANDIDATES[n].training == training))
        missing = tuple(name for name in work.names if not is_done(work, name, records))
        if missing:
            left.append(dataclasses.replace(work, names=missing))
    return sorted(left, key=lambda work: (-datasets.index(work.dataset), -len(work.names)))


def main() -> None:
    lists = {"data": ",".join(DATA), "features": ",".join(FEATURES), "candidates": ",".join(CANDIDATES)}
    # The table is the name of the record file: defaults or defaults-cpu.
    given = parse_options(__doc__, table="defaults", **lists, seeds=SEEDS, jobs=1, device="cpu")
    data, features, names = (text.split(",") for text in (given.data, given.features, given.candidates))
    for name, known in [(each, FEATURES) for each in features] + [(each, tuple(CANDIDATES)) for each in names]:
        if name not in known:
            sys.exit(f"unknown '{name}'. Known: {', '.join(known)}.")
    records = record_file(RECORDS, given.table)
    left = works(records, data, features, given.seeds, names)
    for work in run_tasks(partial(compute, records=records, device=given.device), left, given.jobs):
        print(work.dataset, work.features, work.seed, *work.names, flush=True)
    write_page(given.table, table_page(given.table))


def table_page(table: str) -> str:
    """Return the page of a record file."""
    words = {name: each.words for name, each in CANDIDATES.items()}
    records = record_file(RECORDS, table).read()
    return (
        page(records, words, "Candidates for the defaults, on a CPU")
        if table == "defaults-cpu"
        else page(records, words)
    )


if __name__ == "__main__":
    main()
