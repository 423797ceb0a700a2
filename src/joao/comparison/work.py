"""One method: makes its rows for every seed, scores them, and measures what that took.

Methods one after another in this process, or each in a process of its own, several at a time."""

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
from joao.comparison.methods import has_seed, is_kernel, make_rows
from joao.core.errors import UserError, is_out_of_memory
from joao.core.memory import measure_run
from joao.core.processes import block_interrupts, exit_with_parent, silence_lightning
from joao.data.dataset import Dataset
from joao.evaluation.embeddings import evaluate_embeddings
from joao.runs.scoring import require_classes
from joao.training.device import pick_device

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
