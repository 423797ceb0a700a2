"""Which parts of JOAO affect the accuracy? One change at a time on the same seeds and folds.

    OMP_NUM_THREADS=1 python -m repro.studies.factors --data MUTAG,PROTEINS --jobs 2

Every level differs in one respect from a row of the unsupervised table, with whose records it is paired. Three levels
use parts of the authors' code that the package does not have (docs/deviations.md 3, 7, 9). Cells that have a
record are skipped.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.augmentations.base import floor_share
from joao.config.builder import Method, build_method
from joao.config.recipe import Recipe, make_recipe
from joao.core.graphs import GraphBatch
from joao.core.randomness import order_within_groups, random_integers, torch_generator
from joao.data.dataset import Dataset
from joao.data.features import Features, make_store
from joao.evaluation.statistics import Gain
from joao.evaluation.tables import markdown, with_deviation, with_interval
from joao.heads import Heads
from joao.policies import Policy
from joao.policies.base import check_losses
from joao.policies.min_max import ascend
from joao.runs.scoring import describe_data, provenance
from joao.training.device import limit_threads, make_fabric
from joao.training.distributed.launch import find_process_layout
from joao.training.model import embed
from joao.training.pretrain import Pretraining
from repro.protocols.cells import dataset_of
from repro.protocols.unsupervised.run import Cell, cell_recipe, grid, record_file
from repro.protocols.unsupervised.table import gain_between, rows
from repro.record_files import RECORDS, Record
from repro.studies.common import generated, make_page, parse_options, score_rows, write_page
from repro.tasks import run_tasks

DATA = ("NCI1", "PROTEINS", "REDDIT-BINARY", "IMDB-BINARY")
BASES = {"joao": "JOAO", "joaov2": "JOAOv2"}


@final
@dataclass(frozen=True)
class OwnNeighbourhood(Augmentation):
    r"""Subgraph as published for the unsupervised setting: the start and some of its own neighbours (deviation 9).

    From a uniformly drawn start, a neighbour *of the start* is drawn :math:`n` times, with replacement; drawing ends
    when :math:`\lfloor (1 - s) n \rfloor + 1` nodes are taken.
    """

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        if self.strength == 0:
            return batch

        of = batch.graph_of_node
        start = batch.first_node[:-1] + random_integers(batch.nodes_per_graph, generator)
        first_edge = batch.first_edge[start]
        degree = (batch.first_edge[start + 1] - first_edge)[of]
        edge = first_edge[of] + random_integers(
            degree, generator
        )  # one draw for each node of the graph, in the nodes' order
        draw = torch.arange(batch.num_nodes, device=batch.device)
        when = torch.full((batch.num_nodes,), torch.inf, dtype=torch.float64, device=batch.device)
        when.scatter_reduce_(0, batch.source[edge[degree > 0]], draw[degree > 0].double(), "amin")
        when[start] = -1
        place = draw - batch.first_node[of]
        most = floor_share(batch.nodes_per_graph, 1 - self.strength) + 1
        taken = torch.zeros(batch.num_nodes, dtype=torch.bool, device=batch.device)
        taken[order_within_groups(when, of)[place < most[of]]] = True
        return batch.keep_nodes(taken & when.isfinite())


@final
class HeadPerEpoch(Heads):
    """JOAOv2's heads as published: a pair of them, drawn by the policy, for all views of an epoch (deviation 7).

    Which augmentation made a view does not matter, except where the losses of pairs are measured. That is done without
    gradients and once, at the end of an epoch, and is how its end is known here. Views are projected in turn.
    """

    def __init__(self, heads: Heads, policy: Policy, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.policy, self.generator = heads, policy, generator
        self.drawn: cycle[int] | None = None

    def forward(self, embeddings: Tensor, augmentation: int | Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            self.drawn = None
        else:
            self.drawn = self.drawn or cycle(self.policy.sample(1, self.generator)[0].tolist())
            augmentation = next(self.drawn)
        projected: Tensor = self.heads(embeddings, augmentation)
        return projected


@final
class OneSided(Policy):
    """The first view is the graph itself; min-max over the augmentations of the second alone (deviation 3)."""

    learns = True

    def __init__(self, augmentations: Sequence[str], gamma: float, step: float) -> None:
        super().__init__(augmentations)
        self.gamma, self.step = gamma, step
        (self.first,) = self.indices(["identity"])
        size = len(self.augmentations)
        self.prior = torch.full((size,), 1 / size, dtype=torch.float64)
        self.probabilities = self._table(self.prior)

    def update(self, pair_losses: Tensor) -> None:
        losses = check_losses(pair_losses, len(self.augmentations))[self.first]
        law = self.probabilities[self.first]
        self.probabilities = self._table(ascend(law, losses, prior=self.prior, gamma=self.gamma, step=self.step))

    def _table(self, law: Tensor) -> Tensor:
        table = torch.zeros(law.numel(), law.numel(), dtype=torch.float64)
        table[self.first] = law
        return table


PutIn = Callable[[Method, Recipe], Method]


def nothing(method: Method, recipe: Recipe) -> Method:
    return method


def published_subgraph(method: Method, recipe: Recipe) -> Method:
    given = method.augmentations["subgraph"]
    return replace(method, augmentations={**method.augmentations, "subgraph": OwnNeighbourhood(given.strength)})


def published_heads(method: Method, recipe: Recipe) -> Method:
    generator = torch_generator(recipe.training.seed, "heads")
    return replace(method, heads=HeadPerEpoch(method.heads, method.policy, generator))


def one_sided(method: Method, recipe: Recipe) -> Method:
    options = recipe.policy.options
    policy = OneSided(list(method.augmentations), gamma=options["gamma"], step=options["step"])
    return replace(method, policy=policy)


@dataclass(frozen=True)
class Level:
    """A factor at another level than that of its base.

    Attributes:
        words: what is changed, and in brackets the value of the base.
        base: a row of the table.
        changes: changes of the base's recipe; None for another row of the table, which has records.
        put_in: replaces parts of the method that a recipe cannot name.
        standardise: see :func:`joao.evaluation.embeddings.evaluate_embeddings`.
        later: offset of the seed of pre-training. The partition stays the same.
    """

    words: str
    base: str = "joao"
    changes: Mapping[str, Any] | None = field(default_factory=dict)
    put_in: PutIn = nothing
    standardise: bool = True
    later: int = 0


LEVELS = {
    "another_seed": Level("nothing but the seed of the pre-training", later=len(grid()["seeds"])),
    "untrained": Level("no pre-training, the encoder calibrated (20 epochs)", changes=None),
    "uniform": Level("all pairs equally often (a learned table)", changes=None),
    "gamma_0.01": Level("gamma 0.01 (0.1)", changes={"policy": {"gamma": 0.01}}),
    "gamma_1": Level("gamma 1 (0.1)", changes={"policy": {"gamma": 1.0}}),
    "no_prior": Level("no prior, gamma 0 (0.1)", changes={"policy": {"gamma": 0.0}}),
    "maximiser": Level("exact maximiser (one projected step)", changes={"policy": {"name": "maximiser", "gamma": 0.1}}),
    "pair_per_graph": Level("a pair for each graph (for each batch)", changes={"training": {"pair_per": "graph"}}),
    "one_sided": Level("first view always the graph itself (both views augmented)", put_in=one_sided),
    "own_neighbourhood": Level("Subgraph as published (grown by its frontier)", put_in=published_subgraph),
    "head_per_epoch": Level(
        "JOAOv2: heads drawn once an epoch, as published (each view its own)", "joaov2", put_in=published_heads
    ),
    "epochs_5": Level("5 epochs (20)", changes={"training": {"epochs": 5}}),
    "epochs_40": Level("40 epochs (20)", changes={"training": {"epochs": 40}}),
    "epochs_100": Level("100 epochs (20)", changes={"training": {"epochs": 100}}),
    "unscaled": Level("SVM on unscaled embeddings (scaled)", standardise=False),
    "degree": Level("features: degree (label, or constant without labels)", changes={"features": "degree"}),
    "with_degree": Level("features: label or constant, with degree (without)", changes={"features": "with_degree"}),
}
COMPUTED = [name for name, level in LEVELS.items() if level.changes is not None]


def level_recipe(cell: Cell) -> Recipe:
    """Return the recipe of the base with the changes of a level."""
    level = LEVELS[cell.method]
    base = cell_recipe(Cell(cell.dataset, level.base, cell.seed))
    assert base is not None
    assert level.changes is not None
    table = base.table()
    for key, change in level.changes.items():
        if isinstance(change, Mapping) and change.get("name", table[key].get("name")) == table[key].get("name"):
            change = {**table[key], **change}
        table[key] = change
    table["training"] = {**table["training"], "seed": cell.seed + level.later}
    return make_recipe(table, source=f"{cell.method} on {cell.dataset}")


@limit_threads()
def embeddings(recipe: Recipe, dataset: Dataset, device: str, put_in: PutIn = nothing) -> Tensor:
    """``(G, d)`` embeddings after pre-training with parts put in; without any, those of :func:`joao.runs.pretraining.pretrain`."""
    dataset = replace(dataset, node_attributes=None)  # the table's features are labels alone (deviation 17)
    store = make_store(dataset, Features.from_dataset(dataset, recipe.features, recipe.max_degree))
    method = put_in(build_method(recipe, store), recipe)
    # The fast path records a step for each pair of heads that augmentations pick.
    fast = False if isinstance(method.heads, HeadPerEpoch) else None
    training = Pretraining(store, method, recipe.training, make_fabric(device, "32-true", find_process_layout()), fast)
    for _ in training.run():
        pass
    return embed(method.encoder, training.store)


def compute(cell: Cell, folder: Path, device: str) -> None:
    """Compute a level and write its record."""
    started = time.perf_counter()
    level, recipe, dataset = LEVELS[cell.method], level_recipe(cell), dataset_of(cell.dataset, None)
    rows_of = embeddings(recipe, dataset, device, level.put_in).numpy()
    trained = time.perf_counter()
    scores = score_rows(rows_of, dataset, cell.seed, device, standardise=level.standardise)
    facts = {**identity(cell), "data": describe_data(dataset), "scores": scores.to_json()}
    seconds = {"seconds of pre-training": trained - started, "seconds": time.perf_counter() - started}
    record_file(folder, "factors").write({**facts, **seconds, **provenance(device)})


def identity(cell: Cell) -> dict[str, Any]:
    """Return the settings that identify a record."""
    put_in = LEVELS[cell.method].put_in.__name__
    return {"cell": dataclasses.asdict(cell), "put in": put_in, "recipe": level_recipe(cell).table()}


def is_done(cell: Cell, folder: Path) -> bool:
    """Return whether a level has a record. A record of another recipe is an error."""
    return record_file(folder, "factors").is_current(cell.key, identity(cell), f"{cell.method} on {cell.dataset}")


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: one line per level, one column per data set, and one sentence per level."""
    table = {(row.dataset, row.method): row for row in rows(records) if row.num_seeds == len(grid()["seeds"])}
    datasets = [name for name in grid()["datasets"] if any((name, level) in table for level in COMPUTED)]
    gains = {name: gains_of(name, records, [each for each in datasets if (each, name) in table]) for name in LEVELS}
    lines = []
    for base, words in BASES.items():
        lines.append([words, *(with_deviation(table[name, base].mean, table[name, base].std) for name in datasets), ""])
    for name, level in LEVELS.items():
        cells = [
            f"{table[each, name].mean:.2f}; {with_interval(gains[name][each])}" if each in gains[name] else ""
            for each in datasets
        ]
        differences = [gain.mean for gain in gains[name].values()]
        mean = f"{np.mean(differences):+.2f}" if len(differences) == len(datasets) else ""
        lines.append([level.words, *cells, mean])
    intervals = [gain for of_level in gains.values() for gain in of_level.values()]
    apart = sum(gain.low > 0 or gain.high < 0 for gain in intervals)
    return make_page(
        "Which parts of JOAO affect the accuracy",
        f"{generated('factors', intervals=True)} Accuracy in percent of an SVM on frozen embeddings, {len(grid()['seeds'])} seeds. Each line changes "
        "one thing; the value of the base is in brackets. After the accuracy: the difference from the base on the same "
        "seeds and folds, with its 95 % interval. The last column is the mean of the differences. The base is "
        "JOAO, unless the line says JOAOv2. One line changes only the seed and shows the size of differences without "
        f"a cause. {describe_devices(records, datasets)}",
        markdown(["changed (base)", *datasets, "mean difference"], lines),
        f"Of {len(intervals)} intervals, {apart} exclude zero. About {len(intervals) / 20:.0f} would be expected to do so if nothing in the "
        "table mattered, because each 95 % interval misses the true difference once in twenty times. A single one is therefore not evidence.",
        "\n".join(f"- {level.words}: {verdict(gains[name])}" for name, level in LEVELS.items() if gains[name]),
    )


