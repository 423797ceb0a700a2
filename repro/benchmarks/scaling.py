"""Time and memory against the number of graphs, their size, their density, and the size of the batch."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from joao.config.builder import build_method
from joao.core.provenance import peak_memory
from joao.core.randomness import torch_generator
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.objectives import NtXent
from repro.benchmarks.floor import Floor, ViewsOf
from repro.benchmarks.steps import epoch_task, make_training, part_tasks, recipe_of
from repro.benchmarks.timing import Task, always, time_in_turns
from repro.benchmarks.workloads import Workload

WIDTH, LAYERS = 32, 3


@dataclass(frozen=True)
class Axis:
    """The quantity that grows, and those that stay fixed.

    Attributes:
        sizes: graphs, mean nodes, mean degree and batch size of every point.
        counts: which of ``graphs``, ``nodes and edges`` and ``batch`` growth is reported against.
        measures: ``epochs`` of GraphCL and JOAO, the ``parts`` of a step, or the ``loss``.
    """

    sizes: tuple[tuple[int, float, float, int], ...]
    counts: str
    measures: tuple[str, ...]


def axes(quick: bool) -> dict[str, Axis]:
    """List the four axes."""
    found = {
        "number of graphs": Axis(
            tuple((256 * times, 30.0, 2.2, 128) for times in (1, 2, 4, 8, 16, 32, 64)), "graphs", ("epochs",)
        ),
        "nodes per graph": Axis(
            tuple((16, float(nodes), 4.0, 8) for nodes in (10, 32, 100, 316, 1000, 3162, 10_000)),
            "nodes and edges",
            ("epochs", "parts"),
        ),
        "edges per node": Axis(
            tuple((64, 256.0, float(degree), 32) for degree in (2, 4, 8, 16, 32, 64)),
            "nodes and edges",
            ("epochs", "parts"),
        ),
        "batch size": Axis(
            tuple((2 * size, 30.0, 2.2, size) for size in (32, 64, 128, 256, 512, 1024, 2048)),
            "batch",
            ("epochs", "loss"),
        ),
    }
    if not quick:
        return found
    # The three smallest sizes, with a quarter of the graphs.
    return {
        name: replace(axis, sizes=tuple((size[0] // 4, *size[1:3], size[3] // 4) for size in axis.sizes[:3]))
        for name, axis in found.items()
    }


def measure_axis(axis: Axis, device: torch.device, repeats: int, seed: int) -> dict[str, Any]:
    """Measure times, peak memory and fitted exponents of one axis; its sizes are measured in turns."""
    points = [_point(size, device, seed) for size in axis.sizes]
    sizes = [_count(point, axis.counts) for point in points]
    tasks = {
        (name, number): task
        for number, point in enumerate(points)
        for name, task in _tasks(point, axis.measures, device, seed).items()
    }
    seconds = time_in_turns(tasks, repeats, device)
    times = {name: [seconds[name, number] for number in range(len(points))] for name, _ in tasks}
    memory = [_memory(point, device, seed) for point in points]
    # On a CPU the time of the process: the sizes are far apart in time, and others may work beside us meanwhile.
    clock = "wall" if device.type == "cuda" or torch.get_num_threads() > 1 else "cpu"
    medians = {name: [statistics.median(getattr(each, clock)) for each in series] for name, series in times.items()}
    fits = {name: asdict(fit_power_law(sizes, values)) for name, values in medians.items()}
    if all(memory):
        fits["peak memory"] = asdict(fit_power_law(sizes, [value or 0 for value in memory]))
    return {
        "against": axis.counts,
        "sizes": sizes,
        "points": [dict(zip(("graphs", "nodes", "degree", "batch size"), size, strict=True)) for size in axis.sizes],
        "seconds": {name: [asdict(each) for each in series] for name, series in times.items()},
        "clock": clock,
        "medians": medians,
        "peak bytes, graphs included": memory,
        "fits": fits,
    }


@dataclass(frozen=True)
class Fit:
    """An exponent, and the sizes it was fitted on."""

    exponent: float
    smallest: float
    largest: float


def fit_power_law(sizes: Sequence[float], values: Sequence[float]) -> Fit:
    r"""The least-squares slope of :math:`\log v` on :math:`\log s` over the larger half of the sizes, three at least.

    In the smaller half what every call costs, whatever its size, would hide the growth. Which sizes are left out
    does not depend on the values.

    >>> fit = fit_power_law([1, 10, 100, 1000], [0.5, 10, 100, 1000])
    >>> round(fit.exponent, 6), fit.smallest, fit.largest
    (1.0, 10, 1000)
    """
    kept = max(3, -(-len(sizes) // 2))
    x, y = np.log(sizes[-kept:]), np.log(np.maximum(values[-kept:], 1e-12))
    centred = x - x.mean()
    return Fit(float(centred @ y / (centred @ centred)), sizes[-kept:][0], sizes[-1])


def _point(size: tuple[int, float, float, int], device: torch.device, seed: int) -> Workload:
    graphs, nodes, degree, batch_size = size
    dataset = random_graphs(graphs, nodes, degree, seed, num_node_labels=8, num_classes=0)
    store = make_store(dataset, Features.from_dataset(dataset, "labels")).to(device)
    return Workload("made", store, "made: random graphs", WIDTH, LAYERS, batch_size)


def _count(point: Workload, counts: str) -> float:
    if counts == "nodes and edges":
        return float(point.store.x.shape[0] + point.store.source.numel())
    return float(point.batch_size if counts == "batch" else len(point.store))


def _tasks(point: Workload, measures: tuple[str, ...], device: torch.device, seed: int) -> Mapping[str, Task]:
    training = make_training(point, "graphcl", device, seed)
    views = ViewsOf(training, 1, torch_generator(seed, "views of the benchmark", device))
    tasks: dict[str, Task] = {}
    if "epochs" in measures:
        tasks["GraphCL, an epoch"] = epoch_task(training)
        tasks["JOAO, an epoch"] = epoch_task(make_training(point, "joao", device, seed))
    if "parts" in measures:
        method = build_method(recipe_of(point, "graphcl", seed), point.store)
        floor = Floor(method, training.schedule.learning_rate, device)
        tasks |= part_tasks(training, floor, views)
        tasks.pop("optimiser's step")  # depends on the model alone
        tasks.pop("identity")  # does nothing
    if "loss" in measures:
        tasks["contrastive loss, forward and backward"] = always(_loss(point.batch_size, device, seed))
    return tasks


def _loss(batch_size: int, device: torch.device, seed: int) -> Callable[[], object]:
    generator = torch_generator(seed, "projections", device)
    first, second = (
        torch.randn(batch_size, WIDTH * LAYERS, device=device, generator=generator).requires_grad_() for _ in range(2)
    )
    return lambda: torch.autograd.grad(NtXent()(first, second), (first, second))


def _memory(point: Workload, device: torch.device, seed: int) -> int | None:
    """Measure the peak memory of an epoch, and the size of the graphs."""
    peak = peak_memory(lambda: epoch_task(make_training(point, "graphcl", device, seed))()(), device)
    store = point.store
    tensors = (store.x, store.source, store.target, store.first_node, store.first_edge)
    return None if peak is None else peak + sum(tensor.nbytes for tensor in tensors)
