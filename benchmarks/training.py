"""How fast pre-training is, and where its time goes.

    OMP_NUM_THREADS=1 python benchmarks/training.py NCI1 --out results/benchmarks/training-nci1.json

Measures, interleaved in one run and each repeated: whole epochs of GraphCL and of JOAO, and the parts of a step
(batching, each augmentation, forward, backward with the optimiser's step, one measurement of all pair losses).
Figures are medians with the least and the most.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from joao.data import Dataset, read
from joao.data.features import Features, make_store
from joao.experiment import build_method
from joao.files import write_json
from joao.graphs import GraphStore
from joao.provenance import command, machine, versions
from joao.recipe import POOL, make_recipe
from joao.training.lower_level import pair_losses
from joao.training.model import project
from joao.training.pretrain import Pretraining
from joao.training.views import View, view_by_one

REPEATS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="name or path of a data set")
    parser.add_argument("--pool", default="molecules", help="GraphCL's pool: molecules, sparse or dense")
    parser.add_argument("--features", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dataset = read(arguments.data)
    store = make_store(dataset, Features.fixed_on(dataset, arguments.features))
    trainings = {
        "graphcl": training_of(store, {"method": "graphcl", "policy": {"name": "rule_pool", "pool": arguments.pool}}),
        "uniform": training_of(store, {"method": "uniform"}),
        "joao": training_of(store, {"method": "joao"}),
    }
    seconds = interleaved({name: lambda t=t: next(t.run()) for name, t in trainings.items()}, REPEATS)  # type: ignore[misc]
    record = report(dataset, seconds, parts(trainings["joao"]), arguments)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.out, record)


def training_of(store: GraphStore, table: dict[str, Any]) -> Pretraining:
    recipe = make_recipe({**table, "training": {"epochs": 1000}})
    return Pretraining(store, build_method(recipe, store), recipe.training)


def interleaved(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each task, taken in turns so that a busy machine is unfair to none; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            started = time.perf_counter()
            task()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def parts(training: Pretraining) -> dict[str, list[float]]:
    """Seconds of the parts of a step, on one batch."""
    graphs = torch.arange(min(len(training.store), training.schedule.batch_size))
    batch = training.store.batch(graphs)
    generator = training.generators["views"]
    views = [view_by_one(batch, number, training.pool, generator) for number in (0, 1)]
    training.model.train()

    def forward() -> torch.Tensor:
        first, second = (project(training.model, fresh(view)) for view in views)
        return training.method.objective(first, second)

    def forward_and_backward() -> None:
        loss = forward()
        training.optimiser.zero_grad()
        training.fabric.backward(loss)
        training.optimiser.step()

    tasks: dict[str, Callable[[], object]] = {"batching": lambda: training.store.batch(graphs)}
    for number, name in enumerate(POOL):
        tasks[f"augmentation: {name}"] = lambda k=number: view_by_one(batch, k, training.pool, generator)  # type: ignore[misc]
    tasks["forward, two views and loss"] = forward
    tasks["forward, backward and step"] = forward_and_backward
    tasks["lower level, all pair losses of a batch"] = lambda: pair_losses(
        training.model, batch, training.pool, training.method.objective, generator
    )
    return interleaved(tasks, 5 * REPEATS)


def fresh(view: View) -> View:
    """The same view without what it has cached, as the first pass finds it."""
    b = view.batch
    return View(type(b)(b.x, b.source, b.target, b.graph_of_node, b.num_graphs, b.edge_attr), view.augmentation)


def report(
    dataset: Dataset,
    epochs: dict[str, list[float]],
    step_parts: dict[str, list[float]],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    print(f"{dataset.name}: {len(dataset)} graphs, batch 128, GIN 3x32, {torch.get_num_threads()} thread(s)\n")
    for name, seconds in epochs.items():
        rate = len(dataset) / statistics.median(seconds)
        print(f"{name:<10} epoch {spread(seconds)} s   {rate:,.0f} graphs/s")
    ratios = {name: ratio(epochs["joao"], epochs[name]) for name in ("graphcl", "uniform")}
    for name, value in ratios.items():
        print(f"a JOAO epoch is {value:.2f} of a {name} epoch (median of paired ratios)")
    print("\nparts of a step, ms")
    for name, seconds in step_parts.items():
        print(f"{name:<42} {spread([1000 * each for each in seconds])}")
    return {
        "data": dataset.name,
        "graphs": len(dataset),
        "epoch seconds": epochs,
        "graphs per second": {name: len(dataset) / statistics.median(each) for name, each in epochs.items()},
        "joao epoch over": ratios,
        "part seconds": step_parts,
        "command": command(),
        "versions": versions(),
        "machine": machine("cpu"),
        "arguments": {"pool": arguments.pool, "features": arguments.features, "threads": arguments.threads},
    }


def ratio(first: list[float], second: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(first, second, strict=True))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
