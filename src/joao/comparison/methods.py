"""The methods that can be compared (pre-training methods, baselines, the untrained encoder), and how to run them."""

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.baselines import BASELINES
from joao.baselines.base import Rows
from joao.comparison.own import are_equal, make_sendable, name_methods, own_kernel, own_rows, seed_parameters
from joao.config.methods import CHEAP_BASELINES, COMBINATIONS, COMPARED_METHODS, UNTRAINED
from joao.config.recipe import METHODS, Recipe, make_recipe
from joao.core.errors import UserError, is_out_of_memory, one_line, quantity, short_repr, suggest
from joao.core.processes import Ended, Processes, pickle_call
from joao.core.provenance import measure_run
from joao.data.dataset import Dataset
from joao.evaluation.embeddings import Scorer, evaluate_embeddings
from joao.evaluation.svm import Kernel
from joao.runs.pretraining import pretrain
from joao.runs.scoring import labelled_graphs
from joao.runs.trained import make_untrained
from joao.training.device import pick_device

# Above either limit, the default is to pre-train one method instead of three.
LARGE_NODES, LARGE_GRAPHS = 1_000_000, 10_000

# Why a process may have ended by itself, or by a signal.
_HINTS = (". A script must guard its code by if __name__ == '__main__'.", ", possibly out of memory.")

OnState = Callable[[str, float], None]


class Choice(NamedTuple):
    """The methods to compare, in order, and notices for the user about the choice."""

    names: tuple[str, ...]
    notices: tuple[str, ...] = ()
    own: Mapping[str, Any] = {}  # own methods by name


def known_methods() -> list[str]:
    """List the names of all methods that can be compared."""
    return [*METHODS, UNTRAINED, *BASELINES]


def choose_methods(dataset: Dataset, requested: Any) -> Choice:
    """Choose the ``requested`` methods (see :func:`joao.compare`) or defaults, and add the cheap baselines."""
    missing = {name: package for name in CHEAP_BASELINES if (package := missing_package(name))}
    cheap = [name for name in CHEAP_BASELINES if name not in missing]
    notices = [f"skipping {name}: it needs {package}, which is not installed." for name, package in missing.items()]
    if dataset.kind == "graphs" and dataset.edge_attr is not None:
        columns = quantity(dataset.edge_attr.shape[1], "columns")
        notices.append(
            f"{dataset.name}: the encoder gin of the named methods ignores the edge attributes ({columns}). In Python, "
            "compare JOAO(encoder='gine'), too, which uses them."
        )
    if requested is not None:
        methods = name_methods(requested, known_methods())
        names, own = tuple(methods), {name: method for name, method in methods.items() if method is not None}
        _check_names([name for name in names if name not in own], bool(names))
        added = [name for name in cheap if name not in names]
        if added:
            notices.append(f"added the cheap baselines, which the verdict needs: {', '.join(added)}.")
        return Choice((*names, *added), tuple(notices), own)
    pretrained = (*COMPARED_METHODS, *COMBINATIONS)
    if dataset.num_nodes > LARGE_NODES or len(dataset) > LARGE_GRAPHS:
        pretrained = COMPARED_METHODS[:1]
        notices.append(
            f"large data set ({len(dataset):,} graphs, {dataset.num_nodes:,} nodes): {pretrained[0]} is the only "
            f"pre-training method. Choose more with --methods {','.join(COMPARED_METHODS)}."
        )
    return Choice((*pretrained, *cheap), tuple(notices))


def _check_names(names: Sequence[str], has_methods: bool) -> None:
    if not has_methods:
        raise UserError(f"compare: no methods given. Known: {', '.join(known_methods())}.")
    for name in names:
        for part in name.split("+"):
            if part not in known_methods():
                place = f"compare: {short_repr(name)}" if part != name else "compare"
                raise UserError(f"{place}: unknown method {short_repr(part)}. {suggest(part, known_methods())}")
        if (package := missing_package(name)) is not None:
            raise UserError(
                f"compare: method '{name}' needs {package}, which is not installed. Run 'pip install {package}' or "
                "remove the method."
            )


def missing_package(name: str) -> str | None:
    """Return the package that a method needs and that is not installed."""
    packages = [BASELINES[part].missing_package() for part in name.split("+") if part in BASELINES]
    return next((package for package in packages if package), None)


def has_seed(name: str) -> bool:
    """Whether a method is random; others are computed once for all seeds."""
    return any(part not in BASELINES or "seed" in BASELINES[part].settings() for part in name.split("+"))


def method_recipe(name: str, kind: str, *, seed: int = 0, epochs: int | None = None) -> Recipe:
    """Make the recipe of a method with an encoder, with the defaults of ``joao pretrain`` for this kind of data."""
    training = {"seed": seed} if epochs is None else {"seed": seed, "epochs": epochs}
    method = "joao" if name == UNTRAINED else name
    return make_recipe({"method": method, "training": training}, source=f"compare: {name}", kind=kind)


