"""The full training step, measured over whole epochs, and its parts, measured one by one."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from joao.config.builder import build_method
from joao.config.recipe import Recipe, make_recipe
from joao.training.device import make_fabric
from joao.training.pretrain import Pretraining
from joao.training.steps import BatchViews, View, pair_losses, project
from repro.benchmarks.floor import Floor, ViewsOf
from repro.benchmarks.timing import Task, always
from repro.benchmarks.workloads import Workload

MOST_EPOCHS = 1000  # more than are ever measured

METHODS: dict[str, dict[str, Any]] = {
    # NodeDrop and Subgraph for all data, so that what a user would write instead does the same work.
    "graphcl": {"method": "graphcl", "policy": {"name": "rule_pool", "pool": "molecules"}},
    "joao": {"method": "joao"},
}


def make_training(
    workload: Workload, method: str, device: torch.device, seed: int, *, fast: bool = False
) -> Pretraining:
    """A pre-training, on the plain or on the fast path."""
    recipe = recipe_of(workload, method, seed)
    fabric = make_fabric(device.type, workload.precision)
    before = os.environ["JOAO_NATIVE"]  # set by this package
    os.environ["JOAO_NATIVE"] = "avx512" if fast else "off"
    try:
        compiled = fast and device.type == "cpu"
        made = build_method(recipe, workload.store)
        return Pretraining(workload.store, made, recipe.training, fabric, fast=fast, compiled=compiled)
    finally:
        os.environ["JOAO_NATIVE"] = before


def recipe_of(workload: Workload, method: str, seed: int) -> Recipe:
    """Build GraphCL or JOAO with the workload's encoder and batches."""
    encoder = {"name": "gin", "width": workload.width, "layers": workload.layers}
    training = {"epochs": MOST_EPOCHS, "batch_size": workload.batch_size, "seed": seed}
    return make_recipe({**METHODS[method], "encoder": encoder, "training": training})


def epoch_task(training: Pretraining, views: ViewsOf | None = None) -> Task:
    """Train the next epoch; the drawn pairs are passed to ``views``."""
    epochs = training.run()

    def epoch() -> object:
        metrics = next(epochs)
        if views is not None:
            views.drawn = metrics.drawn
        return metrics

    return always(epoch)


def part_tasks(training: Pretraining, floor: Floor, views: ViewsOf) -> dict[str, Task]:
    """The parts of a step on one batch: gathering, every augmentation, three parts of the floor, the lower level."""
    generator = views.generator
    graphs = torch.randperm(len(training.store), device=training.store.device, generator=generator)
    graphs = graphs[: training.schedule.batch_size]
    batch_views = BatchViews(training.store, graphs)
    first, second = views.remake()[0]

    def forward() -> Tensor:
        return floor.objective(project(floor.model, first), project(floor.model, second))

    def backward() -> Callable[[], object]:
        loss = forward()
        floor.optimiser.zero_grad()
        return lambda: loss.backward()  # type: ignore[no-untyped-call]

    def optimise() -> Callable[[], object]:
        backward()()
        return floor.optimiser.step

    tasks: dict[str, Task] = {"gather a batch": always(lambda: training.store.batch(graphs))}
    for number, name in enumerate(training.method.augmentations):
        tasks[name] = _augmenting(training, graphs, number, generator)
    tasks["forward, two views and loss"] = always(forward)
    tasks["backward"] = backward
    tasks["optimiser's step"] = optimise
    tasks["lower level, all pairs of a batch"] = always(
        lambda: pair_losses(training.model, batch_views, training.pool, floor.objective, generator)
    )
    return tasks


def _augmenting(training: Pretraining, graphs: Tensor, number: int, generator: torch.Generator) -> Task:
    def prepare() -> Callable[[], View]:
        batch = training.store.batch(graphs)  # without caches, as a step finds it
        return lambda: View(training.pool[number](batch, generator), number)

    return prepare
