"""What every reader returns: graphs with whatever their file says about nodes, edges and classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joao.errors import UserError

Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs as they were read; :mod:`joao.data.features` makes node features and a store of them.

    Attributes:
        name: how messages and records call it.
        first_node: ``(G + 1,)`` offsets of the graphs in the list of nodes.
        first_edge: ``(G + 1,)`` offsets of the graphs in the list of edges.
        source, target: ``(E,)`` node numbers inside their graph; both directions of every edge, sorted by
            target and then by source, neither loops nor repeats.
        node_labels: ``(N, columns)`` categories (integers or text), or None.
        node_attributes: ``(N, columns)`` real numbers, or None.
        edge_attr: ``(E, columns)`` real numbers, or None.
        classes: ``(G,)`` class numbers, or None. Only evaluation reads them.
        class_names: what the class numbers stand for, in the data's own words.
        notices: what was changed on reading that its owner should know.
    """

    name: str
    first_node: NDArray[np.int64]
    first_edge: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    node_labels: Array | None = None
    node_attributes: NDArray[np.float32] | None = None
    edge_attr: NDArray[np.float32] | None = None
    classes: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.first_node) - 1

    @property
    def num_nodes(self) -> int:
        return int(self.first_node[-1])

    @property
    def num_edges(self) -> int:
        """Undirected edges."""
        return len(self.source) // 2

    @cached_property
    def graph_of_node(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self)), np.diff(self.first_node))

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """``(N,)`` number of neighbours of every node."""
        shift = np.repeat(self.first_node[:-1], np.diff(self.first_edge))
        return np.bincount(self.target + shift, minlength=self.num_nodes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the graphs and their node and edge data, classes left out; equal graphs, equal hash."""
        digest = hashlib.sha256()
        for part in (self.first_node, self.first_edge, self.source, self.target):
            digest.update(np.ascontiguousarray(part).tobytes())
        for data in (self.node_labels, self.node_attributes, self.edge_attr):
            digest.update(b"none" if data is None else np.ascontiguousarray(data).tobytes())
        return digest.hexdigest()[:16]


def make_dataset(
    name: str,
    nodes_per_graph: Array,
    edges: tuple[Array, Array],
    *,
    node_labels: Array | None = None,
    node_attributes: Array | None = None,
    edge_attr: Array | None = None,
    graph_labels: Sequence[object] | None = None,
    notices: Sequence[str] = (),
    tell_directed: bool = True,
) -> Dataset:
    """Checks what a reader found and brings its edges into the one form everything else relies on.

    Args:
        name: of the data set, for messages.
        nodes_per_graph: ``(G,)``.
        edges: source and target, ``(e,)`` each, node numbers counted through *all* graphs. Loops and repeats
            are dropped (the first of repeated edges keeps its attributes), missing directions are added.
        node_labels, node_attributes: a row per node.
        edge_attr: a row per edge as given; an added direction gets its edge's row.
        graph_labels: one per graph; None for a graph that has none.
        notices: of the reader.
        tell_directed: whether adding directions is worth a notice (not where a format lists an edge once).
    """
    nodes_per_graph = np.asarray(nodes_per_graph, dtype=np.int64)
    if len(nodes_per_graph) == 0:
        raise UserError(f"{name}: no graphs in it.")
    if (nodes_per_graph <= 0).any():
        graph = int(np.argmax(nodes_per_graph <= 0))
        raise UserError(f"{name}: graph {graph} has no nodes. Leave it out: it has nothing to embed.")
    first_node = np.concatenate([[0], np.cumsum(nodes_per_graph)]).astype(np.int64)
    for what, rows in (("node labels", node_labels), ("node attributes", node_attributes)):
        if rows is not None and len(rows) != first_node[-1]:
            raise UserError(f"{name}: {len(rows)} rows of {what} for {first_node[-1]} nodes.")
    if edge_attr is not None and len(edge_attr) != len(edges[0]):
        raise UserError(f"{name}: {len(edge_attr)} rows of edge attributes for {len(edges[0])} edges.")
    source, target = _checked_edges(name, edges, first_node)
    source, target, rows, added = _undirected(source, target, int(first_node[-1]))
    notices = list(notices)
    if added and tell_directed:
        notices.append(f"{name}: edges were directed; {added} missing reverse directions were added.")
    graph_of_edge = np.searchsorted(first_node, target, side="right") - 1
    edges_per_graph = np.bincount(graph_of_edge, minlength=len(nodes_per_graph))
    shift = first_node[graph_of_edge]
    classes, class_names, label_notices = _classes(name, graph_labels, len(nodes_per_graph))
    attr = None if edge_attr is None else _finite(name, "edge attribute", edge_attr)[rows]
    return Dataset(
        name=name,
        first_node=first_node,
        first_edge=np.concatenate([[0], np.cumsum(edges_per_graph)]).astype(np.int64),
        source=(source - shift).astype(np.int32),
        target=(target - shift).astype(np.int32),
        node_labels=None if node_labels is None else _as_columns(np.asarray(node_labels)),
        node_attributes=None
        if node_attributes is None
        else _finite(name, "node attribute", node_attributes),
        edge_attr=attr,
        classes=classes,
        class_names=class_names,
        notices=(*notices, *label_notices),
    )


def _as_columns(rows: Array) -> Array:
    return rows[:, None] if rows.ndim == 1 else rows


def _finite(name: str, what: str, values: Array) -> NDArray[np.float32]:
    numbers = _as_columns(np.asarray(values, dtype=np.float32))
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise UserError(
            f"{name}: {what} {column} of row {row} is {numbers[row, column]}. Fill or remove it first."
        )
    return numbers


def _checked_edges(
    name: str, edges: tuple[Array, Array], first_node: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    source, target = (np.asarray(end, dtype=np.int64) for end in edges)
    num_nodes = int(first_node[-1])
    for end in (source, target):
        wrong = (end < 0) | (end >= num_nodes)
        if wrong.any():
            edge = int(np.argmax(wrong))
            raise UserError(
                f"{name}: edge {edge} points at node {end[edge]}, but nodes run from 0 to {num_nodes - 1}."
            )
    graph_of_source = np.searchsorted(first_node, source, side="right")
    crossing = graph_of_source != np.searchsorted(first_node, target, side="right")
    if crossing.any():
        edge = int(np.argmax(crossing))
        raise UserError(
            f"{name}: edge {edge} joins nodes {source[edge]} and {target[edge]}, of two different graphs."
        )
    return source, target


def _undirected(
    source: NDArray[np.int64], target: NDArray[np.int64], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Both directions of every edge once, sorted by target then source; the row each came from; how many were missing."""
    given = np.flatnonzero(source != target)
    key = target[given] * num_nodes + source[given]
    key, first = np.unique(key, return_index=True)
    rows = given[first]
    reverse = (key % num_nodes) * num_nodes + key // num_nodes
    missing = np.flatnonzero(~np.isin(reverse, key, assume_unique=True))
    if len(missing):
        key = np.concatenate([key, reverse[missing]])
        rows = np.concatenate([rows, rows[missing]])
        order = np.argsort(key, kind="stable")
        key, rows = key[order], rows[order]
    return key % num_nodes, key // num_nodes, rows, len(missing)


def _classes(
    name: str, labels: Sequence[object] | None, num_graphs: int
) -> tuple[NDArray[np.int64] | None, tuple[str, ...], list[str]]:
    if labels is None:
        return None, (), []
    if len(labels) != num_graphs:
        raise UserError(f"{name}: {len(labels)} graph labels for {num_graphs} graphs.")
    unlabelled = sum(label is None for label in labels)
    if unlabelled:
        told = [f"{name}: {unlabelled} of {num_graphs} graphs have no label; the labels are left out."]
        return None, (), told if unlabelled < num_graphs else []
    values, classes = np.unique(np.asarray(labels), return_inverse=True)
    return classes.astype(np.int64), tuple(str(value) for value in values.tolist()), []