def method_settings(name: str, kind: str, epochs: int | None = None) -> dict[str, Any]:
    """Return all settings of a method except its seed: its recipe, or the options of a baseline; by part if several."""
    if "+" in name:
        return {part: method_settings(part, kind, epochs) for part in name.split("+")}
    if name not in BASELINES:
        return method_recipe(name, kind, epochs=epochs).table()
    return {option: default for option, default in BASELINES[name].settings().items() if option != "seed"}


def make_rows(
    name: str,
    dataset: Dataset,
    *,
    seed: int,
    epochs: int | None = None,
    device: str = "auto",
    on_state: OnState = lambda state, share: None,
) -> Rows:
    """Compute ``(G, d)`` embeddings or kernel features; the method does not see the labels.

    ``on_state`` is called during pre-training with the epoch, and the batch inside a long one, and the share of all.
    """
    dataset = dataset.without_labels()
    if name in BASELINES:
        return BASELINES[name](**({"seed": seed} if has_seed(name) else {})).fit_transform(dataset)
    recipe = method_recipe(name, dataset.kind, seed=seed, epochs=epochs)
    if name == UNTRAINED:
        return make_untrained(recipe, dataset, device=device).embed(dataset).numpy()
    epochs = recipe.training.epochs
    trained = pretrain(
        recipe,
        dataset,
        device=device,
        on_epoch=lambda epoch: on_state(f"epoch {epoch.epoch} of {epochs}", epoch.epoch / epochs),
        on_batch=lambda at: on_state(
            f"epoch {at.epoch} of {epochs}, batch {at.batch:,} of {at.batches:,}",
            (at.epoch - 1 + at.batch / at.batches) / epochs,
        ),
    )
    return trained.embed(dataset).numpy()


SeedScore = dict[str, Any]


class Step(NamedTuple):
    """How far a seed of a method is, in words and as a share: computing its rows and scoring them are half each."""

    method: str
    seed: int
    state: str
    share: float

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}: {self.state}"


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Task:
    """Seeds of a method to compute; graphs with a class are scored."""

    method: str
    seeds: Sequence[int]
    dataset: Dataset
    num_folds: int = 10
    epochs: int | None = None
    device: str = "auto"
    jobs: int = 1  # folds to score at a time
    groups: NDArray[np.int64] | None = None  # of the labelled graphs: those of one group stay in the same fold
    scorer: Scorer = "auto"
    own: Any = None  # an own method; pickled if it is for another process


def _rows_of_parts(parts: Sequence[str], task: Task, seed: int, device: str, on_state: OnState) -> list[Rows]:
    on_state("embedding", 0.0)
    if task.own is not None:
        return [own_rows(task.own, task.dataset, seed)]
    settings: dict[str, Any] = {"seed": seed, "epochs": task.epochs, "device": device, "on_state": on_state}
    return [make_rows(part, task.dataset, **settings) for part in parts]


def score_seeds(task: Task, on_step: OnStep = lambda step: None) -> Iterator[SeedScore]:
    """Yield the result of each seed s: accuracies on partition s, time and memory.

    Time and memory are those of computing the embeddings from graphs in memory, including training. The time of scoring
    is separate. Deterministic methods are computed once, and every seed has their time and memory. ``on_step`` is
    called after each epoch of pre-training and each fold.
    """
    _, classes, numbers = labelled_graphs(task.dataset)
    parts = [task.method] if task.own is not None else task.method.split("+")
    is_cpu = task.own is not None or all(part in BASELINES for part in parts)
    device = "cpu" if is_cpu else str(pick_device(task.device))
    # None: an own method without a parameter for its seed. It is computed twice to find out.
    is_random = has_seed(task.method) if task.own is None else bool(seed_parameters(task.own)) or None
    rows: list[Rows] = []
    cost: dict[str, Any] = {}
    for seed in task.seeds:

        def on_state(state: str, share: float, seed: int = seed) -> None:
            on_step(Step(task.method, seed, state, share / 2))

        def on_fold(number: int, accuracy: float, seed: int = seed) -> None:
            done = number + 1
            on_step(Step(task.method, seed, f"fold {done} of {task.num_folds}", (1 + done / task.num_folds) / 2))

        if not rows or is_random is not False:
            before, make = rows, partial(_rows_of_parts, parts, task, seed, device, on_state)
            rows, seconds, memory = measure_run(make, device)
            cost = {"seconds": seconds, **memory}
            if is_random is None and before:
                is_random = not are_equal(before[0], rows[0])
        kernels: list[Kernel] = ["linear" if part in BASELINES and BASELINES[part].kernel else "rbf" for part in parts]
        if task.own is not None:
            kernels = [own_kernel(task.own, rows[0])]
        started = time.perf_counter()
        scored = rows if len(numbers) == len(task.dataset) else [each[numbers] for each in rows]
        scores = evaluate_embeddings(
            scored[0] if len(parts) == 1 else list(zip(scored, kernels, strict=True)),
            classes,
            class_names=task.dataset.class_names,
            partitions=[seed],
            num_folds=task.num_folds,
            groups=task.groups,
            jobs=task.jobs,
            device=str(pick_device(task.device)),  # the same scorer for all methods
            kernel=kernels[0] if len(parts) == 1 else "mean",
            scorer=task.scorer,
            on_fold=on_fold,
        )
        (partition,) = scores.to_json()["partitions"]
        yield {"seed": seed, **partition, **cost, "seconds of scoring": time.perf_counter() - started}


