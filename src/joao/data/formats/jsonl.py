"""JSON lines: one JSON object per graph and line (``.jsonl``, ``.jsonl.gz``), with the keys of docs/data-formats.md.

Two graphs, the second with an isolated node::

    {"edges": [[0, 1], [1, 2]], "node_labels": ["C", "C", "O"], "label": 1}
    {"edges": [[0, 1]], "num_nodes": 3, "node_labels": ["C", "C", "N"], "label": 0}

Optional keys must be given for all graphs or for none.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError, short_repr, suggest, user_error_on_failure
from joao.core.files import parse_json
from joao.data.dataset import Array, Dataset
from joao.data.formats.text import base_name, file_budget, text_lines
from joao.data.molecules import ReadOptions
from joao.data.validation import check_isolated_nodes, make_dataset, parse_label, to_global_edges

_NODE_ROWS = ("node_labels", "node_attributes")
_KEYS = ("edges", "num_nodes", *_NODE_ROWS, "edge_attributes", "label")


def read_jsonl(path: Path, options: ReadOptions | None = None) -> Dataset:
    return _make(path, list(_lines(path)), options or ReadOptions())


def iterate_jsonl(path: Path, size: int, skip: int = 0) -> Iterator[Dataset]:
    """Read ``size`` graphs at a time after the first ``skip``."""
    lines = islice(_lines(path), skip, None)
    piece = list(islice(lines, size))
    while piece or not skip:  # an empty file raises an error
        yield _make(path, piece, ReadOptions())
        skip += len(piece)
        piece = list(islice(lines, size))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place (for messages) and text of every line that is not blank."""
    return ((f"{path}:{line}", text) for line, text in enumerate(text_lines(path), 1) if text.strip())


def _make(path: Path, lines: Sequence[tuple[str, str]], options: ReadOptions) -> Dataset:
    places = [place for place, _ in lines]
    graphs = []
    for number, (place, text) in enumerate(lines, 1):
        graphs.append(_check(_parse(text, place), place))
        options.count_rows(number, len(lines))
    sizes = np.array([graph["num_nodes"] for graph in graphs], dtype=np.int64)
    bare = [0 if graph.keys() & {*_NODE_ROWS} else graph["num_nodes"] - 2 * len(graph["edges"]) for graph in graphs]
    check_isolated_nodes(file_budget(path), np.array(bare, dtype=np.int64))
    return make_dataset(
        base_name(path),
        sizes,
        to_global_edges((graph["edges"] for graph in graphs), sizes),
        node_labels=_rows(graphs, places, "node_labels", _is_label),
        node_attributes=_rows(graphs, places, "node_attributes", _is_number),
        edge_attr=_rows(graphs, places, "edge_attributes", _is_number),
        graph_labels=[graph.get("label") for graph in graphs],
        report_directed=False,
    )


def _parse(text: str, place: str) -> dict[str, Any]:
    with user_error_on_failure(f"{place}: not valid JSON"):
        value = parse_json(text)
    if not isinstance(value, dict):
        raise UserError(f"{place}: expected an object with 'edges', got {short_repr(value)}.")
    return value


def _check(graph: dict[str, Any], place: str) -> dict[str, Any]:
    """Check everything but the cells of the rows, and add ``num_nodes``."""
    for key in graph:
        if key not in _KEYS:
            raise UserError(f"{place}: unknown key {short_repr(key)}. {suggest(key, _KEYS)}")
    if "edges" not in graph:
        raise UserError(f"{place}: no 'edges'. Use [] for a graph without edges.")
    for key in ("edges", *_NODE_ROWS, "edge_attributes"):
        if not isinstance(graph.get(key, []), list):
            raise UserError(f"{place}: '{key}' must be a list, got {_short_json(graph[key])}.")
    num_nodes = graph.get("num_nodes", next((len(graph[key]) for key in _NODE_ROWS if key in graph), None))
    if num_nodes is None:
        raise UserError(f"{place}: no 'num_nodes', and neither node labels nor attributes.")
    if not _is_integer(num_nodes) or num_nodes < 1:
        raise UserError(f"{place}: 'num_nodes' must be an integer from 1, got {_short_json(num_nodes)}.")
    for key in (*_NODE_ROWS, "edge_attributes"):
        expected, what = (len(graph["edges"]), "edges") if key == "edge_attributes" else (num_nodes, "nodes")
        if key in graph and len(graph[key]) != expected:
            raise UserError(f"{place}: {len(graph[key])} rows of '{key}', expected {expected} (number of {what}).")
    for edge in graph["edges"]:
        if not (isinstance(edge, list) and len(edge) == 2 and all(_is_integer(n) and 0 <= n < num_nodes for n in edge)):
            raise UserError(f"{place}: edge {_short_json(edge)}: expected two node numbers from 0 to {num_nodes - 1}.")
    if graph.get("label") is not None and parse_label(graph["label"]) is None:
        raise UserError(f"{place}: 'label' must be an integer or text, got {_short_json(graph['label'])}.")
    return {**graph, "num_nodes": num_nodes}


def _rows(graphs: list[dict[str, Any]], places: list[str], key: str, cell: Callable[[object], bool]) -> Array | None:
    """Concatenate the rows of all graphs, ``(rows, columns)``; None if no graph has the key."""
    having = [place for graph, place in zip(graphs, places, strict=True) if key in graph]
    if not having:
        return None
    collected: list[list[Any]] = []
    for graph, place in zip(graphs, places, strict=True):
        if key not in graph:
            if key == "edge_attributes" and not graph["edges"]:
                continue
            raise UserError(f"{place}: no '{key}', but {having[0]} has them. Give them for all graphs or for none.")
        for row in graph[key]:
            cells = row if isinstance(row, list) else [row]
            if not cells or not all(cell(value) for value in cells):
                raise UserError(f"{place}: '{key}': expected {_EXPECTED[cell]}, got {_short_json(row)}.")
            width = len((collected or [cells])[0])
            if len(cells) != width:
                raise UserError(f"{place}: '{key}': {_short_json(row)} has {len(cells)} columns, expected {width}.")
            if cell is _is_label and {*map(type, cells)} != {type((collected or [cells])[0][0])}:
                raise UserError(f"{place}: '{key}': {_short_json(row)} mixes numbers and text.")
            collected.append(cells)
    if not collected:
        return None
    is_text = isinstance(collected[0][0], str)
    return np.array(collected, dtype=object if is_text else np.int64 if cell is _is_label else np.float64)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_label(value: object) -> bool:
    return isinstance(value, str) or (_is_integer(value) and parse_label(value) is not None)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (_is_integer(value) and parse_label(value) is not None)


_EXPECTED: dict[Callable[[object], bool], str] = {
    _is_label: "an integer or text",
    _is_number: "a list of numbers (text belongs in 'node_labels')",
}


def _short_json(value: object) -> str:
    return json.dumps(value)[:40]
