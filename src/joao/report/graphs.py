"""Graphs for the page: encoded as short texts, and compared before and after each augmentation.

A number below 64 is one character of :data:`ALPHABET`. In graphs with more than 64 nodes, node numbers have two
characters.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from joao.augmentations import Augmentation
from joao.config.builder import build_pool
from joao.core.codes import ELEMENT_SYMBOLS
from joao.core.graphs import GraphBatch
from joao.core.randomness import numpy_generator, torch_generator
from joao.data.dataset import Dataset
from joao.data.features import make_store
from joao.report.reported_run import ReportedRun

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase + "-_"
MOST_NODES = 300
MOST_CLASSES = 48
_NAME_LENGTH = 32
_MOST_TASKS = 8
_OTHER = "other"


@dataclass(frozen=True, eq=False)
class GraphCodec:
    """Encode the graphs of a data set as short texts."""

    dataset: Dataset
    labels: tuple[str, ...]  # the node labels by code, the most frequent first; empty if nodes have no labels
    codes: NDArray[np.int64]  # (N,) codes of the nodes

    @classmethod
    def of(cls, dataset: Dataset) -> GraphCodec:
        names = _node_names(dataset)
        if names is None:
            return cls(dataset, (), np.zeros(dataset.num_nodes, dtype=np.int64))
        texts, first = np.unique(names, return_inverse=True)
        by_count = [code for code, _ in Counter(first.tolist()).most_common()]
        known = by_count[: len(ALPHABET) - 1] if len(by_count) > len(ALPHABET) else by_count
        code_of = np.full(len(texts), len(known))
        code_of[known] = np.arange(len(known))
        labels = [str(texts[code])[:_NAME_LENGTH] for code in known]
        return cls(dataset, tuple(labels + [_OTHER] * (len(known) < len(by_count))), code_of[first])

    def edges(self, graph: int) -> list[tuple[int, int]]:
        """The undirected edges of a graph, each with the smaller node first."""
        own = slice(*self.dataset.first_edge[graph : graph + 2])
        ends = zip(self.dataset.source[own].tolist(), self.dataset.target[own].tolist(), strict=True)
        return [(u, v) for u, v in ends if u < v]

    def encode(self, graph: int) -> list[str]:
        """Encode a graph: node labels, ends of edges and, for molecules, bond types."""
        first, last = self.dataset.first_node[graph : graph + 2].tolist()
        labels = "".join(ALPHABET[code] for code in self.codes[first:last]) if self.labels else ""
        edges = self.edges(graph)
        ends = np.array(edges, dtype=np.int64).ravel()
        digits = [ends // len(ALPHABET), ends % len(ALPHABET)] if last - first > len(ALPHABET) else [ends]
        parts = [labels, "".join(ALPHABET[digit] for digit in np.stack(digits, axis=1).ravel())]
        if self.dataset.kind == "molecules" and self.dataset.edge_attr is not None:
            own = slice(*self.dataset.first_edge[graph : graph + 2])
            types = self.dataset.edge_attr[own, 0][self.dataset.source[own] < self.dataset.target[own]]
            parts.append("".join(ALPHABET[int(each)] for each in types))
        return parts


def encode_numbers(numbers: NDArray[np.int64], total: int) -> str:
    """Encode numbers below ``total``; each has as many characters as ``total - 1`` needs, the most significant first.

    >>> encode_numbers(np.array([[1, 63], [64, 99]]), total=100)
    '010_101Z'
    """
    width = next(width for width in range(1, 64) if total <= len(ALPHABET) ** width)
    digits = [numbers.ravel() // len(ALPHABET) ** place % len(ALPHABET) for place in reversed(range(width))]
    return "".join(ALPHABET[digit] for digit in np.stack(digits, axis=1).ravel())


def graph_set(dataset: Dataset, numbers: Sequence[int], total: int, most_characters: int) -> dict[str, Any]:
    """The data of the graphs on a map; their indices in the whole data set, of size ``total``, are ``numbers``.

    Names and drawings have at most ``most_characters``: graphs beyond it are not drawn, nor are graphs with more than
    :data:`MOST_NODES` nodes.
    """
    codec = GraphCodec.of(dataset)
    names = [name[:_NAME_LENGTH] for name in dataset.graph_names]
    characters_left = most_characters - sum(len(name) + 3 for name in names)
    drawings: list[list[str] | None] = [None] * len(dataset)
    smiles: list[str] | None = [""] * len(dataset) if dataset.smiles else None
    sizes = np.diff(dataset.first_node)
    for graph in numpy_generator(0, "drawings").permutation(len(dataset)).tolist():
        if sizes[graph] > MOST_NODES:
            continue
        text = codec.encode(graph)
        own = dataset.smiles[graph] if smiles is not None else ""
        characters_left -= sum(len(part) + 3 for part in text) + len(own) + 3
        if characters_left < 0:
            break
        drawings[graph] = text
        if smiles is not None:
            smiles[graph] = own
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "total": total,
        "numbers": None if len(dataset) == total else list(numbers),
        "names": names or None,
        "smiles": smiles,
        "nodes": sizes.tolist(),
        "edges": (np.diff(dataset.first_edge) // 2).tolist(),
        "labels": list(codec.labels),
        "colourings": colourings(dataset),
        "drawings": drawings,
        "drawn": sum(each is not None for each in drawings),
    }


def colourings(dataset: Dataset) -> list[dict[str, Any]]:
    """The ways to colour the points of a map: by class or, for tables, by task.

    Each has a ``name`` and either ``classes`` (their names) with ``codes`` (-1: no label), or ``values`` (None: no
    label).
    """
    if dataset.classes is not None:
        names = [str(name) for name in dataset.class_names]
        codes = dataset.classes
        if len(names) > MOST_CLASSES:
            names, codes = [*names[: MOST_CLASSES - 1], _OTHER], np.minimum(codes, MOST_CLASSES - 1)
        return [{"name": "class", "classes": names, "codes": codes.tolist()}]
    scales: list[dict[str, Any]] = []
    targets = () if dataset.targets is None else dataset.targets.T
    for name, column in zip(dataset.target_names[:_MOST_TASKS], targets, strict=False):
        known = column[~np.isnan(column)]
        if np.isin(known, (0, 1)).all():
            codes = np.where(np.isnan(column), -1, np.nan_to_num(column)).astype(np.int64)
            scales.append({"name": name, "classes": ["0", "1"], "codes": codes.tolist()})
        else:
            values = [None if np.isnan(each) else float(f"{each:.4g}") for each in column]
            scales.append({"name": name, "values": values})
    return scales


def _node_names(dataset: Dataset) -> NDArray[np.str_] | None:
    if dataset.node_labels is None:
        return None
    first = dataset.node_labels[:, 0]
    return (
        np.array(ELEMENT_SYMBOLS)[first.astype(np.int64)]
        if dataset.kind == "molecules"
        else np.array(list(map(str, first)), dtype=object)
    )


MOST_EXAMPLES = 4
DRAWS = 3
_MOST_NODES_SHOWN = 40


@dataclass(frozen=True)
class Change:
    """What an augmentation changed in a graph."""

    lost: tuple[int, ...]  # removed nodes
    masked: tuple[int, ...]  # nodes with changed features
    cut: tuple[tuple[int, int], ...]  # removed edges between remaining nodes
    added: tuple[tuple[int, int], ...]


def find_change(graph: GraphBatch, augmentation: Augmentation, generator: torch.Generator) -> Change:
    """Apply ``augmentation`` to a batch of one graph, and find what it changed.

    Two columns are added to ``x``: the number of each node, which identifies the remaining nodes, and a mark on the
    first node. If no node was removed, the order of nodes is the same, and changed rows of ``x`` were masked; the mark
    makes sure that replacing features by noise, the mean or a token changes every masked row.
    """
    number = torch.arange(graph.num_nodes, dtype=graph.x.dtype)[:, None]
    before = replace(graph, x=torch.cat([graph.x, number, (number == 0).to(graph.x.dtype)], dim=1))
    after = augmentation(before, generator)
    all_kept = after.num_nodes == graph.num_nodes
    kept = list(range(graph.num_nodes)) if all_kept else after.x[:, -2].round().long().tolist()
    masked = (after.x != before.x).any(dim=1).nonzero().flatten().tolist() if all_kept else []
    old = _edges(graph, list(range(graph.num_nodes)))
    new = _edges(after, kept)
    remaining = set(kept)
    return Change(
        lost=tuple(node for node in range(graph.num_nodes) if node not in remaining),
        masked=tuple(masked),
        cut=tuple(sorted(edge for edge in old - new if remaining.issuperset(edge))),
        added=tuple(sorted(new - old)),
    )


def _edges(batch: GraphBatch, number: list[int]) -> set[tuple[int, int]]:
    pairs = ((number[u], number[v]) for u, v in zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    return {(min(pair), max(pair)) for pair in pairs}


def examples(run: ReportedRun) -> list[dict[str, Any]]:
    """Some graphs of a run, each with several draws of every augmentation in the pool.

    Empty for custom augmentations, which cannot be loaded, and for methods without augmentation.
    """
    info = run.run.info
    if run.graphs is None or "augmentations" in info.own or info.pool == ("identity",):
        return []
    pool, dataset = build_pool(run.run.recipe), run.graphs.sample
    codec = GraphCodec.of(dataset)
    drawings = []
    for graph in choose_examples(dataset):
        batch = make_store(dataset.subset(np.array([graph])), info.features).batch(torch.arange(1))
        drawings.append(
            {
                "graph": graph,
                "number": int(run.graphs.numbers[graph]),
                "nodes": batch.num_nodes,
                "drawing": codec.encode(graph),
                "members": [
                    {"name": name, "draws": _draws(batch, augmentation, torch_generator(graph, f"report {name}"))}
                    for name, augmentation in pool.items()
                ],
            }
        )
    return drawings


def _draws(batch: GraphBatch, augmentation: Augmentation, generator: torch.Generator) -> list[dict[str, Any]]:
    return [vars(find_change(batch, augmentation, generator)) for _ in range(DRAWS)]


def choose_examples(dataset: Dataset) -> list[int]:
    """Choose graphs to draw large: for each of the first classes, a small graph of about median size."""
    sizes = np.diff(dataset.first_node)
    suitable = (sizes >= 4) & (sizes <= _MOST_NODES_SHOWN) & (np.diff(dataset.first_edge) > 0)
    if not suitable.any():
        suitable = sizes <= MOST_NODES
    classes = np.zeros(len(dataset), dtype=np.int64) if dataset.classes is None else np.asarray(dataset.classes)
    chosen = []
    for each in np.unique(classes[suitable]).tolist()[:MOST_EXAMPLES]:
        own = np.flatnonzero(suitable & (classes == each))
        chosen.append(int(own[np.abs(sizes[own] - np.median(sizes[own])).argmin()]))
    if len(chosen) == 1 and suitable.sum() > 2:  # one class or none: add a smaller and a larger graph
        own = np.flatnonzero(suitable)
        by_size = own[np.argsort(sizes[own], kind="stable")]
        chosen += [int(by_size[len(by_size) // 10]), int(by_size[-1 - len(by_size) // 10])]
    return list(dict.fromkeys(chosen))
