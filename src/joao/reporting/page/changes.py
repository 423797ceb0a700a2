"""What each augmentation does to a graph: the same nodes before and after, told apart by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.augmentations import Augmentation
from joao.building import build_pool
from joao.data.base import Dataset
from joao.data.features import make_store
from joao.graphs import GraphBatch
from joao.randomness import torch_generator
from joao.reporting.page.graph_set import MOST_NODES, Drawer
from joao.reporting.page.subject import Subject

MOST_EXAMPLES = 4
DRAWS = 3
_FIT_TO_SEE = 40


@dataclass(frozen=True)
class Change:
    """How a graph differs from what it was.

    Attributes:
        lost: nodes that left.
        masked: nodes with other features.
        cut: edges that left, among nodes that stayed.
        added: edges that came.
    """

    lost: tuple[int, ...]
    masked: tuple[int, ...]
    cut: tuple[tuple[int, int], ...]
    added: tuple[tuple[int, int], ...]


def change(graph: GraphBatch, augmentation: Augmentation, generator: torch.Generator) -> Change:
    """What ``augmentation`` does to the one graph of a batch.

    Two further columns of ``x`` number the nodes and mark the first. Where none has left, the order tells which is
    which, and a row that is not what it was has been masked: noise, the mean and a token all change the mark.
    """
    number = torch.arange(graph.num_nodes, dtype=graph.x.dtype)[:, None]
    before = replace(graph, x=torch.cat([graph.x, number, (number == 0).to(graph.x.dtype)], dim=1))
    after = augmentation(before, generator)
    stayed = after.num_nodes == graph.num_nodes
    kept = list(range(graph.num_nodes)) if stayed else after.x[:, -2].round().long().tolist()
    masked = (after.x != before.x).any(dim=1).nonzero().flatten().tolist() if stayed else []
    old = _edges(graph, list(range(graph.num_nodes)))
    new = _edges(after, kept)
    here = set(kept)
    return Change(
        lost=tuple(node for node in range(graph.num_nodes) if node not in here),
        masked=tuple(masked),
        cut=tuple(sorted(edge for edge in old - new if here.issuperset(edge))),
        added=tuple(sorted(new - old)),
    )


def _edges(batch: GraphBatch, number: list[int]) -> set[tuple[int, int]]:
    ends = zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    pairs = ((number[u], number[v]) for u, v in ends)
    return {(min(pair), max(pair)) for pair in pairs}


def examples(subject: Subject) -> list[dict[str, Any]]:
    """Some graphs of a run, each with what every augmentation of the pool makes of it, in several draws.

    None where the augmentations are their owner's, or the pool shows graphs as they are.
    """
    if subject.dataset is None or "augmentations" in subject.run.info.own or subject.run.info.pool == ("identity",):
        return []
    pool = build_pool(subject.run.recipe)
    drawer = Drawer.of(subject.dataset)
    found = []
    for graph in chosen(subject.dataset):
        store = make_store(subject.dataset.subset(np.array([graph])), subject.run.info.features)
        batch = store.batch(torch.arange(1))
        found.append(
            {
                "graph": graph,
                "number": int(subject.numbers[graph]),
                "nodes": batch.num_nodes,
                "drawing": drawer.text(graph),
                "members": _members(batch, pool, graph),
            }
        )
    return found


def _members(batch: GraphBatch, pool: Mapping[str, Augmentation], graph: int) -> list[dict[str, Any]]:
    members = []
    for name, augmentation in pool.items():
        generator = torch_generator(graph, f"report {name}")
        draws = [change(batch, augmentation, generator) for _ in range(DRAWS)]
        members.append({"name": name, "draws": [vars(draw) for draw in draws]})
    return members


def chosen(dataset: Dataset) -> list[int]:
    """Graphs to draw large: of each of the first classes the one nearest to its median size, of those fit to see."""
    sizes = np.diff(dataset.first_node)
    fit = (sizes >= 4) & (sizes <= _FIT_TO_SEE) & (np.diff(dataset.first_edge) > 0)
    if not fit.any():
        fit = sizes <= MOST_NODES
    classes: NDArray[np.int64] = np.zeros(len(dataset), dtype=np.int64)
    if dataset.classes is not None:
        classes = np.asarray(dataset.classes)
    found = []
    for each in np.unique(classes[fit]).tolist()[:MOST_EXAMPLES]:
        own = np.flatnonzero(fit & (classes == each))
        found.append(int(own[np.abs(sizes[own] - np.median(sizes[own])).argmin()]))
    if len(found) == 1 and fit.sum() > 2:  # of one class, or of none: a smaller one and a larger one beside it
        own = np.flatnonzero(fit)
        by_size = own[np.argsort(sizes[own], kind="stable")]
        found += [int(by_size[len(by_size) // 10]), int(by_size[-1 - len(by_size) // 10])]
    return list(dict.fromkeys(found))
