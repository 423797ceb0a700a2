"""networkx graphs and GraphML files (``.graphml``, or a folder of them in the order of their names).

docs/data-formats.md lists the attributes that are read.

>>> import networkx
>>> path = networkx.path_graph(3)
>>> networkx.set_node_attributes(path, {0: "C", 1: "O", 2: "C"}, "label")
>>> from_networkx([path], "paths").node_labels.ravel().tolist()
['C', 'O', 'C']
"""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError, ParserCreate

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, join_names, quantity, short_repr
from joao.core.files import open_regular
from joao.data.dataset import Array, Dataset
from joao.data.molecules import ReadOptions
from joao.data.validation import make_dataset, parse_label

MAX_TAG_BYTES = 1 << 22  # bytes
_CHUNK_BYTES = 1 << 18
# Errors raised while reading a damaged file, in addition to those of networkx.
_UNREADABLE = (ExpatError, ParseError, ValueError, LookupError, TypeError, AttributeError)
_Row = tuple[str, dict[Any, Any]]  # node or edge for messages, and its attributes


def from_networkx(
    graphs: Sequence[Any], name: str, places: Sequence[str] = (), options: ReadOptions | None = None
) -> Dataset:
    """Convert networkx graphs; messages call the third one ``name[2]``, or ``places[2]`` if given."""
    places = places or [f"{name}[{index}]" for index in range(len(graphs))]
    options = options or ReadOptions()
    label = options.node_label or "label"
    nodes: list[_Row] = []
    edge_rows: list[_Row] = []
    edges: list[tuple[int, int]] = []
    for number, (graph, place) in enumerate(zip(graphs, places, strict=True), 1):
        options.count_rows(number, len(graphs))
        numbers = {node: len(nodes) + position for position, node in enumerate(graph.nodes)}
        nodes += [(f"{place}: node {node!r}", data) for node, data in graph.nodes(data=True)]
        for source, target, data in graph.edges(data=True):
            row = (f"{place}: edge ({source!r}, {target!r})", data)
            directions = [(numbers[source], numbers[target]), (numbers[target], numbers[source])]
            edges += directions[:1] if graph.is_directed() else directions
            edge_rows += [row] if graph.is_directed() else [row, row]
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    notices: list[str] = []
    return make_dataset(
        name,
        np.array([len(graph) for graph in graphs], dtype=np.int64),
        (ends[:, 0], ends[:, 1]),
        node_labels=_node_labels(nodes, label, is_required=bool(options.node_label)),
        node_attributes=_attributes(nodes, name, "node", notices, skip=label),
        edge_attr=_attributes(edge_rows, name, "edge", notices),
        graph_labels=[_class(graph, place) for graph, place in zip(graphs, places, strict=True)],
        notices=notices,
    )


def is_graphml(folder: Path) -> bool:
    """Whether a folder contains GraphML files."""
    return any(folder.glob("*.graphml"))


def read_graphml(path: Path, options: ReadOptions | None = None) -> Dataset:
    """Read a GraphML file, or all GraphML files of a folder."""
    files = sorted(path.glob("*.graphml")) if path.is_dir() else [path]
    graphs = [(graph, str(file)) for file in files for graph in _graphml(file)]
    if not graphs:
        raise UserError(f"{path}: contains no graphs.")
    dataset = from_networkx([graph for graph, _ in graphs], path.stem, [file for _, file in graphs], options)
    names = tuple(Path(file).stem for _, file in graphs)
    return replace(dataset, graph_names=names) if len(set(names)) == len(names) else dataset


def _graphml(path: Path) -> list[Any]:
    """Read one file, and apply its default values to nodes and edges."""
    import networkx
    from networkx.readwrite.graphml import GraphMLReader

    try:
        _check_markup(path)
        with open_regular(path) as stream:
            graphs = list(GraphMLReader(node_type=str)(path=stream))
            stream.seek(0)
            graphs = graphs or [networkx.read_graphml(stream)]  # also tries without the namespace
    except (OSError, networkx.NetworkXException, *_UNREADABLE) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read as GraphML ({reason}).") from error
    for graph in graphs:
        for what, rows in (("node_default", graph.nodes(data=True)), ("edge_default", graph.edges(data=True))):
            for *_, data in rows:
                data.update({**graph.graph.get(what, {}), **data})
    return graphs