def gains_of(name: str, records: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> dict[str, Gain]:
    """Return the paired differences of a level from its base, by data set."""
    gains = {each: gain_between(records, each, name, LEVELS[name].base) for each in datasets}
    return {each: gain for each, gain in gains.items() if gain is not None}


def verdict(gains: Mapping[str, Gain]) -> str:
    """Say where an interval excludes zero."""
    higher = [name for name, gain in gains.items() if gain.low > 0]
    lower = [name for name, gain in gains.items() if gain.high < 0]
    said = [f"raises the accuracy on {', '.join(higher)}"] if higher else []
    said += [f"lowers {'it' if higher else 'the accuracy'} on {', '.join(lower)}"] if lower else []
    if len(higher) + len(lower) < len(gains):
        said.append(f"{'elsewhere ' if said else ''}the difference is inconclusive")
    return "; ".join(said) + "."


def describe_devices(records: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> str:
    """Say on which devices the records were computed. GPUs draw other random numbers than CPUs."""
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for record in records:
        if record["cell"]["dataset"] in datasets:
            kinds[record["cell"]["method"] in COMPUTED].add(record["machine"]["device"])
    new, known = (" and ".join(sorted(kinds[each])) for each in (True, False))
    return f"Device of the bases and of the rows without pre-training or learning: {known}; of all others: {new}."


def main() -> None:
    given = parse_options(__doc__, data=",".join(DATA), jobs=1, device="cpu")
    wanted = [
        Cell(name, level, seed) for name in given.data.split(",") for level in COMPUTED for seed in grid()["seeds"]
    ]
    missing = [cell for cell in wanted if not is_done(cell, RECORDS)]
    missing.sort(key=lambda cell: -level_recipe(cell).training.epochs)  # the longest first
    for cell in run_tasks(partial(compute, folder=RECORDS, device=given.device), missing, given.jobs):
        print(cell.dataset, cell.method, cell.seed, flush=True)
    write_page("factors", page(read_all()))


def read_all() -> list[Record]:
    """Return the records of the levels and of the rows that they are compared with."""
    known = {*BASES, *(name for name in LEVELS if name not in COMPUTED)}
    table = [each for each in record_file(RECORDS).read() if each["cell"]["method"] in known]
    return [each for each in table if not Cell(**each["cell"]).variant] + record_file(RECORDS, "factors").read()


if __name__ == "__main__":
    main()
