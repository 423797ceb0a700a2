"""Several pre-trainings per method, on a part of the corpus that has no test molecules.

    python -m repro.studies.transfer_repeats overlap repro/records/overlap.json
    python -m repro.studies.transfer_repeats prepare DATA
    python -m repro.studies.transfer_repeats run DATA --out OUT --minutes 6

``overlap`` counts the test molecules of all sets in the whole corpus. ``prepare`` draws the corpus, leaves out all test molecules and writes it, with the labelled sets and their scaffolds,
as packed files, which ``run`` reads without RDKit. ``run`` pre-trains what is missing and fine-tunes on each set from
all pre-trainings of a method side by side, and writes a record for each method and set. It stops after ``--minutes``; the same command resumes. Settings are in
``[repeats]`` of the grid, the rule for what is said of the figures in ``repro/decision-rules.md``.
"""

import argparse
import copy
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from joao.config.recipe import Recipe
from joao.core.errors import Interrupted, UserError
from joao.core.files import make_folder, write_json
from joao.core.randomness import derive_seed, numpy_generator
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.data.formats.packed import drop_texts, write_packed
from joao.data.formats.smiles import read_molecule_table
from joao.data.molecules import make_molecules
from joao.data.names import resolve_path
from joao.encoders import MoleculeGin
from joao.evaluation.splits import SHARES, Split, scaffold_numbers, split_graphs
from joao.evaluation.targets import BinaryTargets, select_tasks
from joao.runs.pretraining import pretrain
from joao.runs.scoring import describe_data, provenance
from joao.runs.trained import TrainedEncoder, load_run
from joao.training.device import make_fabric
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.cells import RunOptions, check_known
from repro.protocols.stacked_fits import Part, can_be_stacked
from repro.protocols.transfer import run as transfer
from repro.protocols.transfer.overlap import count, find_shared, molecules_of_test
from repro.protocols.transfer.repeats import record_file
from repro.protocols.transfer.score import score_parts
from repro.record_files import Record
from repro.splits import split_hash
from repro.tasks import run_tasks

CORPUS = "zinc_part"
Encoders = Mapping[int, TrainedEncoder]  # by seed of the pre-training


def settings() -> dict[str, Any]:
    """The settings: methods, data sets, seeds, size of the corpus and epochs of the pre-training."""
    found: dict[str, Any] = transfer.grid()["repeats"]
    return found


def repeat_recipe(method: str, pretraining: int) -> Recipe:
    """The recipe of a pre-training: that of the table, except corpus, epochs and seed."""
    recipe = transfer.cell_recipe(method)
    training = dataclasses.replace(recipe.training, epochs=settings()["epochs"], seed=pretraining)
    return dataclasses.replace(recipe, data=CORPUS, training=training)


