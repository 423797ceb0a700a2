"""Four workloads: molecules of two kinds, large sparse graphs and dense graphs; real data if available."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from joao.core.errors import UserError
from joao.core.graphs import GraphStore
from joao.core.randomness import numpy_generator, torch_generator
from joao.data import Dataset, Features, list_datasets, make_store, read_whole
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from repro.benchmarks.plan import Plan


@dataclass(frozen=True, eq=False)
class Workload:
    """Graphs with the model and batches of their training.

    Attributes:
        store: its graphs make whole batches, ten of them or a multiple of ten where there are enough: so every
            step is of one size, and once per epoch the lower level looks at exactly a tenth of the batches.
        origin: where the graphs come from, in words.
    """

    name: str
    store: GraphStore
    origin: str
    width: int
    layers: int
    batch_size: int
    precision: str = "32-true"

    @property
    def is_mixed(self) -> bool:
        """Whether the precision is mixed: floors, rivals and parts of a step have 32-bit numbers only."""
        return self.precision.endswith("-mixed")

    @property
    def num_batches(self) -> int:
        return -(-len(self.store) // self.batch_size)

    def part(self, num_batches: int) -> Workload:
        """Keep only the first batches."""
        return replace(self, store=part(self.store, torch.arange(min(len(self.store), num_batches * self.batch_size))))

    def table(self) -> dict[str, Any]:
        """Describe the workload in a record."""
        graphs = len(self.store)
        return {
            "name": self.name,
            "origin": self.origin,
            "graphs": graphs,
            "batches": self.num_batches,
            "batch size": self.batch_size,
            "nodes per graph": self.store.x.shape[0] / graphs,
            "directed edges per graph": self.store.source.numel() / graphs,
            "features": self.store.num_features,
            "encoder": f"gin {self.layers}x{self.width}",
            "precision": self.precision,
        }


@dataclass(frozen=True)
class _Shape:
    """How to make graphs of a data set's size, and which features and how many batches to use of the real ones."""

    graphs: int
    nodes: float
    degree: float  # as drawn: loops and repeats, many in dense graphs, are dropped afterwards
    labels: int
    features: str
    most_batches: int  # of an epoch


_SHAPES = {
    "NCI1": _Shape(4110, 29.9, 2.16, 37, "labels", 30),
    "DD": _Shape(1178, 284.3, 5.03, 89, "labels", 10),
    "REDDIT-BINARY": _Shape(2000, 429.6, 2.32, 0, "constant", 10),
    "COLLAB": _Shape(5000, 74.5, 162.0, 0, "constant", 10),
    "molecules": _Shape(30_000, 23.0, 2.17, 9, "labels", 100),
}


def make_workload(name: str, plan: Plan, device: torch.device) -> Workload:
    """Make the workload ``name`` on ``device``."""
    shape = _SHAPES[name]
    large = name == "molecules" and device.type == "cuda"  # the size molecules are pre-trained with
    batch_size = plan.batch_size or (16 if plan.quick else 256 if large else 128)
    dataset, origin = _graphs(name, shape, plan, batch_size)
    store = make_store(dataset, Features.from_dataset(dataset, shape.features))
    chosen = _whole_batches(len(store), batch_size, shape.most_batches, plan.seed)
    if chosen.numel() < len(store):
        origin += f"; {chosen.numel():,} of its {len(store):,} graphs, in whole batches"
    return Workload(
        name=name,
        store=part(store, chosen).to(device),
        origin=origin,
        width=plan.width or (300 if large else 32),
        layers=plan.layers or (5 if large else 3),
        batch_size=batch_size,
        precision=plan.precision if device.type == "cuda" else "32-true",
    )


def _graphs(name: str, shape: _Shape, plan: Plan, batch_size: int) -> tuple[Dataset, str]:
    if not plan.quick and name != "molecules" and name in list_datasets(plan.data_root):
        return read_whole(name, plan.data_root), f"{name}, as published"
    count = 10 * batch_size if plan.quick else shape.graphs
    if name == "molecules":
        return molecule_like_graphs(count, shape.nodes, seed=plan.seed), "made: trees with rings, of ZINC's sizes"
    made = random_graphs(count, shape.nodes, shape.degree, plan.seed, num_node_labels=shape.labels, num_classes=0)
    return made, f"made: random graphs of {name}'s mean sizes"


def _whole_batches(num_graphs: int, batch_size: int, most: int, seed: int) -> torch.Tensor:
    """Numbers of graphs, drawn at random, that make whole batches; all graphs if they do not make one."""
    batches = min(num_graphs // batch_size, most)
    batches -= batches % 10 if batches >= 10 else 0
    order = torch.randperm(num_graphs, generator=torch_generator(seed, "graphs of the benchmark"))
    return order[: batches * batch_size] if batches else order


def part(store: GraphStore, graphs: torch.Tensor) -> GraphStore:
    """Select the graphs numbered ``graphs``."""
    batch = store.batch(graphs.to(store.device))
    first_edge = batch.first_edge[batch.first_node]
    shift = torch.repeat_interleave(batch.first_node[:-1], first_edge.diff())
    return GraphStore(
        x=batch.x.to(store.x.dtype),
        source=(batch.source - shift).to(store.source.dtype),
        target=(batch.target - shift).to(store.target.dtype),
        first_node=batch.first_node,
        first_edge=first_edge,
        edge_attr=None,  # no encoder here uses them
    )


def molecule_like_graphs(
    num_graphs: int = 1000, mean_nodes: float = 23.0, seed: int = 0, *, num_node_labels: int = 9
) -> Dataset:
    """Draw graphs as large and sparse as drug-like molecules: trees with a few rings, without classes.

    A graph has eight nodes plus a Poisson number. Each node after the first is connected to one of the three before it,
    and a Poisson number of nodes to the fifth before it. Label k has a probability proportional to :math:`3^{-k}`.
    """
    if num_graphs < 1 or mean_nodes < 8:
        raise UserError(f"molecule_like_graphs: {num_graphs=} must be at least 1 and {mean_nodes=} at least 8.")
    random = numpy_generator(seed, "molecule-like graphs")
    sizes = 8 + random.poisson(mean_nodes - 8, num_graphs)
    num_nodes, first = int(sizes.sum()), np.cumsum(sizes) - sizes
    position = np.arange(num_nodes) - np.repeat(first, sizes)
    back = 1 + (random.random(num_nodes) * np.minimum(position, 3)).astype(np.int64)
    child = np.flatnonzero(position)
    draws = random.poisson(3.0, num_graphs)
    ring_end = np.repeat(first, draws) + 5 + (random.random(draws.sum()) * np.repeat(sizes - 5, draws)).astype(np.int64)
    weights = 3.0 ** -np.arange(num_node_labels)
    return make_dataset(
        "molecules",
        sizes,
        (np.concatenate([child, ring_end]), np.concatenate([child - back[child], ring_end - 5])),
        node_labels=random.choice(num_node_labels, size=num_nodes, p=weights / weights.sum()),
        report_directed=False,
    )
