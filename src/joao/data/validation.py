"""Build data sets from the arrays of a reader, and check data sets from packed files.

Everything else relies on the form that is established here, in particular on the order of the edges.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.core import codes
from joao.core.errors import UserError, short_repr
from joao.core.memory import Budget
from joao.data.dataset import Array, Dataset, number_values, sizes_to_offsets

MAX_NODES = (1 << 31) - 1
_ISOLATED_NODE_BYTES = 6 << 10  # of its features and activations in a small encoder

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
    report_directed: bool = True,
) -> Dataset:
    """Check the arrays of a reader, and sort the edges.

    Args:
        nodes_per_graph: ``(G,)``.
        edges: source and target, ``(e,)`` each, node numbers counted through *all* graphs. Loops and duplicates are
            dropped (the first of several duplicates keeps its attributes), missing directions are added.
        node_labels, node_attributes: one row per node.
        edge_attr: one row per given edge; an added direction gets the row of its edge.
        graph_labels: one per graph; None for a graph without a label.
        report_directed: whether added directions give a notice (not for formats that list each edge once).
    """
    nodes_per_graph = np.asarray(nodes_per_graph, dtype=np.int64)
    if len(nodes_per_graph) == 0:
        raise UserError(f"{name}: contains no graphs.")
    if nodes_per_graph.min() <= 0:
        raise UserError(f"{name}: graph {np.argmax(nodes_per_graph <= 0)} has no nodes. Remove it.")
    # No sum is computed of sizes that could overflow it.
    first_node = sizes_to_offsets(np.minimum(nodes_per_graph, MAX_NODES + 1))
    if first_node[-1] > MAX_NODES:
        raise UserError(f"{name}: more than {MAX_NODES} nodes. Split it into several sources and use 'joao pack'.")
    for what, rows in (("node labels", node_labels), ("node attributes", node_attributes)):
        if rows is not None and len(rows) != first_node[-1]:
            raise UserError(f"{name}: {len(rows)} rows of {what} for {first_node[-1]} nodes.")
    if edge_attr is not None and len(edge_attr) != len(edges[0]):
        raise UserError(f"{name}: {len(edge_attr)} rows of edge attributes for {len(edges[0])} edges.")
    tables = (node_labels, node_attributes, edge_attr)
    node_labels, node_attributes, edge_attr = (
        None if rows is None or 0 in np.shape(rows)[1:] else rows for rows in tables
    )
    labels = None if node_labels is None else _to_categories(name, node_labels)
    attributes = None if node_attributes is None else _check_finite(name, "node attribute", node_attributes)
    attr = None if edge_attr is None else _check_finite(name, "edge attribute", edge_attr)
    classes, class_names, messages = _classes(name, graph_labels, len(nodes_per_graph))
    source, target = _check_edge_ends(name, edges, first_node)
    # ``key`` = target * N + source sorts edges by target and then by source. ``row`` is the row of ``edges`` of each.
    key, row, added = _add_reverse_edges(source, target, int(first_node[-1]), attr is not None)
    if added and report_directed:
        messages.append(f"{name}: edges were directed; {added} missing reverse directions were added.")
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
        edge_attr=None if attr is None else attr[row],
        classes=classes,
        class_names=class_names,
        graph_names=tuple(graph_names),
        notices=(*notices, *messages),
    )


def to_global_edges(edges: Iterable[ArrayLike], sizes: NDArray[np.int64]) -> Edges:
    """Convert pairs ``(e, 2)`` of node numbers inside each graph to sources and targets counted through all graphs."""
    first = np.cumsum(sizes) - sizes
    pairs = [np.array(each, dtype=np.int64).reshape(-1, 2) + node for each, node in zip(edges, first, strict=True)]
    source, target = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs]).T
    return source, target


def check_isolated_nodes(budget: Budget, bare: NDArray[np.int64]) -> None:
    """Refuse a few bytes that declare an enormous number of nodes without rows or edges.

    ``bare`` is a lower bound on the number of such nodes per graph; it may be negative.
    """
    number = sum(count for count in bare.tolist() if count > 0)
    if number:
        graph = int(np.argmax(bare))
        what = f"{number} nodes without rows and edges ({bare[graph]} of them in graph {graph})"
        budget.take(number * _ISOLATED_NODE_BYTES, what)


def parse_label(value: object) -> int | str | None:
    """Convert a label to an integer or text, 2.0 to 2; None for anything else, such as 1.5 or a list."""
    if isinstance(value, str):
        return str(value) if is_unicode(value) else None
    if isinstance(value, Integral | np.bool_):
        return int(value) if abs(int(value)) < 2**63 else None
    if isinstance(value, Real) and float(value).is_integer():
        return parse_label(int(float(value)))
    return None


def _to_categories(name: str, labels: Array) -> Array:
    """Convert to ``(N, columns)`` int64 or text."""
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    known = {text: text for text in map(str, labels.ravel().tolist())}  # one object for equal texts
    for text in known:
        if text.endswith("\0") or not is_unicode(text):  # packed files end a label with zeros
            raise UserError(f"{name}: node label {short_repr(text)} is not valid text.")
    return np.array([known[str(text)] for text in labels.ravel().tolist()], dtype=object).reshape(labels.shape)


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be encoded: it contains no halves of surrogate pairs."""
    return text == text.encode(errors="ignore").decode()