def draw_corpus(data_root: str | None) -> Dataset:
    """Draw molecules from all sources together, without test molecules and rows that RDKit cannot parse."""
    smiles = corpus_smiles(data_root)
    order = numpy_generator(0, "transfer repeats").permutation(len(smiles))
    wanted = settings()["molecules"]
    if wanted > len(smiles):
        raise UserError(f"corpus: {wanted:,} molecules are wanted, and the sources have {len(smiles):,}.")
    tests = {each for name in transfer.grid()["datasets"] for each in molecules_of_test(name, data_root)}
    # A few more than wanted, for those that are left out.
    drawn = [smiles[each] for each in order[: wanted + wanted // 50 + 10]]
    kept = np.flatnonzero(~find_shared(drawn, tests)[2])
    corpus = make_molecules(CORPUS, [drawn[each] for each in kept])
    return drop_texts(corpus.subset(np.arange(min(wanted, len(corpus)))))


def write_overlap(record: Path, data_root: str | None) -> None:
    """Count the test molecules of all sets of the table in the corpus of the table."""
    tests = {name: molecules_of_test(name, data_root) for name in transfer.grid()["datasets"]}
    found = count(corpus_smiles(data_root), tests)
    write_json(record, {**found, "sources": transfer.grid()["corpus"]["sources"], **provenance("cpu")})


def corpus_smiles(data_root: str | None) -> list[str]:
    """The SMILES of all sources of the corpus, one after another."""
    tables = [read_molecule_table(resolve_path(name, data_root)) for name in transfer.grid()["corpus"]["sources"]]
    return [smiles for table in tables for smiles in table.smiles]


def prepare(folder: Path, data_root: str | None) -> None:
    """Write the corpus and the labelled sets as packed files, which :func:`joao.data.read` finds under ``folder``."""
    molecules = folder / "molecules"
    make_folder(molecules)
    for name in settings()["datasets"]:
        dataset = read_whole(name, data_root)
        write_packed(
            molecules / f"{name}.safetensors.xz",
            drop_texts(dataclasses.replace(dataset, groups=scaffold_numbers(dataset.smiles))),
        )
    write_packed(molecules / f"{CORPUS}.safetensors.xz", draw_corpus(data_root))


def encoder_folder(task: tuple[str, int], encoders: Path) -> Path:
    """The run of a pre-training."""
    return encoders / f"{task[0]}-{task[1]}"


def is_pretrained(task: tuple[str, int], encoders: Path) -> bool:
    """Whether a pre-training is finished."""
    return (encoder_folder(task, encoders) / "weights.safetensors").exists()


def pretrain_one(options: RunOptions, task: tuple[str, int], stop_at: float = float("inf")) -> None:
    """Pre-train, or resume; save the state and stop at the time ``stop_at``."""
    folder = encoder_folder(task, options.encoders)
    if time.time() > stop_at:
        raise Interrupted(f"{folder}: not started, because the time is over.")
    if folder.exists() and not (folder / "run.json").exists():
        shutil.rmtree(folder)  # ended while its first files were written
    pretrain(
        repeat_recipe(*task),
        read_whole(CORPUS, options.data_root),
        folder=folder,
        resume=(folder / "run.json").exists(),
        device=options.device,
        precision=options.precision,
        checkpoint_every=1,
        should_stop=lambda: time.time() > stop_at,
    )


def finetune_one(options: RunOptions, cell: tuple[str, str]) -> None:
    """Fine-tune on a data set from all pre-trainings of a method, and write the record."""
    name, method = cell
    folders = {seed: encoder_folder((method, seed), options.encoders) for seed in settings()["pretrainings"]}
    encoders = {seed: load_run(folder, device=options.device) for seed, folder in folders.items()}
    dataset = read_whole(name, options.data_root)
    record_file(options.records).write(compute(cell, dataset, encoders, options.device, options.precision))


def compute(cell: tuple[str, str], dataset: Dataset, encoders: Encoders, device: str, precision: str) -> Record:
    """The record of a data set and a method: all fine-tuning seeds of all pre-trainings, side by side."""
    started = time.perf_counter()
    name, method = cell
    dataset = select_tasks(dataset)
    split = split_graphs(dataset, "scaffold", *SHARES["scaffold"], seed=0)
    corpora = [transfer.corpus_facts(trained) for trained in encoders.values()]
    how = dict(transfer.grid()["finetuning"])
    dropout = how.pop("dropout")
    for trained in encoders.values():
        assert isinstance(trained.encoder, MoleculeGin)
        trained.encoder.dropout = dropout
    assert dataset.targets is not None
    finetuning = Finetuning(
        make_store(dataset, Features.from_dataset(dataset, "atoms")),
        BinaryTargets(torch.from_numpy(dataset.targets)),
        # A copy: every start below is taken from the encoders as they were pre-trained.
        copy.deepcopy(next(iter(encoders.values())).encoder),
        Finetune(**how),
        make_fabric(device, precision),
    )
    fits = [{"pretraining": pretraining, "seed": seed} for pretraining in encoders for seed in settings()["seeds"]]
    parts = [_part(finetuning, split, encoders[fit["pretraining"]], fit["seed"]) for fit in fits]
    scores = [fit | score for fit, score in zip(fits, score_parts(finetuning, split, parts), strict=True)]
    side_by_side = can_be_stacked(finetuning, parts)
    return {
        "cell": {"dataset": name, "method": method},
        "scores": {column: [score[column] for score in scores] for column in scores[0]},
        "recipe": repeat_recipe(method, settings()["pretrainings"][0]).table(),
        "corpus": corpora,
        "data": describe_data(dataset),
        "tasks": len(dataset.target_names),
        "molecules": {kind: len(part) for kind, part in split._asdict().items()},
        "split_hash": split_hash([split]),
        "finetuning": {"seeds": settings()["seeds"], "dropout": dropout, **how},
        "fine-tuned": f"{len(parts)} fits side by side" if side_by_side else "one after another",
        "precision": precision,
        "seconds": time.perf_counter() - started,
        **provenance(device),
    }


def _part(finetuning: Finetuning, split: Split, trained: TrainedEncoder, seed: int) -> Part:
    start = finetuning.initial_weights(seed, trained.encoder)
    train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
    return Part(train, validation, derive_seed(seed, "transfer"), start)


def missing_cells(out: Path, methods: Sequence[str], sets: Sequence[str]) -> list[tuple[str, str]]:
    """Data sets and methods without a record, the smallest data set first."""
    cells = [(name, method) for name in sets for method in methods]
    return [(name, method) for name, method in cells if record_file(out).get(f"{name}/{method}") is None]


def run(
    options: RunOptions,
    methods: Sequence[str],
    sets: Sequence[str],
    *,
    jobs: int,
    finetune_jobs: int,
    stop_at: float = float("inf"),
) -> bool:
    """Do what is missing of some methods; return whether everything of them is there."""
    started = time.monotonic()
    wanted = list(dict.fromkeys(method for _, method in missing_cells(options.records, methods, sets)))
    tasks = [(method, seed) for seed in settings()["pretrainings"] for method in wanted]
    todo = [task for task in tasks if not is_pretrained(task, options.encoders)]
    make_folder(options.encoders)
    try:
        for task in run_tasks(partial(pretrain_one, options, stop_at=stop_at), todo, min(jobs, max(len(todo), 1))):
            print(f"{time.monotonic() - started:6.1f} s  pre-trained {task[0]} {task[1]}", flush=True)
    except Interrupted:
        return False
    cells = missing_cells(options.records, methods, sets)
    for name, method in run_tasks(partial(finetune_one, options), cells, min(finetune_jobs, max(len(cells), 1))):
        print(f"{time.monotonic() - started:6.1f} s  fine-tuned {method} on {name}", flush=True)
    return not missing_cells(options.records, methods, sets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("overlap", help="count test molecules in the corpus")
    counting.add_argument("record", type=Path)
    preparing = commands.add_parser("prepare", help="draw the corpus and pack all data")
    preparing.add_argument("data", type=Path)
    running = commands.add_parser("run", help="pre-train and fine-tune what is missing")
    running.add_argument("data")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--encoders", type=Path, help="folder of the pre-trainings; default OUT/encoders")
    running.add_argument("--minutes", type=float, default=float("inf"))
    running.add_argument("--methods", default=",".join(settings()["methods"]), help="separated by commas")
    running.add_argument("--data-sets", default=",".join(settings()["datasets"]), help="separated by commas")
    running.add_argument("--jobs", type=int, default=1, help="pre-trainings at the same time")
    running.add_argument("--finetune-jobs", type=int, default=1, help="data sets and methods at the same time")
    running.add_argument("--device", default="auto")
    running.add_argument("--precision", default="32-true")
    given = parser.parse_args()
    if given.command == "prepare":
        return prepare(given.data, None)
    if given.command == "overlap":
        return write_overlap(given.record, None)
    stop_at = time.time() + 60 * given.minutes
    encoders = given.encoders or given.out / "encoders"
    options = RunOptions(given.out, given.data, given.device, given.precision, encoders=encoders)
    if given.minutes < float("inf"):
        # Fine-tuning has no checkpoints: a fit that is not finished in time is lost. Workers end with this process.
        watchdog = threading.Timer(60 * given.minutes + 10, os._exit, args=(3,))
        watchdog.daemon = True
        watchdog.start()
    methods = given.methods.split(",")
    check_known("method", methods, settings()["methods"])
    sets = given.data_sets.split(",")
    check_known("data set", sets, settings()["datasets"])
    finished = run(options, methods, sets, jobs=given.jobs, finetune_jobs=given.finetune_jobs, stop_at=stop_at)
    print("Everything is there." if finished else "Not finished: run the same command again.", flush=True)


if __name__ == "__main__":
    main()
