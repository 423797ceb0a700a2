"""What moves the figures? JOAO with one thing changed at a time, on the same seeds and folds.

    OMP_NUM_THREADS=1 python studies/factors.py results/factors results/factors.md --data MUTAG,PROTEINS --jobs 2

Every level differs by one thing from a row of `joao reproduce unsupervised`, whose records it is paired with. Three
levels are not in the package, as the paper does not have them: the published code has (docs/deviations.md 3, 7, 9).
What has a record is not computed again; the page is made of all there are.
"""

from __future__ import annotations

import argparse
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
from joao.augmentations.base import share_of
from joao.data.base import Dataset
from joao.data.features import Features, make_store
from joao.evaluation.statistics import Gain
from joao.evaluation.unsupervised import evaluate_embeddings
from joao.experiment import build_method
from joao.files import make_folder, write_file
from joao.graphs import GraphBatch
from joao.heads import Heads
from joao.policies import Policy
from joao.policies.base import checked_losses
from joao.policies.min_max import ascend
from joao.randomness import order_within_groups, torch_generator
from joao.recipe import Recipe, make_recipe
from joao.reporting.tables import gain_between, markdown, rows, with_deviation
from joao.reproduce.processes import done_one_by_one
from joao.reproduce.records import check_origin, dataset_of, write
from joao.reproduce.unsupervised import Cell, cell_recipe, grid, read_record
from joao.scoring import classes_of, describe_data, origin
from joao.training.device import make_fabric, steady_threads
from joao.training.model import embed
from joao.training.place import find_place
from joao.training.pretrain import Method, Pretraining

UNSUPERVISED = Path(__file__).parent.parent / "results/unsupervised"
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

        def drawn_below(counts: Tensor) -> Tensor:
            uniform = torch.rand(counts.numel(), dtype=torch.float64, device=batch.device, generator=generator)
            return (uniform * counts).long()

        of = batch.graph_of_node
        start = batch.first_node[:-1] + drawn_below(batch.nodes_per_graph)
        first_edge = batch.first_edge[start]
        degree = (batch.first_edge[start + 1] - first_edge)[of]
        edge = first_edge[of] + drawn_below(degree)  # one draw for each node of the graph, in the nodes' order
        draw = torch.arange(batch.num_nodes, device=batch.device)
        when = torch.full((batch.num_nodes,), torch.inf, dtype=torch.float64, device=batch.device)
        when.scatter_reduce_(0, batch.source[edge[degree > 0]], draw[degree > 0].double(), "amin")
        when[start] = -1
        place = draw - batch.first_node[of]
        most = share_of(batch.nodes_per_graph, 1 - self.strength) + 1
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
        (self.first,) = self.numbers(["identity"])
        size = len(self.augmentations)
        self.prior = torch.full((size,), 1 / size, dtype=torch.float64)
        self.probabilities = self._table(self.prior)

    def update(self, pair_losses: Tensor) -> None:
        losses = checked_losses(pair_losses, len(self.augmentations))[self.first]
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
        words: what is changed, and in brackets what it is in the base.
        base: a row of the table.
        changes: of the base's recipe; None is another row of the table, which has records.
        put_in: replaces parts by some that no recipe can name.
        standardise: see :func:`joao.evaluation.unsupervised.evaluate_embeddings`.
        later: added to the seed of the pre-training, not to the number of the partition.
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
    """The base's recipe with the changes of a level."""
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
    return make_recipe(table, place=f"{cell.method} on {cell.dataset}")


@steady_threads()
def embeddings(recipe: Recipe, dataset: Dataset, device: str, put_in: PutIn = nothing) -> Tensor:
    """``(G, d)`` embeddings after pre-training with parts put in; without any, those of :func:`joao.experiment.pretrain`."""
    dataset = replace(dataset, node_attributes=None)  # the table's features are labels alone (deviation 17)
    store = make_store(dataset, Features.fixed_on(dataset, recipe.features, recipe.max_degree))
    method = put_in(build_method(recipe, store), recipe)
    # The fast path records a step for each pair of heads that augmentations pick.
    fast = False if isinstance(method.heads, HeadPerEpoch) else None
    training = Pretraining(store, method, recipe.training, make_fabric(device, "32-true", find_place()), fast)
    for _ in training.run():
        pass
    return embed(method.encoder, training.store)


def compute(cell: Cell, folder: Path, device: str) -> None:
    """Writes the record of a level."""
    started = time.perf_counter()
    level, recipe, dataset = LEVELS[cell.method], level_recipe(cell), dataset_of(cell.dataset, None)
    rows_of = embeddings(recipe, dataset, device, level.put_in).numpy()
    trained = time.perf_counter()
    scores = evaluate_embeddings(
        rows_of,
        classes_of(dataset),
        class_names=dataset.class_names,
        partitions=[cell.seed],
        standardise=level.standardise,
    )
    facts = {**identity(cell), "data": describe_data(dataset), "scores": scores.to_json()}
    seconds = {"seconds of pre-training": trained - started, "seconds": time.perf_counter() - started}
    write(cell.path(folder), {**facts, **seconds, **origin(device)})


