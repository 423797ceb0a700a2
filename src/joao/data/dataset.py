"""The data set: what every reader returns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, quantity
from joao.core.memory import Budget

Array = NDArray[np.generic]

GRAPHS_PER_CHUNK = 1 << 16
_EDGES_PER_CHUNK = 1 << 20
_MAX_TEXT_BYTES = 1 << 28
_FEATURE_ARRAYS = {"node labels": "node_labels", "node attributes": "node_attributes", "edge attributes": "edge_attr"}
# Arrays with one row per node, per directed edge and per graph; texts with one entry per graph.
_PER_NODE, _PER_EDGE = ("node_labels", "node_attributes"), ("source", "target", "edge_attr")
_PER_GRAPH, _TEXTS = ("classes", "targets", "groups"), ("graph_names", "smiles")


class Standardised(NamedTuple):
    """How many molecules were standardised, how many changed, and how many of these lost atoms, such as a salt's."""

    molecules: int
    changed: int
    lost_atoms: int

    def __str__(self) -> str:
        """
        >>> print(Standardised(1000, 12, 5))
        standardised: 12 of 1000 molecules changed, 5 of them lost a salt, a metal or another fragment
        """
        return (
            f"standardised: {self.changed} of {quantity(self.molecules, 'molecules')} changed, "
            f"{self.lost_atoms} of them lost a salt, a metal or another fragment"
        )


def add_counts(counts: Iterable[Standardised | None]) -> Standardised | None:
    """Sum over parts of a data set; None if none of them was standardised."""
    known = [each for each in counts if each is not None]
    return Standardised(*map(sum, zip(*known, strict=True))) if known else None