def _check_markup(path: Path) -> None:
    """Refuse XML entities, which can expand to gigabytes, and huge tags, which the parser reads again and again."""

    def refuse(*_: object) -> None:
        raise UserError(f"{path}: XML entities are not allowed. Replace them by their text.")

    parser = ParserCreate()
    parser.EntityDeclHandler = refuse
    with open_regular(path) as stream:
        while piece := stream.read(_CHUNK_BYTES):
            parser.Parse(piece)
            if stream.tell() - parser.CurrentByteIndex > MAX_TAG_BYTES + _CHUNK_BYTES:
                raise UserError(f"{path}: contains a tag longer than {MAX_TAG_BYTES >> 20} MB.")
        parser.Parse(b"", True)


def _node_labels(nodes: list[_Row], key: str, is_required: bool) -> Array | None:
    """The attribute ``key`` of all nodes; None if no node has it and it is not required."""
    if not is_required and not any(key in data for _, data in nodes):
        return None
    labels: list[int | str] = []
    for place, data in nodes:
        if key not in data:
            raise UserError(f"{place} has no {short_repr(key)}, the node label. Label all nodes or none.")
        label = parse_label(data[key])
        if label is None:
            raise UserError(f"{place}: {short_repr(key)} must be an integer or text, got {short_repr(data[key])}.")
        if labels and type(label) is not type(labels[0]):
            raise UserError(f"{place}: label {label!r} and the earlier label {labels[0]!r} have different types.")
        labels.append(label)
    return np.array(labels, dtype=object if isinstance(labels[0], str) else np.int64)


def _attributes(
    rows: list[_Row], name: str, what: str, notices: list[str], skip: str | None = None
) -> NDArray[np.float64] | None:
    """Return ``(rows, columns)`` of all attributes that are numeric in any row; they must be so in every row."""
    names = {key for _, data in rows for key in data if key != skip}
    numeric = {key for _, data in rows for key, value in data.items() if key != skip and _vector(value, key)}
    left_out = " ".join(join_names(sorted(str(key) for key in names - numeric), 20).split())
    if names - numeric:
        notices.append(f"{name}: {what} attributes that are not numbers are ignored: {left_out}.{_offer(rows, skip)}")
    if not numeric:
        return None
    columns = [_column(rows, key, what) for key in sorted(numeric, key=str)]
    return np.concatenate(columns, axis=1)


def _offer(rows: list[_Row], label: str | None) -> str:
    """How to use a text attribute of nodes without ``label`` as label: the one with the fewest values, if they repeat.

    ``label`` is None for edges.
    """
    values: dict[str, set[str]] = {}
    if label is not None and not any(label in data for _, data in rows):
        for _, data in rows:
            for key, value in data.items():
                if isinstance(value, str):
                    values.setdefault(str(key), set()).add(value)
    best = min(values, key=lambda key: len(values[key]), default="")
    if not best or len(values[best]) == len(rows):
        return ""
    use = f"Use {short_repr(best)} ({quantity(len(values[best]), 'values')}) as node label"
    return f" {use}: joao.read(..., node_label={short_repr(best)}), or joao pack with --node-label."


def _column(rows: list[_Row], key: str, what: str) -> NDArray[np.float64]:
    vectors: list[list[float]] = []
    for place, data in rows:
        if key not in data:
            raise UserError(f"{place} has no {short_repr(key)}, but other {what}s have it. Set it on all or none.")
        vector = _vector(data[key], key)
        if not vector:
            raise UserError(f"{place}: {short_repr(key)} must be a number, got {short_repr(data[key])}.")
        if vectors and len(vector) != len(vectors[0]):
            raise UserError(f"{place}: {short_repr(key)} has {len(vector)} numbers, expected {len(vectors[0])}.")
        vectors.append(vector)
    return np.array(vectors, dtype=np.float64)


def _vector(value: object, key: object) -> list[float]:
    """The number, or the numbers of ``x``; empty for anything else."""
    if isinstance(value, Real | np.bool_):
        return [_float(value)]
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    if key == "x" and isinstance(listed, list | tuple) and all(isinstance(item, Real) for item in listed):
        return [_float(item) for item in listed]
    return []


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _class(graph: Any, place: str) -> int | str | None:
    value = graph.graph.get("y", graph.graph.get("label"))
    if value is None:
        return None
    label = parse_label(value)
    if label is None:
        raise UserError(f"{place}: the label of the graph must be an integer or text, got {short_repr(value)}.")
    return label