def _check_finite(name: str, what: str, values: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        numbers = np.require(values, dtype=np.float32, requirements=["C", "W"])
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise UserError(f"{name}: {what} {column} of row {row} is {numbers[row, column]}. Replace or remove it.")
    return numbers


def _check_edge_ends(name: str, edges: Edges, first_node: NDArray[np.int64]) -> Edges:
    source, target = (np.asarray(end) if len(end) else np.zeros(0, dtype=np.int64) for end in edges)
    num_nodes = int(first_node[-1])
    for end in (source, target):
        if len(end) and (end.min() < 0 or end.max() >= num_nodes):
            edge = int(np.argmax((end < 0) | (end >= num_nodes)))
            raise UserError(f"{name}: edge {edge} refers to node {end[edge]}, expected 0 to {num_nodes - 1}.")
    graph_of_node = np.repeat(np.arange(len(first_node) - 1, dtype=np.int32), np.diff(first_node))
    crossing = graph_of_node[source] != graph_of_node[target]
    if crossing.any():
        edge = int(np.argmax(crossing))
        raise UserError(f"{name}: edge {edge} connects nodes {source[edge]} and {target[edge]} of different graphs.")
    return source, target


def _add_reverse_edges(
    source: NDArray[np.integer], target: NDArray[np.integer], num_nodes: int, wants_rows: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, int]:
    """Return both directions of every edge once, as sorted numbers ``target * num_nodes + source``.

    Also return, with ``wants_rows``, the row of ``source`` and ``target`` that each comes from, and the number of
    missing directions. Without rows, sorting in place suffices, which keeps 25 million edges below a gigabyte.
    """
    is_edge = source != target
    key = target[is_edge].astype(np.int64) * num_nodes + source[is_edge]
    rows = None
    if wants_rows:
        key, first = np.unique(key, return_index=True)
        rows = np.flatnonzero(is_edge)[first]
    else:
        key.sort()
        is_first = np.append(True, key[1:] != key[:-1])
        key = key if is_first.all() else key[is_first]
    reverse = (key % num_nodes) * num_nodes + key // num_nodes
    missing = np.zeros(0, dtype=np.int64)
    if not np.array_equal(key, np.sort(reverse)):
        missing = np.flatnonzero(~np.isin(reverse, key, assume_unique=True))
        key = np.concatenate([key, reverse[missing]])
        order = np.argsort(key, kind="stable")
        key = key[order]
        rows = None if rows is None else np.concatenate([rows, rows[missing]])[order]
    return key, rows, len(missing)


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
    plain = [parse_label(labels[graph]) for graph in labelled]
    if None in plain:
        graph = labelled[plain.index(None)]
        raise UserError(f"{name}: graph {graph}: label {short_repr(labels[graph])} must be an integer or text.")
    is_text = any(isinstance(label, str) for label in plain)
    values, numbers = number_values(np.array([str(label) for label in plain] if is_text else plain, dtype=object))
    classes = np.full(num_graphs, -1, dtype=np.int64)
    classes[labelled] = numbers
    missing = num_graphs - len(labelled)
    messages = [f"{name}: {missing} of {num_graphs} graphs have no label."] if missing else []
    return classes, tuple(str(value) for value in values.tolist()), messages


# Number of node and edge columns of the kinds whose values are not checked.
_OF_OGB = {
    "ogb_molecules": (len(codes.OGB_ATOM_SIZES), len(codes.OGB_BOND_SIZES)),
    "syntax_trees": (codes.OGB_TREE_COLUMNS, 1),
}
KINDS = ("graphs", "molecules", *_OF_OGB)
# What each row belongs to, the allowed kinds of dtype (O is text), and the number of axes.
_FORMS = {
    "source": ("edge", "iu", 1),
    "target": ("edge", "iu", 1),
    "node_labels": ("node", "iuO", 2),
    "node_attributes": ("node", "f", 2),
    "edge_attr": ("edge", "fu", 2),
    "classes": ("graph", "i", 1),
    "targets": ("graph", "f", 2),
    "row_of_graph": ("graph", "i", 1),
    "groups": ("graph", "i", 1),
}


def check_dataset(dataset: Dataset) -> None:
    """Raise ValueError if ``dataset`` does not have the form that :func:`make_dataset` establishes."""
    lists = (dataset.class_names, dataset.target_names, dataset.notices)
    texts = (dataset.name, dataset.featuriser, *chain(*lists))
    is_text = all(isinstance(each, tuple) for each in lists) and all(isinstance(text, str) for text in texts)
    if dataset.kind not in KINDS or not is_text:
        raise ValueError("the kind or a name is invalid")
    lengths = {"node": dataset.num_nodes, "edge": int(dataset.first_edge[-1]), "graph": len(dataset)}
    for name, (of, kinds, num_axes) in _FORMS.items():
        array = getattr(dataset, name)
        if array is None:
            continue
        is_known = array.dtype.isnative and array.dtype.kind in kinds and array.dtype not in (np.float16, np.float64)
        if not is_known or array.ndim != num_axes or len(array) != lengths[of] or 0 in array.shape[1:]:
            raise ValueError(f"{name} has a wrong type or shape")
    if any(texts and len(texts) != len(dataset) for texts in (dataset.graph_names, dataset.smiles)):
        raise ValueError("the numbers of graphs, names and SMILES differ")
    _check_edges(dataset)
    check_values(dataset)
    if dataset.kind in _OF_OGB:
        columns = tuple(each.shape[1] for each in (dataset.node_labels, dataset.edge_attr) if each is not None)
        if columns != _OF_OGB[dataset.kind]:
            raise ValueError("nodes or edges have the wrong number of columns")
    classes, num_classes = dataset.classes, len(dataset.class_names)
    if classes is not None and (classes.min() < -1 or classes.max() >= num_classes):
        raise ValueError("a class has no name")
    if len({*dataset.class_names}) < num_classes:
        raise ValueError("two classes have the same name")
    if (0 if dataset.targets is None else dataset.targets.shape[1]) != len(dataset.target_names):
        raise ValueError("the numbers of tasks and task names differ")
    # Every row of the source is a graph or a failure.
    rows = dataset.rows
    failed = np.array([failure.row for failure in dataset.failures], dtype=np.int64)
    if (np.diff(rows) <= 0).any() or (np.sort(np.append(rows, failed)) != np.arange(len(rows) + len(failed))).any():
        raise ValueError("rows are inconsistent")


def _check_edges(dataset: Dataset) -> None:
    """Check that ends are inside their graph, without loops and duplicates, sorted by target and then by source."""
    for nodes, edges in dataset.offset_chunks():
        source, target = (ends[edges[0] : edges[-1]] for ends in (dataset.source, dataset.target))
        size = np.repeat(np.diff(nodes).astype(np.uint32), np.diff(edges))
        if any((ends >= size).any() or (ends < 0).any() for ends in (source, target)):
            raise ValueError("an edge refers to a node outside its graph")
        if (source == target).any():
            raise ValueError("an edge is a loop")
        is_behind = (target[1:] > target[:-1]) | ((target[1:] == target[:-1]) & (source[1:] > source[:-1]))
        starts = edges[1:-1] - edges[0]
        is_behind[starts[(starts > 0) & (starts < len(source))] - 1] = True  # the order starts anew with each graph
        if not is_behind.all():
            raise ValueError("edges are not sorted")


def check_values(dataset: Dataset) -> None:
    """Raise ValueError for values that no reader gives: infinite numbers, codes of atoms and bonds out of range."""
    for name in ("node_attributes", "edge_attr", "targets"):
        values = getattr(dataset, name)
        if values is not None and values.dtype.kind == "f":
            is_wrong = np.isinf(values) if name == "targets" else ~np.isfinite(values)  # NaN is a missing target
            if is_wrong.any():
                raise ValueError(f"{name} contains {values[is_wrong][0]}")
    if dataset.kind != "molecules":
        return
    bounds = (
        (dataset.node_labels, (codes.NUM_ELEMENTS, codes.NUM_CHIRALITIES)),
        (dataset.edge_attr, (codes.NUM_BOND_TYPES, codes.NUM_BOND_DIRECTIONS)),
    )
    for table, bound in bounds:
        if table is None or table.dtype != np.uint8 or table.shape[1:] != (2,):
            raise ValueError("atoms or bonds are missing")
        if (table.max(axis=0, initial=0) >= bound).any():
            raise ValueError("codes of atoms or bonds are out of range")