def identity(cell: Cell) -> dict[str, Any]:
    """What decides a record."""
    put_in = LEVELS[cell.method].put_in.__name__
    return {"cell": dataclasses.asdict(cell), "put in": put_in, "recipe": level_recipe(cell).table()}


def is_done(cell: Cell, folder: Path) -> bool:
    """Whether a level has a record; one that another recipe made is told."""
    path = cell.path(folder)
    if not path.exists():
        return False
    check_origin(path, read_record(path), identity(cell), f"{cell.method} on {cell.dataset}")
    return True


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """A line for each level, a column for each data set that has one, and a sentence for each level."""
    table = {(row.dataset, row.method): row for row in rows(records) if row.num_seeds == len(grid()["seeds"])}
    datasets = [name for name in grid()["datasets"] if any((name, level) in table for level in COMPUTED)]
    gains = {name: gains_of(name, records, [each for each in datasets if (each, name) in table]) for name in LEVELS}
    lines = [
        [
            f"**{BASES[base]}**",
            *(with_deviation(table[name, base].mean, table[name, base].std) for name in datasets),
            "",
        ]
        for base in BASES
    ]
    for name, level in LEVELS.items():
        cells = [
            in_words(table[each, name].mean, gains[name][each]) if each in gains[name] else "" for each in datasets
        ]
        differences = [gain.mean for gain in gains[name].values()]
        mean = f"{np.mean(differences):+.2f}" if len(differences) == len(datasets) else ""
        lines.append([level.words, *cells, mean])
    intervals = [gain for of_level in gains.values() for gain in of_level.values()]
    apart = sum(gain.low > 0 or gain.high < 0 for gain in intervals)
    return (
        "\n\n".join(
            [
                "# What moves the figures",
                "Made from the records in `factors` and `unsupervised` by `python studies/factors.py`; not to be edited. "
                f"Accuracy % of an SVM on frozen embeddings, {len(grid()['seeds'])} seeds. Each line changes one thing and keeps all else; "
                "in brackets behind it is what the base has. Behind the accuracy: its difference to the base on the same "
                "seeds and folds, with its 95 % interval. The last column is the mean of the differences. The first line "
                "changes nothing but what is random: it shows what a difference without a cause looks like. The base is "
                "JOAO, where a line does not say JOAOv2. " + where(records),
                markdown(["changed (base)", *datasets, "mean difference"], lines),
                f"Of {len(intervals)} intervals, {apart} exclude zero. As each misses the true difference once in twenty times, about "
                f"{len(intervals) / 20:.0f} would be expected to do so if nothing in the table mattered: a single one is a hint, not a finding.",
                "\n".join(f"- {level.words}: {verdict(gains[name])}" for name, level in LEVELS.items() if gains[name]),
            ]
        )
        + "\n"
    )


def gains_of(name: str, records: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> dict[str, Gain]:
    """The paired differences of a level to its base, by data set."""
    gains = {each: gain_between(records, each, name, LEVELS[name].base) for each in datasets}
    return {each: gain for each, gain in gains.items() if gain is not None}


def in_words(mean: float, gain: Gain) -> str:
    return f"{mean:.2f}; {gain.mean:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def verdict(gains: Mapping[str, Gain]) -> str:
    """Where an interval excludes zero."""
    higher = [name for name, gain in gains.items() if gain.low > 0]
    lower = [name for name, gain in gains.items() if gain.high < 0]
    said = [f"{verb} on {', '.join(names)}" for verb, names in (("raises it", higher), ("lowers it", lower)) if names]
    if not said:
        return "no difference can be told on any set."
    rest = "elsewhere no difference can be told" if len(higher) + len(lower) < len(gains) else ""
    return "; ".join([*said, *([rest] if rest else [])]) + "."


def where(records: Sequence[Mapping[str, Any]]) -> str:
    """On which kind of device the records were made: other devices draw other random numbers."""
    kinds = {
        what: " and ".join(
            sorted({each["machine"]["device"] for each in records if (each["cell"]["method"] in COMPUTED) == new})
        )
        for what, new in (("levels", True), ("bases", False))
    }
    return "Devices: " + ", ".join(f"{kind} ({what})" for what, kind in kinds.items()) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description="One factor at a time.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--levels", default=",".join(COMPUTED))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    make_folder(given.folder)
    wanted = [
        Cell(name, level, seed)
        for name in given.data.split(",")
        for level in given.levels.split(",")
        for seed in grid()["seeds"]
    ]
    missing = [cell for cell in wanted if not is_done(cell, given.folder)]
    missing.sort(key=lambda cell: -level_recipe(cell).training.epochs)  # the longest first
    for cell in done_one_by_one(partial(compute, folder=given.folder, device=given.device), missing, given.jobs):
        print(cell.dataset, cell.method, cell.seed, flush=True)
    known = [*BASES, *(name for name in LEVELS if name not in COMPUTED)]
    places = [path for name in known for path in UNSUPERVISED.glob(f"*/{name}-?.json")]
    write_file(given.page, page([read_record(path) for path in sorted([*places, *given.folder.glob("*/*.json")])]))


if __name__ == "__main__":
    main()
