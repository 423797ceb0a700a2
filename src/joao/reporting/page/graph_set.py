"""Graphs as short texts, from which the page draws them.

A number below 64 is one character of :data:`ALPHABET`; in a graph of more than 64 nodes the number of a node is two.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.atoms import SYMBOLS
from joao.data.base import Dataset
from joao.randomness import numpy_generator

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase + "-_"
MOST_NODES = 300
MOST_CLASSES = 48
_MOST_NAME = 32
_MOST_TASKS = 8
_OTHER = "other"


@dataclass(frozen=True, eq=False)
class Drawer:
    """Makes texts of the graphs of a data set.

    Attributes:
        labels: what the codes of nodes stand for, the most frequent first; empty where nodes have no labels.
        codes: ``(N,)`` of the nodes.
    """

    dataset: Dataset
    labels: tuple[str, ...]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset) -> Drawer:
        names = _node_names(dataset)
        if names is None:
            return cls(dataset, (), np.zeros(dataset.num_nodes, dtype=np.int64))
        texts, first = np.unique(names, return_inverse=True)
        by_count = [code for code, _ in Counter(first.tolist()).most_common()]
        known = by_count[: len(ALPHABET) - 1] if len(by_count) > len(ALPHABET) else by_count
        code_of = np.full(len(texts), len(known))
        code_of[known] = np.arange(len(known))
        labels = [str(texts[code])[:_MOST_NAME] for code in known]
        return cls(dataset, tuple(labels + [_OTHER] * (len(known) < len(by_count))), code_of[first])

    def edges(self, graph: int) -> list[tuple[int, int]]:
        """The undirected edges of a graph, the smaller number first."""
        own = slice(*self.dataset.first_edge[graph : graph + 2])
        ends = zip(self.dataset.source[own].tolist(), self.dataset.target[own].tolist(), strict=True)
        return [(u, v) for u, v in ends if u < v]

    def text(self, graph: int) -> list[str]:
        """Labels of nodes, ends of edges and, of a molecule, types of bonds."""
        first, last = self.dataset.first_node[graph : graph + 2].tolist()
        labels = "".join(ALPHABET[code] for code in self.codes[first:last]) if self.labels else ""
        edges = self.edges(graph)
        number = _two_characters if last - first > len(ALPHABET) else ALPHABET.__getitem__
        parts = [labels, "".join(number(end) for edge in edges for end in edge)]
        if self.dataset.kind == "molecules" and self.dataset.edge_attr is not None:
            own = slice(*self.dataset.first_edge[graph : graph + 2])
            types = self.dataset.edge_attr[own, 0][self.dataset.source[own] < self.dataset.target[own]]
            parts.append("".join(ALPHABET[int(each)] for each in types))
        return parts


def graph_set(dataset: Dataset, numbers: Sequence[int], total: int, most_characters: int) -> dict[str, Any]:
    """What the page knows of the graphs on a map.

    Args:
        dataset: the graphs.
        numbers: of these among ``total``.
        total: of graphs, of which these may be a sample.
        most_characters: for names and drawings; graphs beyond are not drawn, nor are those of more than
            :data:`MOST_NODES` nodes.
    """
    drawer = Drawer.of(dataset)
    names = [name[:_MOST_NAME] for name in dataset.graph_names]
    left = most_characters - sum(len(name) + 3 for name in names)
    drawings: list[list[str] | None] = [None] * len(dataset)
    smiles: list[str] | None = [""] * len(dataset) if dataset.smiles else None
    sizes = np.diff(dataset.first_node)
    for graph in numpy_generator(0, "drawings").permutation(len(dataset)).tolist():
        if sizes[graph] > MOST_NODES:
            continue
        text = drawer.text(graph)
        own = dataset.smiles[graph] if smiles is not None else ""
        left -= sum(len(part) + 3 for part in text) + len(own) + 3
        if left < 0:
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
        "labels": list(drawer.labels),
        "colourings": colourings(dataset),
        "drawings": drawings,
        "drawn": sum(each is not None for each in drawings),
    }


def colourings(dataset: Dataset) -> list[dict[str, Any]]:
    """By what the points of a map can be coloured: classes or, of tables, tasks.

    Each has a ``name`` and either ``classes``, their names, with ``codes`` (-1 is none), or ``values`` (None is none).
    """
    if dataset.classes is not None:
        names = [str(name) for name in dataset.class_names]
        codes = dataset.classes
        if len(names) > MOST_CLASSES:
            names, codes = [*names[: MOST_CLASSES - 1], _OTHER], np.minimum(codes, MOST_CLASSES - 1)
        return [{"name": "class", "classes": names, "codes": codes.tolist()}]
    found: list[dict[str, Any]] = []
    for name, column in zip(dataset.target_names[:_MOST_TASKS], _columns(dataset.targets), strict=False):
        known = column[~np.isnan(column)]
        if np.isin(known, (0, 1)).all():
            codes = np.where(np.isnan(column), -1, np.nan_to_num(column)).astype(np.int64)
            found.append({"name": name, "classes": ["0", "1"], "codes": codes.tolist()})
        else:
            values = [None if np.isnan(each) else float(f"{each:.4g}") for each in column]
            found.append({"name": name, "values": values})
    return found


def _columns(targets: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return np.zeros((0, 0), dtype=np.float32) if targets is None else targets.T


def _node_names(dataset: Dataset) -> NDArray[np.str_] | None:
    if dataset.node_labels is None:
        return None
    first = dataset.node_labels[:, 0]
    if dataset.kind == "molecules":
        return np.array(SYMBOLS)[first.astype(np.int64)]
    return first.astype(np.str_)


def _two_characters(number: int) -> str:
    return ALPHABET[number // len(ALPHABET)] + ALPHABET[number % len(ALPHABET)]
