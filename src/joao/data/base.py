"""What every reader returns: graphs with whatever their file says about nodes, edges and classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.errors import UserError, shown

Array = NDArray[np.generic]

GRAPHS_AT_ONCE = 1 << 16
MOST_NODES = (1 << 31) - 1
MOST_BARE_NODES = 1 << 24
_EDGES_AT_ONCE = 1 << 20


class Failure(NamedTuple):
    """A row of the source that gave no graph.

    Attributes:
        row: from 0 on, blank lines and the header not counted.
        text: what should have been a graph.
        reason: why it is none.
        name: what the source calls it.
        line: of the file, from 1 on; 0 where there is no file.
    """

    row: int
    text: str
    reason: str
    name: str = ""
    line: int = 0


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs as they were read; :mod:`joao.data.features` makes node features and a store of them.

    Attributes:
        name: how messages and records call it.
        first_node: ``(G + 1,)`` offsets of the graphs in the list of nodes.
        first_edge: ``(G + 1,)`` offsets of the graphs in the list of edges.
        source, target: ``(E,)`` node numbers inside their graph, of any integer type; both directions of every edge,
            sorted by target and then by source, neither loops nor repeats.
        node_labels: ``(N, columns)`` categories (integers or text), or None.
        node_attributes: ``(N, columns)`` real numbers, or None.
        edge_attr: ``(E, columns)`` numbers, or None.
        classes: ``(G,)`` class numbers, -1 for a graph without a label, or None without any. Only evaluation and
            fine-tuning read them.
        class_names: what the class numbers stand for, in the data's own words.
        graph_names: what the data call their graphs, in order; empty where they have no names.
        targets: ``(G, T)`` labels of several tasks, NaN where not measured, or None. They, too, are for evaluation and
            fine-tuning alone.
        target_names: of the tasks.
        kind: ``graphs``, or ``molecules``: then ``node_labels`` are atoms and ``edge_attr`` bonds, in bytes, as
            :mod:`joao.data.molecules` has them; or ``ogb_molecules`` or ``syntax_trees``: then they are the numbers of
            :mod:`joao.ogb_codes`.
        smiles: of the molecules; empty for other graphs.
        row_of_graph: ``(G,)`` the row of the source, from 0 on, that each graph is, ascending; None where every row is
            one.
        failures: the other rows.
        groups: ``(G,)`` numbers of groups that a scaffold split keeps together, or None.
        featuriser: of molecules, what made graphs of them, with its version.
        notices: what was changed on reading that its owner should know.

    >>> import joao, networkx
    >>> graphs = joao.read([networkx.path_graph(3), networkx.cycle_graph(4)])
    >>> graphs.degrees.tolist()
    [1, 2, 1, 2, 2, 2, 2]
    >>> graphs[1]  # slices, lists of numbers and masks pick likewise
    Dataset('graphs', 1 graphs, 4 nodes, 4 edges)
    """

    name: str
    first_node: NDArray[np.int64]
    first_edge: NDArray[np.int64]
    source: NDArray[np.integer]
    target: NDArray[np.integer]
    node_labels: Array | None = None
    node_attributes: NDArray[np.float32] | None = None
    edge_attr: NDArray[np.float32] | NDArray[np.uint8] | None = None
    classes: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    graph_names: tuple[str, ...] = ()
    targets: NDArray[np.float32] | None = None
    target_names: tuple[str, ...] = ()
    kind: str = "graphs"
    smiles: tuple[str, ...] = ()
    row_of_graph: NDArray[np.int64] | None = None
    failures: tuple[Failure, ...] = ()
    groups: NDArray[np.int64] | None = None
    featuriser: str = ""
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self)} {self.kind}, {self.num_nodes} nodes, {self.num_edges} edges)"

    def __len__(self) -> int:
        return len(self.first_node) - 1

    def __getitem__(self, which: Any) -> Dataset:
        """The graphs that a number, a slice, a list of numbers or a mask picks: always a data set, also of one."""
        if isinstance(which, Integral):
            return self.subset(np.array([range(len(self))[int(which)]]))
        return self.subset(np.arange(len(self))[which])

    def __iter__(self) -> Iterator[Dataset]:
        return (self[number] for number in range(len(self)))

    @property
    def num_nodes(self) -> int:
        """Of all graphs together."""
        return int(self.first_node[-1])

    @property
    def num_edges(self) -> int:
        """Undirected edges."""
        return len(self.source) // 2

    @cached_property
    def graph_of_node(self) -> NDArray[np.int64]:
        """``(N,)`` the number of each node's graph."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_node))

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """``(N,)`` number of neighbours of every node."""
        degrees = np.zeros(self.num_nodes, dtype=np.int64)
        for first in range(0, len(self), GRAPHS_AT_ONCE):  # so that no list of all edges is made
            starts, edges = (
                offsets[first : first + GRAPHS_AT_ONCE + 1] for offsets in (self.first_node, self.first_edge)
            )
            node = np.repeat(starts[:-1] - starts[0], np.diff(edges)) + self.target[edges[0] : edges[-1]]
            degrees[starts[0] : starts[-1]] = np.bincount(node, minlength=int(starts[-1] - starts[0]))
        return degrees

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the graphs and their node and edge data, classes left out; equal graphs, equal hash."""
        digest = hashlib.sha256()
        for offsets in (self.first_node, self.first_edge):
            digest.update(as_bytes(offsets))
        for ends in (self.source, self.target):  # whatever type holds them
            for first in range(0, len(ends), _EDGES_AT_ONCE):
                digest.update(as_bytes(ends[first : first + _EDGES_AT_ONCE].astype(np.int32, copy=False)))
        for data in (self.node_labels, self.node_attributes, self.edge_attr):
            digest.update(b"none" if data is None else as_bytes(data))
        return digest.hexdigest()[:16]

    @property
    def labels(self) -> NDArray[np.str_]:
        """``(G,)`` the name of each graph's class; empty text for one without a label."""
        names = np.array([*self.class_names, ""])
        return names[np.full(len(self), -1) if self.classes is None else self.classes]

    @property
    def failure_notice(self) -> str:
        """How many rows of the source gave no graph, as the beginning of a sentence; empty where all did."""
        rows = len(self) + len(self.failures)
        return f"{self.name}: {len(self.failures)} of {rows} rows are no molecules" if self.failures else ""

    def in_rows(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """``values`` ``(G, ...)`` of the graphs in the rows of the source; NaN in a row that gave no graph."""
        if not self.failures or self.row_of_graph is None:
            return values
        spread = np.full((len(self) + len(self.failures), *values.shape[1:]), np.nan, dtype=values.dtype)
        spread[self.row_of_graph] = values
        return spread

    @property
    def row_names(self) -> tuple[str, ...]:
        """What the source calls its rows, also those that gave no graph; empty where it has no names."""
        if not self.failures or self.row_of_graph is None or not self.graph_names:
            return self.graph_names
        names = {failure.row: failure.name for failure in self.failures}
        names |= zip(self.row_of_graph.tolist(), self.graph_names, strict=True)
        return tuple(names[row] for row in range(len(names)))

    def without_labels(self) -> Dataset:
        """The same graphs with neither classes nor tasks, for what must not see them."""
        return replace(self, classes=None, class_names=(), targets=None, target_names=())

    def subset(self, graphs: NDArray[np.int64]) -> Dataset:
        """The graphs numbered ``graphs`` ``(g,)``, in that order: its rows are these, one each."""
        nodes = _ranges(self.first_node, graphs)
        edges = _ranges(self.first_edge, graphs)
        return replace(
            self,
            first_node=offsets_of(self.first_node[graphs + 1] - self.first_node[graphs]),
            first_edge=offsets_of(self.first_edge[graphs + 1] - self.first_edge[graphs]),
            source=self.source[edges],
            target=self.target[edges],
            node_labels=None if self.node_labels is None else self.node_labels[nodes],
            node_attributes=None if self.node_attributes is None else self.node_attributes[nodes],
            edge_attr=None if self.edge_attr is None else self.edge_attr[edges],
            classes=None if self.classes is None else self.classes[graphs],
            graph_names=tuple(self.graph_names[graph] for graph in graphs) if self.graph_names else (),
            targets=None if self.targets is None else self.targets[graphs],
            smiles=tuple(self.smiles[graph] for graph in graphs) if self.smiles else (),
            row_of_graph=None,
            groups=None if self.groups is None else self.groups[graphs],
            failures=(),
        )


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array, which are copied only where it is not in one piece."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def offsets_of(sizes: Array) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _ranges(first: NDArray[np.int64], graphs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of all items of ``graphs``, whose items begin at ``first``."""
    sizes = first[graphs + 1] - first[graphs]
    return np.arange(sizes.sum()) + np.repeat(first[graphs] - offsets_of(sizes)[:-1], sizes)


def make_dataset(
    name: str,
    nodes_per_graph: NDArray[np.integer],
    edges: tuple[NDArray[np.integer], NDArray[np.integer]],
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


def _checked_edges(
    name: str, edges: tuple[NDArray[np.integer], NDArray[np.integer]], first_node: NDArray[np.int64]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
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
