"""From what a reader found to a data set: checked, and with edges in the one form that everything else relies on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.data.base import Array, Dataset, offsets_of
from joao.errors import UserError, shown

MOST_NODES = (1 << 31) - 1
MOST_BARE_NODES = 1 << 24

Edges = tuple[NDArray[np.integer], NDArray[np.integer]]  # source and target


def make_dataset(
    name: str,
    nodes_per_graph: NDArray[np.integer],
    edges: Edges,
    *,
    node_labels: Array | None = None,
    node_attributes: Array | None = None,
    edge_attr: Array | None = None,
    graph_labels: Sequence[object] | None = None,
    graph_names: Sequence[str] = (),
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
        graph_names: one per graph, or none at all.
        notices: of the reader.
        tell_directed: whether adding directions is worth a notice (not where a format lists an edge once).
    """
    nodes_per_graph = np.asarray(nodes_per_graph, dtype=np.int64)
    if len(nodes_per_graph) == 0:
        raise UserError(f"{name}: no graphs in it.")
    if (nodes_per_graph <= 0).any():
        graph = int(np.argmax(nodes_per_graph <= 0))
        raise UserError(f"{name}: graph {graph} has no nodes. Leave it out: it has nothing to embed.")
    first_node = offsets_of(nodes_per_graph)
    if not 0 < first_node[-1] <= MOST_NODES:
        raise UserError(f"{name}: more than {MOST_NODES} nodes. Cut it into several sources and 'joao pack' them.")
    for what, rows in (("node labels", node_labels), ("node attributes", node_attributes)):
        if rows is not None and len(rows) != first_node[-1]:
            raise UserError(f"{name}: {len(rows)} rows of {what} for {first_node[-1]} nodes.")
    if edge_attr is not None and len(edge_attr) != len(edges[0]):
        raise UserError(f"{name}: {len(edge_attr)} rows of edge attributes for {len(edges[0])} edges.")
    labels = None if node_labels is None else _categories(node_labels)
    attributes = None if node_attributes is None else _finite(name, "node attribute", node_attributes)
    attr = None if edge_attr is None else _finite(name, "edge attribute", edge_attr)
    classes, class_names, told = _classes(name, graph_labels, len(nodes_per_graph))
    key, chosen, added = _undirected(*_checked_edges(name, edges, first_node), int(first_node[-1]), attr is not None)
    if added and tell_directed:
        told.append(f"{name}: edges were directed; {added} missing reverse directions were added.")
    first_edge = np.searchsorted(key, first_node * first_node[-1])
    shift = np.repeat(first_node[:-1].astype(np.int32), np.diff(first_edge))
    return Dataset(
        name=name,
        first_node=first_node,
        first_edge=first_edge.astype(np.int64),
        source=(key % first_node[-1]).astype(np.int32) - shift,
        target=(key // first_node[-1]).astype(np.int32) - shift,
        node_labels=labels,
        node_attributes=attributes,
        edge_attr=None if attr is None else attr[chosen],
        classes=classes,
        class_names=class_names,
        graph_names=tuple(graph_names),
        notices=(*notices, *told),
    )


def numbered_through(edges: Iterable[ArrayLike], sizes: NDArray[np.int64]) -> Edges:
    """Source and target of all edges, counted through all graphs, of pairs ``(e, 2)`` counted inside each graph."""
    first = np.cumsum(sizes) - sizes
    pairs = [np.array(each, dtype=np.int64).reshape(-1, 2) + node for each, node in zip(edges, first, strict=True)]
    source, target = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs]).T
    return source, target


def check_bare_nodes(place: str, bare: Sequence[int]) -> None:
    """Refuses files that claim, in a word, more nodes than they describe by rows or edges could fill memory with.

    Args:
        place: begins the complaint.
        bare: of each graph, how many nodes at least have neither a row nor an edge; may be below 0.
    """
    if sum(number for number in bare if number > 0) > MOST_BARE_NODES:
        graph = max(range(len(bare)), key=bare.__getitem__)
        raise UserError(
            f"{place}: more than {MOST_BARE_NODES} nodes that have neither a row nor an edge, {bare[graph]} of them in "
            f"graph {graph}. Are the numbers of nodes right?"
        )


