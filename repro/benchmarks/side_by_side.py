"""All trainings on one workload, side by side: floors, epochs, rivals, and the parts of a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from joao.config.builder import build_method
from joao.core.errors import UserError
from joao.core.provenance import peak_memory
from joao.core.randomness import torch_generator
from joao.training.steps import View
from repro.benchmarks.floor import Floor, ViewsOf, scattered
from repro.benchmarks.plan import Plan
from repro.benchmarks.rivals import MAKERS, rivals_of
from repro.benchmarks.steps import epoch_task, make_training, part_tasks, recipe_of
from repro.benchmarks.timing import Spread, Task, always, paired_ratio, time_in_turns
from repro.benchmarks.workloads import Workload

MOST_VIEWS = 30  # pairs of views that a floor runs over
# Of a rival's epoch. Where the sizes of graphs differ much (REDDIT-BINARY, COLLAB) these are all there are, so that
# everybody sees the same graphs; of others a part does.
RIVAL_BATCHES = 10
# Epochs: the fast path records the work on every augmentation and size of batch when it comes up again.
FAST_WARM_UPS = 20
METHODS = {"graphcl": "GraphCL", "joao": "JOAO"}
ABOUT = {
    "step": "seconds of a whole epoch over its number of batches; JOAO's with the lower level, once per epoch",
    "floor": "zero_grad, two views encoded, loss, backward, optimiser's step; views made before, by the same pairs; "
    "operation by operation on a GPU, too: no floor of the fast path",
    "floor, scatter": "the same views and weights, neighbours summed by index_add and plain autograd",
    "GraphCL": "each view by node_drop or subgraph, a pair for every batch",
    "rivals": f"at most {RIVAL_BATCHES} of the batches",
    "ratios": "median, least and most of the ratios inside each turn",
    "peak bytes": "making the row anew and running it once, above what was there before",
}


@dataclass(frozen=True)
class Row:
    """A training: the timed function, its number of steps, and a function that prepares a run."""

    task: Task
    steps: int
    anew: Callable[[], object]


def measure_workload(workload: Workload, plan: Plan, device: torch.device) -> dict[str, Any]:
    """Measure floors, epochs and rivals in turns, then the parts of a step in turns."""
    rows, views = _own_rows(workload, plan, device)
    fast, no_fast = _fast_rows(workload, plan, device)
    rivals: dict[str, Row] = {}
    absent: dict[str, str] = {}
    if workload.is_mixed:
        absent = dict.fromkeys(("floors", "rivals", "parts"), f"has no precision {workload.precision}")
    elif plan.rivals:
        rivals, absent = _rival_rows(workload.part(RIVAL_BATCHES), plan, device)
    rows |= fast | rivals
    for row in rows.values():
        row.anew()  # what a library takes once and for all belongs to no row
    memory = {name: peak_memory(row.anew, device) for name, row in rows.items()}
    seconds = time_in_turns({name: row.task for name, row in rows.items()}, plan.repeats, device)
    per_step = {name: seconds[name].over(row.steps) for name, row in rows.items()}
    work = {
        METHODS[method]: work_of_step(each.views, workload.store.num_features, workload.width, workload.layers)
        for method, each in views.items()
    }
    return {
        **workload.table(),
        "rows": {
            name: {
                "seconds": asdict(seconds[name]),
                "steps": rows[name].steps,
                "ms per step": _ms(each.wall),
                "CPU ms per step": _ms(each.cpu),
                "graphs per second": min(workload.batch_size, len(workload.store)) / Spread.of(each.wall).median,
                "graphs per CPU second": min(workload.batch_size, len(workload.store)) / Spread.of(each.cpu).median,
                "peak bytes": memory[name],
                **_achieved(work, name, Spread.of(each.wall).median),
            }
            for name, each in per_step.items()
        },
        "not measured": {**no_fast, **absent},
        "ratios": _tables(ratios({name: each.wall for name, each in per_step.items()})),
        "ratios of CPU time": _tables(ratios({name: each.cpu for name, each in per_step.items()})),
        "work of a step": {name: asdict(each) for name, each in work.items()},
        "parts": {} if workload.is_mixed else _parts(workload, plan, device),
    }


def _own_rows(workload: Workload, plan: Plan, device: torch.device) -> tuple[dict[str, Row], dict[str, ViewsOf]]:
    rows: dict[str, Row] = {}
    views: dict[str, ViewsOf] = {}
    batches = workload.num_batches
    for method, name in METHODS.items():
        training = make_training(workload, method, device, plan.seed)
        generator = torch_generator(plan.seed, f"views of the benchmark, {method}", device)
        views[method] = ViewsOf(training, min(batches, MOST_VIEWS), generator)
        views[method].remake()
        rows[f"{name} step"] = Row(epoch_task(training, views[method]), batches, _epoch(workload, method, device, plan))
        if workload.is_mixed:
            continue
        rows[f"{name} floor"] = _floor_row(workload, method, views[method], plan, device, scatter=False)
        if method == "graphcl":
            rows[f"{name} floor, scatter"] = _floor_row(workload, method, views[method], plan, device, scatter=True)
    return rows, views


def _fast_rows(workload: Workload, plan: Plan, device: torch.device) -> tuple[dict[str, Row], dict[str, str]]:
    """Return the compiled core of a CPU or the padded batches of a GPU, or why they cannot be measured."""
    rows: dict[str, Row] = {}
    missing: dict[str, str] = {}
    for method, name in METHODS.items():
        try:
            training = make_training(workload, method, device, plan.seed, fast=True)
        except UserError as error:
            missing[f"{name} step, fast"] = str(error)
            continue
        task = epoch_task(training)
        for _ in range(FAST_WARM_UPS if device.type == "cuda" else 1):
            task()()
        anew = _epoch(workload, method, device, plan, fast=True)
        rows[f"{name} step, fast"] = Row(task, workload.num_batches, anew)
    return rows, missing


def _rival_rows(workload: Workload, plan: Plan, device: torch.device) -> tuple[dict[str, Row], dict[str, str]]:
    makers, missing = rivals_of(workload, device, plan.seed)
    rows = {
        name: Row(always(make()), workload.num_batches, lambda make=make: make()())  # type: ignore[misc]
        for name, make in makers.items()
    }
    return rows, missing


def _epoch(
    workload: Workload, method: str, device: torch.device, plan: Plan, fast: bool = False
) -> Callable[[], object]:
    return lambda: epoch_task(make_training(workload, method, device, plan.seed, fast=fast))()()


def _floor_row(
    workload: Workload, method: str, views: ViewsOf, plan: Plan, device: torch.device, *, scatter: bool
) -> Row:
    """The floor on new views in every turn; with scatter aggregation, on the views of the floor before it."""
    recipe = recipe_of(workload, method, plan.seed)

    def make() -> Floor:
        made = build_method(recipe, workload.store)
        return Floor(scattered(made) if scatter else made, recipe.training.learning_rate, device)

    task = make().task((lambda: views.views) if scatter else views.remake)
    return Row(task, views.count, lambda: make().task(lambda: views.views)()())


def _parts(workload: Workload, plan: Plan, device: torch.device) -> dict[str, Any]:
    """Measure the parts of a JOAO step, with views by its initial pairs."""
    training = make_training(workload, "joao", device, plan.seed)
    method = build_method(recipe_of(workload, "joao", plan.seed), workload.store)
    views = ViewsOf(training, 1, torch_generator(plan.seed, "views of the parts", device))
    floor = Floor(method, training.schedule.learning_rate, device)
    seconds = time_in_turns(part_tasks(training, floor, views), 2 * plan.repeats, device)
    return {
        name: {
            "seconds": asdict(each),
            "ms": _ms(each.wall),
            "CPU ms": _ms(each.cpu),
        }
        for name, each in seconds.items()
    }


def _ms(seconds: Sequence[float]) -> dict[str, float]:
    return asdict(Spread.of(seconds).times(1000))


def _tables(spreads: Mapping[str, Spread]) -> dict[str, Any]:
    return {name: asdict(value) for name, value in spreads.items()}


@dataclass(frozen=True)
class Work:
    """Mean floating-point operations and bytes of a step."""

    flop: float
    bytes: float


def work_of_step(views: Sequence[tuple[View, View]], num_features: int, width: int, layers: int) -> Work:
    r"""Count the work of forward pass, backward pass and optimiser on a pair of views, averaged over ``views``.

    Operations. A view with N nodes, E directed edges and B graphs passes layers :math:`d \to w \to w`, with
    :math:`d` the columns of ``x`` in the first and :math:`w` after it. A linear map of n rows from a to b columns is
    :math:`2nab` forward and twice that backward, for the gradients of its weights and of its input (which the first
    map of all has no need of); a sum over neighbours is :math:`Ed` forward and, but for the first, backward. The head
    is two maps of B rows, :math:`D \to D` with :math:`D = w \cdot` layers, and the loss a product
    :math:`B \times D \times B`, all three times. What is done element by element is not counted.

    Bytes. Everything is float32 and every operation reads its input and writes its output once; what is gathered
    twice is in cache; what follows element by element is fused. Forward, a layer moves
    :math:`8E + 4N(3d + 7w)`: the sum over neighbours (d read, d written), two linear maps (d, w; w, w),
    normalisation (w twice read, once written) and the sum over nodes (w). Backward moves twice as much. Adam reads
    weight, gradient and two moments, and writes the gradient, the weight and the moments: :math:`32` bytes a weight.
    """
    dimensions = width * layers
    flop = traffic = 0.0
    for pair in views:
        for view in pair:
            nodes, edges, graphs = view.batch.num_nodes, view.batch.num_edges, view.batch.num_graphs
            for layer in range(layers):
                columns = width if layer else num_features
                directions = 3 if layer else 2  # forward, and the gradients that are needed
                flop += directions * 2 * nodes * columns * width + 3 * 2 * nodes * width * width
                flop += (directions - 1) * edges * columns
                traffic += 3 * (8 * edges + 4 * nodes * (3 * columns + 7 * width))
            flop += 3 * 2 * 2 * graphs * dimensions**2
        flop += 3 * 2 * pair[0].batch.num_graphs ** 2 * dimensions
    weights = num_weights(num_features, width, layers)
    return Work(flop / len(views), traffic / len(views) + 32 * weights)


def num_weights(num_features: int, width: int, layers: int) -> int:
    """Count the work of GIN with its normalisation, and of the shared head."""
    dimensions = width * layers
    encoder = num_features * width + (2 * layers - 1) * width**2 + 4 * layers * width
    return encoder + 2 * (dimensions**2 + dimensions)


def _achieved(work: Mapping[str, Work], row: str, seconds: float) -> dict[str, float]:
    """Divide the counted work of two views by the time, for our rows; the lower level is not counted."""
    done = next((each for name, each in work.items() if row.startswith(f"{name} ")), None)
    return {} if done is None else {"GFLOP/s": done.flop / seconds / 1e9, "GB/s": done.bytes / seconds / 1e9}


def ratios(per_step: Mapping[str, list[float]]) -> dict[str, Spread]:
    """Compare measured rows: medians of the ratios inside each turn."""
    wanted = [
        ("GraphCL step", "GraphCL floor"),
        ("JOAO step", "JOAO floor"),
        ("JOAO step", "GraphCL step"),
        ("GraphCL floor, scatter", "GraphCL floor"),
        ("GraphCL step", "GraphCL step, fast"),
        ("JOAO step", "JOAO step, fast"),
        ("JOAO step, fast", "GraphCL step, fast"),
        *((rival, f"{name} step{path}") for path in ("", ", fast") for name in METHODS.values() for rival in MAKERS),
    ]
    return {
        f"{first} / {second}": paired_ratio(per_step[first], per_step[second])
        for first, second in wanted
        if first in per_step and second in per_step
    }