class Failure(NamedTuple):
    """A row of the source that could not be turned into a graph.

    Attributes:
        row: counted from 0, without blank lines and the header.
        text: contents of the row.
        reason: why it failed.
        name: identifier in the source.
        line: line of the file, counted from 1; 0 if there is no file.
    """

    row: int
    text: str
    reason: str
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Where it is, its text and the reason, as in notices.

        >>> print(Failure(6, "C1CC", "not a valid SMILES", line=8))
        line 8, 'C1CC': not a valid SMILES
        """
        return f"{f'line {self.line}' if self.line else f'row {self.row}'}, {self.text[:40]!r}: {self.reason}"

    def cells(self, first_row: int = 0) -> list[object]:
        """Line (or row, counted from ``first_row``), name, text and reason: one line of a list of failures."""
        return [self.line or self.row + first_row, self.name, self.text, self.reason]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs as read from a source. :mod:`joao.data.features` turns them into node features and batches.

    Attributes:
        name: used in messages and records.
        first_node: ``(G + 1,)`` offsets of the graphs in the list of nodes.
        first_edge: ``(G + 1,)`` offsets of the graphs in the list of edges.
        source, target: ``(E,)`` node numbers inside their graph, of any integer type. Each edge is listed in both
            directions, sorted by target and then by source, without loops or duplicates.
        node_labels: ``(N, columns)`` categories, or None: integers, or text as objects, because in an array of fixed
            width every label would take the memory of the longest.
        node_attributes: ``(N, columns)`` real numbers, or None.
        edge_attr: ``(E, columns)`` numbers, or None.
        classes: ``(G,)`` class numbers, -1 for a graph without a label, or None. Only evaluation and fine-tuning read
            them.
        class_names: names of the classes in the source.
        graph_names: names of the graphs in the source; empty if there are none.
        targets: ``(G, T)`` labels of several tasks, NaN for missing values, or None. Only evaluation and fine-tuning
            read them.
        target_names: names of the tasks.
        kind: ``graphs``; ``molecules`` (``node_labels`` are atoms and ``edge_attr`` bonds, in bytes); or
            ``ogb_molecules`` or ``syntax_trees``. The codes are listed in :mod:`joao.core.codes`.
        smiles: SMILES of molecules; empty for other graphs.
        row_of_graph: ``(G,)`` row of the source of each graph, ascending; None if every row is a graph.
        failures: rows of the source that are not graphs.
        groups: ``(G,)`` numbers of groups that a scaffold split keeps together, or None.
        featuriser: name and version of the code that converted the molecules.
        notices: changes made on reading that the user should know about.
        standardised: what standardisation changed, if it was done now; not kept in files.

    >>> import joao, networkx
    >>> graphs = joao.read([networkx.path_graph(3), networkx.cycle_graph(4)])
    >>> graphs.degrees.tolist()
    [1, 2, 1, 2, 2, 2, 2]
    >>> graphs[1]  # also slices, lists of numbers and masks
    Dataset('graphs', 1 graph, 4 nodes, 4 edges)
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
    standardised: Standardised | None = None

    def __repr__(self) -> str:
        kind = self.kind.removesuffix("s") if len(self) == 1 else self.kind
        return f"Dataset({self.name!r}, {len(self)} {kind}, {self.num_nodes} nodes, {self.num_edges} edges)"

    def __len__(self) -> int:
        return len(self.first_node) - 1

    def __getitem__(self, which: Any) -> Dataset:
        """Select graphs by a number, a slice, a list of numbers or a mask; the result is always a data set."""
        if isinstance(which, Integral):
            return self.subset(np.array([range(len(self))[int(which)]]))
        return self.subset(np.arange(len(self))[which])

    def __iter__(self) -> Iterator[Dataset]:
        return (self[number] for number in range(len(self)))

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.first_node[-1])

    @property
    def num_edges(self) -> int:
        """Number of undirected edges of all graphs."""
        return len(self.source) // 2

    @cached_property
    def graph_of_node(self) -> NDArray[np.int64]:
        """``(N,)`` number of each node's graph."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_node))

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """``(N,)`` number of neighbours of each node."""
        degrees = np.zeros(self.num_nodes, dtype=np.int64)
        for starts, edges in self.offset_chunks():
            node = np.repeat(starts[:-1] - starts[0], np.diff(edges)) + self.target[edges[0] : edges[-1]]
            degrees[starts[0] : starts[-1]] = np.bincount(node, minlength=int(starts[-1] - starts[0]))
        return degrees

    def offset_chunks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Offsets of nodes and edges of some graphs at a time, to avoid temporary arrays of all edges."""
        for first in range(0, len(self), GRAPHS_PER_CHUNK):
            chunk = slice(first, first + GRAPHS_PER_CHUNK + 1)
            yield self.first_node[chunk], self.first_edge[chunk]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the graphs with their node and edge data, without the labels."""
        digest = hashlib.sha256()
        for offsets in (self.first_node, self.first_edge):
            digest.update(as_bytes(offsets))
        for ends in (self.source, self.target):  # hashed as int32, so that the integer type does not matter
            for first in range(0, len(ends), _EDGES_PER_CHUNK):
                digest.update(as_bytes(ends[first : first + _EDGES_PER_CHUNK].astype(np.int32, copy=False)))
        for data in (self.node_labels, self.node_attributes, self.edge_attr):
            if data is not None and data.dtype == object:
                _hash_texts(digest, [str(text) for text in data.ravel()])
            else:
                digest.update(b"none" if data is None else as_bytes(data))
        return digest.hexdigest()[:16]

    @cached_property
    def store_fingerprint(self) -> str:
        """Fingerprint of the store of shards from which these graphs were loaded; otherwise that of the graphs."""
        return self.fingerprint

    def has_fingerprint(self, *known: str) -> bool:
        """Whether these graphs, or the store of shards from which they were loaded, have one of these fingerprints."""
        return self.fingerprint in known or self.store_fingerprint in known

    @cached_property
    def label_values(self) -> tuple[tuple[int | str, ...], ...] | None:
        """Sorted values of each column of node labels; None without labels."""
        labels = self.node_labels
        return None if labels is None else tuple(tuple(number_values(column)[0].tolist()) for column in labels.T)

    @cached_property
    def attribute_facts(self) -> tuple[ColumnFacts, ...] | None:
        """Statistics of each column of node attributes; None without attributes."""
        attributes = self.node_attributes
        return None if attributes is None else tuple(map(ColumnFacts.of, attributes.T.astype(np.float64)))

    @property
    def labels(self) -> NDArray[np.str_]:
        """``(G,)`` class name of each graph; empty text for a graph without a label."""
        width = max(map(len, self.class_names), default=0)
        Budget(self.name).take(4 * width * len(self), f"class names of {width} characters")
        names = np.array([*self.class_names, ""])
        return names[np.full(len(self), -1) if self.classes is None else self.classes]

    @property
    def num_rows(self) -> int:
        """Number of rows of the source: graphs and failures."""
        return len(self) + len(self.failures)

    @property
    def rows(self) -> NDArray[np.int64]:
        """``(G,)`` row of the source of each graph."""
        return np.arange(len(self)) if self.row_of_graph is None else self.row_of_graph

    @property
    def failure_notice(self) -> str:
        """Start of a sentence about the failed rows; empty if there are none."""
        if not self.failures:
            return ""
        are = "row is not a valid molecule" if self.num_rows == 1 else "rows are not valid molecules"
        return f"{self.name}: {len(self.failures)} of {self.num_rows} {are}"

    def in_rows(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Expand ``values`` ``(G, ...)`` to one row per row of the source, NaN for failures."""
        if not self.failures:
            return values
        expanded = np.full((self.num_rows, *values.shape[1:]), np.nan, dtype=values.dtype)
        expanded[self.rows] = values
        return expanded

    @property
    def row_names(self) -> tuple[str, ...]:
        """Names of the rows of the source, including failures; empty if there are no names."""
        if not self.failures or (len(self) and not self.graph_names):
            return self.graph_names
        names = {failure.row: failure.name for failure in self.failures}
        names |= zip(self.rows.tolist(), self.graph_names, strict=True)
        in_order = tuple(names[row] for row in range(len(names)))
        return in_order if any(in_order) else ()

    def without_labels(self) -> Dataset:
        """Return the graphs without classes and tasks."""
        return replace(self, classes=None, class_names=(), targets=None, target_names=())

    def drop_unused_classes(self) -> Dataset:
        """Return the graphs with the names of the classes that occur."""
        if self.classes is None:
            return self
        used = np.unique(self.classes[self.classes >= 0])
        number = np.full(len(self.class_names) + 1, -1)
        number[used] = np.arange(len(used))
        return replace(self, classes=number[self.classes], class_names=tuple(self.class_names[each] for each in used))

    def subset(self, graphs: NDArray[np.int64]) -> Dataset:
        """Return the graphs numbered ``graphs`` ``(g,)``, in that order, as if each were one row of a source."""
        nodes, first_node = select_items(self.first_node, graphs)
        edges, first_edge = select_items(self.first_edge, graphs)
        chosen: dict[str, Any] = {"first_node": first_node, "first_edge": first_edge}
        for names, rows in ((_PER_NODE, nodes), (_PER_EDGE, edges), (_PER_GRAPH, graphs)):
            chosen |= {name: array[rows] for name in names if (array := getattr(self, name)) is not None}
        for name in _TEXTS:
            if texts := getattr(self, name):
                chosen[name] = tuple(texts[graph] for graph in graphs)
        return replace(self, **chosen, row_of_graph=None, failures=())


def number_values(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted values of a column of labels, and the number of each label among them."""
    if column.dtype != object:
        return np.unique(column, return_inverse=True)
    texts = column.tolist()
    values = sorted({*texts})
    number_of = {value: number for number, value in enumerate(values)}
    numbers = np.fromiter(map(number_of.__getitem__, texts), dtype=np.int64, count=len(texts))
    return np.array(values, dtype=object), numbers


def text_width(texts: Collection[str]) -> int:
    """Width of an array of fixed width with these ``texts``; 0 if it would be too large."""
    width = max(map(len, texts), default=1) or 1
    return width if 4 * width * len(texts) <= _MAX_TEXT_BYTES else 0


def _hash_texts(digest: Any, texts: list[str]) -> None:
    """Hash texts like an array of fixed width, unless that is too large."""
    width = text_width(texts)
    for first in range(0, len(texts), _EDGES_PER_CHUNK):
        chunk = texts[first : first + _EDGES_PER_CHUNK]
        digest.update(as_bytes(np.array(chunk, f"<U{width}")) if width else "\0".join([*chunk, ""]).encode())


def as_bytes(array: Array) -> memoryview:
    """View the bytes of an array; copies only an array that is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def sizes_to_offsets(sizes: Array, total: int | None = None) -> NDArray[np.int64]:
    """Convert ``(G,)`` sizes to ``(G + 1,)`` offsets.

    Sizes come from files: before they are added, it is checked that the sum cannot overflow. Raises ValueError if a
    size is negative, or if the sum is not ``total``, the length of the array that the offsets point into.
    """
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
        raise ValueError("sizes are not a list of integers")
    if int(sizes.min(initial=0)) < 0 or int(sizes.max(initial=0)) * len(sizes) >= 1 << 63:
        raise ValueError("a size is negative or too large")
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets if total is None else check_offsets(offsets, total)


def check_offsets(first: NDArray[Any], length: int) -> NDArray[np.int64]:
    """Return ``(G + 1,)`` offsets into an array of ``length`` items; raises ValueError if they are not ascending."""
    if first.ndim != 1 or first.dtype.kind not in "iu" or not len(first):
        raise ValueError("offsets are not a list of integers")
    # Comparisons, because differences of arbitrary numbers overflow.
    if first[0] != 0 or first[-1] != length or (first[1:] < first[:-1]).any():
        raise ValueError(f"offsets do not ascend from 0 to {length}")
    return first.astype(np.int64, copy=False)


def select_items(first: NDArray[np.int64], graphs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the nodes (or edges) of ``graphs``, where graph g has items ``first[g]`` on, and their new offsets."""
    sizes = first[graphs + 1] - first[graphs]
    offsets = sizes_to_offsets(sizes)
    return np.arange(offsets[-1]) + np.repeat(first[graphs] - offsets[:-1], sizes), offsets


def concatenate_datasets(datasets: Sequence[Dataset], name: str | None = None) -> Dataset:
    """Concatenate data sets whose nodes and edges have the same columns.

    Classes and tasks are merged by name; a graph has no label for a task that its data set does not have. Graph names
    are kept if any data set has them, SMILES if all do. Groups are dropped because their numbers are not comparable.
    Rows are renumbered through all data sets.
    """
    first = datasets[0]
    if len(datasets) == 1:
        return first if name is None else replace(first, name=name)
    for other in datasets[1:]:
        for what in ("kind", *_FEATURE_ARRAYS):
            one, another = (_describe(dataset, what) for dataset in (first, other))
            if one != another:
                differing = "kinds" if what == "kind" else what
                raise UserError(
                    f"cannot combine {first.name} and {other.name}: {differing} differ ({one} and {another})."
                )
    class_names = _unique(name for dataset in datasets for name in dataset.class_names)
    target_names = _unique(name for dataset in datasets for name in dataset.target_names)
    with_rows = list(zip(datasets, accumulate((each.num_rows for each in datasets), initial=0), strict=False))
    joined: dict[str, Any] = {
        array: np.concatenate([getattr(dataset, array) for dataset in datasets])
        for array in (*_PER_NODE, *_PER_EDGE)
        if getattr(first, array) is not None
    }
    for offsets in ("first_node", "first_edge"):
        joined[offsets] = sizes_to_offsets(np.concatenate([np.diff(getattr(each, offsets)) for each in datasets]))
    if class_names:
        joined["classes"] = np.concatenate([_renumber_classes(each, class_names) for each in datasets])
    if target_names:
        joined["targets"] = np.concatenate([_reorder_targets(each, target_names) for each in datasets])
    if any(dataset.graph_names for dataset in datasets):
        joined["graph_names"] = tuple(text for each in datasets for text in (each.graph_names or ("",) * len(each)))
    if all(dataset.smiles or not len(dataset) for dataset in datasets):
        joined["smiles"] = tuple(text for dataset in datasets for text in dataset.smiles)
    if any(dataset.failures for dataset in datasets):
        joined["row_of_graph"] = np.concatenate([row + dataset.rows for dataset, row in with_rows])
    return Dataset(
        name=first.name if name is None else name,
        **joined,
        class_names=class_names,
        target_names=target_names,
        kind=first.kind,
        failures=tuple(each._replace(row=each.row + row) for dataset, row in with_rows for each in dataset.failures),
        featuriser=", ".join(_unique(dataset.featuriser for dataset in datasets)),
        standardised=add_counts(dataset.standardised for dataset in datasets),
        notices=_unique(notice for dataset in datasets for notice in dataset.notices),
    )


def _describe(dataset: Dataset, what: str) -> str:
    if what == "kind":
        return dataset.kind
    array: Array | None = getattr(dataset, _FEATURE_ARRAYS[what])
    if array is None:
        return "none"
    return f"{array.shape[1]} columns{'' if array.dtype.kind in 'iuf' else ' of text'}"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _renumber_classes(dataset: Dataset, names: tuple[str, ...]) -> NDArray[np.int64]:
    if dataset.classes is None:
        return np.full(len(dataset), -1, dtype=np.int64)
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([*(numbers[name] for name in dataset.class_names), -1])[dataset.classes]


def _reorder_targets(dataset: Dataset, names: tuple[str, ...]) -> NDArray[np.float32]:
    targets = np.full((len(dataset), len(names)), np.nan, dtype=np.float32)
    if dataset.targets is not None:
        numbers = {name: number for number, name in enumerate(names)}
        targets[:, [numbers[name] for name in dataset.target_names]] = dataset.targets
    return targets


@dataclass(frozen=True)
class ColumnFacts:
    """Statistics of a column of node attributes; ``binary`` if all values are 0 or 1."""

    count: int
    mean: float
    deviation: float
    least: float
    most: float
    binary: bool

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ColumnFacts:
        binary = bool(np.isin(values, (0.0, 1.0)).all())
        mean, deviation = float(values.mean()), float(values.std())
        return cls(len(values), mean, deviation, float(values.min()), float(values.max()), binary)

    def merge(self, other: ColumnFacts) -> ColumnFacts:
        r"""Statistics of the concatenation of both columns.

        .. math:: n \sigma^2 = n_1 \sigma_1^2 + n_2 \sigma_2^2 + \frac{n_1 n_2}{n} (\mu_1 - \mu_2)^2
        """
        count = self.count + other.count
        share = other.count / count
        mean = self.mean + (other.mean - self.mean) * share
        variance = (1 - share) * self.deviation**2 + share * other.deviation**2
        variance += share * (1 - share) * (other.mean - self.mean) ** 2
        least, most = min(self.least, other.least), max(self.most, other.most)
        return ColumnFacts(count, mean, math.sqrt(variance), least, most, self.binary and other.binary)

    @property
    def shift_and_scale(self) -> tuple[float, float]:
        """Shift and scale that standardise the column; a binary column is not changed."""
        if self.binary:
            return 0.0, 1.0
        # Rounding may give a constant column a deviation of 1e-17.
        return self.mean, 1.0 if self.least == self.most else self.deviation