def plain_label(value: object) -> int | str | None:
    """A label as a whole number or text; None where it is neither, such as 1.5 or a list.

    >>> plain_label(2.0), plain_label("ring"), plain_label(1.5)
    (2, 'ring', None)
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral | np.bool_):
        return int(value) if abs(int(value)) < 2**63 else None
    if isinstance(value, Real) and float(value).is_integer():
        return plain_label(int(float(value)))
    return None


def _categories(labels: Array) -> Array:
    """``(N, columns)`` int64 or text, so that equal labels have equal bytes."""
    labels = labels[:, None] if labels.ndim == 1 else labels
    return labels.astype(np.int64 if labels.dtype.kind in "iub" else np.str_)


def _finite(name: str, what: str, values: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        numbers = np.require(values, dtype=np.float32, requirements=["C", "W"])
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise UserError(f"{name}: {what} {column} of row {row} is {numbers[row, column]}. Fill or remove it first.")
    return numbers


def _checked_edges(name: str, edges: Edges, first_node: NDArray[np.int64]) -> Edges:
    source, target = (np.asarray(end) if len(end) else np.zeros(0, dtype=np.int64) for end in edges)
    num_nodes = int(first_node[-1])
    for end in (source, target):
        if len(end) and (end.min() < 0 or end.max() >= num_nodes):
            edge = int(np.argmax((end < 0) | (end >= num_nodes)))
            raise UserError(f"{name}: edge {edge} points at node {end[edge]}, but nodes run from 0 to {num_nodes - 1}.")
    graph_of_node = np.repeat(np.arange(len(first_node) - 1, dtype=np.int32), np.diff(first_node))
    crossing = graph_of_node[source] != graph_of_node[target]
    if crossing.any():
        edge = int(np.argmax(crossing))
        raise UserError(f"{name}: edge {edge} joins nodes {source[edge]} and {target[edge]}, of two different graphs.")
    return source, target


def _undirected(
    source: NDArray[np.integer], target: NDArray[np.integer], num_nodes: int, wants_rows: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, int]:
    """Both directions of every edge once, as sorted numbers ``target * num_nodes + source``.

    Also the row each came from, if wanted, and how many directions were missing. Without rows nothing but
    sorting in place is needed, which keeps a set of 25 million edges under a gigabyte.
    """
    given = source != target
    key = target[given].astype(np.int64) * num_nodes + source[given]
    rows = None
    if wants_rows:
        key, first = np.unique(key, return_index=True)
        rows = np.flatnonzero(given)[first]
    else:
        key = _sorted_once(key)
    reverse = (key % num_nodes) * num_nodes + key // num_nodes
    missing = np.zeros(0, dtype=np.int64)
    if not np.array_equal(key, np.sort(reverse)):
        missing = np.flatnonzero(~np.isin(reverse, key, assume_unique=True))
        key = np.concatenate([key, reverse[missing]])
        order = np.argsort(key, kind="stable")
        key = key[order]
        rows = None if rows is None else np.concatenate([rows, rows[missing]])[order]
    return key, rows, len(missing)


def _sorted_once(key: NDArray[np.int64]) -> NDArray[np.int64]:
    key.sort()
    is_first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    return key if is_first.all() else key[is_first]


def _classes(
    name: str, labels: Sequence[object] | None, num_graphs: int
) -> tuple[NDArray[np.int64] | None, tuple[str, ...], list[str]]:
    if labels is None:
        return None, (), []
    if len(labels) != num_graphs:
        raise UserError(f"{name}: {len(labels)} graph labels for {num_graphs} graphs.")
    labelled = [graph for graph, label in enumerate(labels) if label is not None]
    if not labelled:
        return None, (), []
    plain = [plain_label(labels[graph]) for graph in labelled]
    if None in plain:
        graph = labelled[plain.index(None)]
        raise UserError(f"{name}: graph {graph}: label {shown(labels[graph])} is neither a whole number nor text.")
    is_text = any(isinstance(label, str) for label in plain)
    names = np.array([str(label) for label in plain] if is_text else plain)
    values, numbers = np.unique(names, return_inverse=True)
    classes = np.full(num_graphs, -1, dtype=np.int64)
    classes[labelled] = numbers
    missing = num_graphs - len(labelled)
    told = [f"{name}: {missing} of {num_graphs} graphs have no label."] if missing else []
    return classes, tuple(str(value) for value in values.tolist()), told
