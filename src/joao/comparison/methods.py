"""What can be compared: pre-training methods, baselines, and the encoder untrained."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.baselines import BASELINES
from joao.baselines.base import Rows
from joao.config.recipe import METHODS, Recipe, make_recipe
from joao.core.errors import UserError, is_out_of_memory, suggest
from joao.core.memory import measure_run
from joao.core.processes import block_interrupts, exit_with_parent, silence_lightning
from joao.data.dataset import Dataset
from joao.evaluation.embeddings import evaluate_embeddings
from joao.runs.pretraining import pretrain
from joao.runs.scoring import require_classes
from joao.runs.trained import make_untrained
from joao.training.device import pick_device

UNTRAINED = "untrained"
# What pre-training must beat to be worth its time; always among the compared.
CHEAP_BASELINES = (UNTRAINED, "wl", "ldp", "histogram")
DEFAULT_METHODS: tuple[str, ...] = ("joao", "joaov2", "graphcl")
# Beyond so many nodes, or graphs, one method is pre-trained by default instead of three.
LARGE_NODES, LARGE_GRAPHS = 1_000_000, 10_000


class Choice(NamedTuple):
    """The methods to compare, in their order, and what their owner should know of the choice."""

    names: tuple[str, ...]
    notices: tuple[str, ...] = ()


def known_methods() -> list[str]:
    """Every name that can be compared."""
    return [*METHODS, UNTRAINED, *BASELINES]


def choose_methods(dataset: Dataset, wanted: str | Sequence[str] | None) -> Choice:
    """The methods that are ``wanted``, or else sensible ones for these graphs; the cheap baselines are always in.

    Names may come in one text, with commas between.
    """
    cheap = [name for name in CHEAP_BASELINES if missing_package(name) is None]
    notices = [
        f"{name} is left out: it needs {missing_package(name)}, which is not installed."
        for name in CHEAP_BASELINES
        if name not in cheap
    ]
    if wanted is not None:
        names = _parse_names(wanted.split(",") if isinstance(wanted, str) else wanted)
        added = [name for name in cheap if name not in names]
        if added:
            notices.append(f"compared as well, for the verdict is against the cheap baselines: {', '.join(added)}.")
        return Choice((*names, *added), tuple(notices))
    pretrained = DEFAULT_METHODS
    if dataset.num_nodes > LARGE_NODES or len(dataset) > LARGE_GRAPHS:
        pretrained = DEFAULT_METHODS[:1]
        notices.append(
            f"{len(dataset):,} graphs with {dataset.num_nodes:,} nodes are many: of the pre-training methods only "
            f"{pretrained[0]} is compared. Name others with --methods {','.join(DEFAULT_METHODS)}."
        )
    return Choice((*pretrained, *cheap), tuple(notices))


def _parse_names(wanted: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in wanted if name.strip()))
    if not names:
        raise UserError(f"compare: no methods named. Known: {', '.join(known_methods())}.")
    for name in names:
        if name not in known_methods():
            raise UserError(f"compare: unknown method '{name}'. {suggest(name, known_methods())}")
        if (package := missing_package(name)) is not None:
            raise UserError(
                f"compare: {name} needs {package}, which is not installed: pip install {package}, or leave it out."
            )
    return names


def missing_package(name: str) -> str | None:
    """The package that a method needs and this computer does not have."""
    return BASELINES[name].missing_package() if name in BASELINES else None


def is_kernel(name: str) -> bool:
    """Whether its rows are the feature map of a graph kernel."""
    return name in BASELINES and BASELINES[name].kernel


def has_seed(name: str) -> bool:
    """Whether anything about it is random; what is not need not be made again for another seed."""
    return name not in BASELINES or "seed" in BASELINES[name].settings()


def method_recipe(name: str, kind: str, *, seed: int = 0, epochs: int | None = None) -> Recipe:
    """What a method that has an encoder does with data of this kind: what ``joao pretrain`` would do."""
    training = {"seed": seed} if epochs is None else {"seed": seed, "epochs": epochs}
    method = "joao" if name == UNTRAINED else name
    return make_recipe({"method": method, "training": training}, place=f"compare: {name}", kind=kind)


def method_settings(name: str, kind: str, epochs: int | None = None) -> dict[str, Any]:
    """Everything that decides a method, but for its seed: its recipe, or a baseline's options."""
    if name not in BASELINES:
        return method_recipe(name, kind, epochs=epochs).table()
    return {option: default for option, default in BASELINES[name].settings().items() if option != "seed"}