def failure_reason(error: Exception) -> str | None:
    """Return in one line why a method cannot process these graphs; None if the error is a bug."""
    if isinstance(error, UserError):
        return str(error)
    return "out of memory." if is_out_of_memory(error) else None


class Outcome(NamedTuple):
    """The result of one seed of a method, or the reason why the method failed."""

    method: str
    score: SeedScore | None = None
    failure: str = ""


class MethodError(Exception):
    """A bug in the process of a method, caused by the exception of that process."""


def run_here(tasks: Sequence[Task], on_step: OnStep = lambda step: None) -> Iterator[Outcome]:
    """Run all tasks in this process, one seed of each in turn. A task that fails does not stop the others."""
    turns = deque((task, score_seeds(task, on_step)) for task in tasks)
    while turns:
        task, scores = turns.popleft()
        try:
            score = next(scores, None)
        except Exception as error:
            reason = failure_reason(error)
            if reason is None:
                raise
            yield Outcome(task.method, failure=reason)
        else:
            if score is not None:
                turns.append((task, scores))
                yield Outcome(task.method, score)


def run_in_processes(tasks: Sequence[Task], at_once: int, on_step: OnStep = lambda step: None) -> Iterator[Outcome]:
    """Run each task in a new process, so that its memory can be measured, one seed of each in turn.

    Yields outcomes as they arrive. A process waits between two seeds until it is its turn again. Own methods that
    cannot be pickled run in this process.
    """
    pickled = {number: make_sendable(task.own) for number, task in enumerate(tasks) if task.own is not None}
    in_this_process = {number: run_here([tasks[number]], on_step) for number, own in pickled.items() if own is None}
    # Tasks by number: those to start or continue, in turn; those whose process computes a seed; the connections to
    # processes that wait between two seeds; and those that are done or have failed.
    turns, busy, waiting, finished = deque(range(len(tasks))), set[int](), dict[int, Connection](), set[int]()
    seeds_done = [0] * len(tasks)
    with Processes() as processes:
        messages = processes.messages()
        while turns or busy:
            while turns and len(busy) < at_once:
                number = turns.popleft()
                if number in in_this_process:
                    for outcome in islice(in_this_process[number], 1):
                        turns.append(number)
                        yield outcome
                elif number in waiting:
                    with suppress(OSError):  # the process has died, which its last message reports
                        waiting.pop(number).send(None)
                    busy.add(number)
                elif number not in finished:
                    task = replace(tasks[number], own=pickled[number]) if number in pickled else tasks[number]
                    processes.start(number, pickle_call(_run_task, task))
                    busy.add(number)
            if not busy:
                continue
            number, message, connection = next(messages)
            if isinstance(message, Step):
                on_step(message)
                continue
            method = tasks[number].method
            busy.discard(number)
            if message is None or isinstance(message, Exception):
                finished.add(number)
                reason = "" if message is None else failure_reason(message)
                if reason is None:
                    raise MethodError(f"{method}: {one_line(message)}") from message
                if reason:
                    yield Outcome(method, failure=reason)
            elif isinstance(message, Ended):
                waiting.pop(number, None)
                if number not in finished:
                    finished.add(number)
                    yield Outcome(method, failure=f"its process {message}{_HINTS[message.code < 0]}")
            else:
                seeds_done[number] += 1
                if seeds_done[number] < len(tasks[number].seeds):
                    waiting[number] = connection
                    turns.append(number)
                else:
                    busy.add(number)  # until its message None, that it has finished
                yield Outcome(method, message)


def _run_task(parent: Connection, task: Task) -> None:
    """Send steps and the result of every seed, wait before each but the first, and send None at the end."""
    if task.own is not None:
        task = replace(task, own=pickle.loads(task.own))
    for number, score in enumerate(score_seeds(task, parent.send), 1):
        parent.send(score)
        if number < len(task.seeds):
            parent.recv()
    parent.send(None)
