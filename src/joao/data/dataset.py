"""What every reader returns: graphs with whatever their file says about nodes, edges and classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

GRAPHS_PER_CHUNK = 1 << 16
_EDGES_PER_CHUNK = 1 << 20


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
            :mod:`joao.data.molecules.featurise` has them; or ``ogb_molecules`` or ``syntax_trees``: then they are the numbers of
            :mod:`joao.core.codes`.
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
        for first in range(0, len(self), GRAPHS_PER_CHUNK):  # so that no list of all edges is made
            starts, edges = (
                offsets[first : first + GRAPHS_PER_CHUNK + 1] for offsets in (self.first_node, self.first_edge)
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
            for first in range(0, len(ends), _EDGES_PER_CHUNK):
                digest.update(as_bytes(ends[first : first + _EDGES_PER_CHUNK].astype(np.int32, copy=False)))
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
        nodes = _item_indices(self.first_node, graphs)
        edges = _item_indices(self.first_edge, graphs)
        return replace(
            self,
            first_node=sizes_to_offsets(self.first_node[graphs + 1] - self.first_node[graphs]),
            first_edge=sizes_to_offsets(self.first_edge[graphs + 1] - self.first_edge[graphs]),
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


def sizes_to_offsets(sizes: Array) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _item_indices(first: NDArray[np.int64], graphs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of all items of ``graphs``, whose items begin at ``first``."""
    sizes = first[graphs + 1] - first[graphs]
    return np.arange(sizes.sum()) + np.repeat(first[graphs] - sizes_to_offsets(sizes)[:-1], sizes)