def make_rows(name: str, dataset: Dataset, *, seed: int, epochs: int | None = None, device: str = "auto") -> Rows:
    """``(G, d)`` what a method makes of graphs, whose labels it does not see."""
    dataset = dataset.without_labels()
    if name in BASELINES:
        return BASELINES[name](**({"seed": seed} if has_seed(name) else {})).fit_transform(dataset)
    recipe = method_recipe(name, dataset.kind, seed=seed, epochs=epochs)
    if name == UNTRAINED:
        return make_untrained(recipe, dataset, device=device).embed(dataset).numpy()
    return pretrain(recipe, dataset, device=device).embed(dataset).numpy()


SeedScore = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The seeds of a method that are to be done, on labelled graphs.

    Attributes:
        jobs: folds scored at a time.
        groups: ``(G,)`` numbers of graphs that stay in the same fold.
    """

    method: str
    seeds: Sequence[int]
    dataset: Dataset
    num_folds: int = 10
    epochs: int | None = None
    device: str = "auto"
    jobs: int = 1
    groups: NDArray[np.int64] | None = None


def score_seeds(task: Task) -> Iterator[SeedScore]:
    """What each seed showed: accuracies on the partition of its number, time and memory.

    Time and memory are those of making the rows, learning included, from graphs in memory; scoring has its own time.
    What is not random is made once, and its time and memory stand in every piece.
    """
    classes = require_classes(task.dataset)
    device = "cpu" if task.method in BASELINES else pick_device(task.device).type
    rows: Rows | None = None
    cost: dict[str, Any] = {}
    for seed in task.seeds:
        if rows is None or has_seed(task.method):
            make = partial(make_rows, task.method, task.dataset, seed=seed, epochs=task.epochs, device=device)
            rows, seconds, memory = measure_run(make, device)
            cost = {"seconds": seconds, **memory}
        started = time.perf_counter()
        scores = evaluate_embeddings(
            rows,
            classes,
            class_names=task.dataset.class_names,
            partitions=[seed],
            num_folds=task.num_folds,
            groups=task.groups,
            jobs=task.jobs,
            device=pick_device(task.device).type,  # one scorer for all methods
            kernel="linear" if is_kernel(task.method) else "rbf",
        )
        (partition,) = scores.to_json()["partitions"]
        yield {"seed": seed, **partition, **cost, "seconds of scoring": time.perf_counter() - started}


def failure_reason(error: Exception) -> str | None:
    """Why a method cannot do these graphs, in one line; None where the error is a fault of the program."""
    if isinstance(error, UserError):
        return str(error)
    if is_out_of_memory(error):
        return "out of memory."
    return None


class Outcome(NamedTuple):
    """A seed of a method that is done, or else why the method cannot go on."""

    method: str
    piece: SeedScore | None = None
    failure: str = ""


class MethodError(Exception):
    """A fault of the program in the process of a method, with what was printed of it there."""


def run_here(tasks: Sequence[Task]) -> Iterator[Outcome]:
    """Does every task; one that fails is told of, and the others go on."""
    for task in tasks:
        try:
            for piece in score_seeds(task):
                yield Outcome(task.method, piece)
        except Exception as error:
            reason = failure_reason(error)
            if reason is None:
                raise
            yield Outcome(task.method, failure=reason)


def run_in_processes(tasks: Sequence[Task], at_once: int) -> Iterator[Outcome]:
    """The same, with every task in a new process, so that its memory is its own; as they are done."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(tasks), dict[Connection, tuple[SpawnProcess, str]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                task = waiting.pop(0)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(task, there), daemon=True)
                with block_interrupts():
                    process.start()
                there.close()  # so that the end of the process is the end of the pipe
                running[here] = process, task.method
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                process, method = running[connection]
                try:
                    told = connection.recv()
                except EOFError:
                    process.join()
                    told = f"its process ended before its time (exit code {process.exitcode}); was memory short?"
                if isinstance(told, MethodError):
                    raise told
                if isinstance(told, dict):
                    yield Outcome(method, told)
                    continue
                del running[connection]
                connection.close()
                process.join()
                if told is not None:
                    yield Outcome(method, failure=told)
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _work(task: Task, parent: Connection) -> None:
    """Sends every piece; at the end, None or why it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked
    exit_with_parent()
    silence_lightning()
    try:
        for piece in score_seeds(task):
            parent.send(piece)
        parent.send(None)
    except Exception as error:
        reason = failure_reason(error)
        parent.send(MethodError(f"{task.method}:\n{traceback.format_exc()}") if reason is None else reason)
