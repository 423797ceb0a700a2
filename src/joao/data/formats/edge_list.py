"""Tables of edges (``.csv``, ``.csv.gz``, ``.csv.xz``) with the columns of docs/data-formats.md, in any order.

Node names are any text, local to their graph. Edges are undirected and may be listed once or twice.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from joao.core.errors import UserError, short_repr
from joao.data.dataset import Dataset
from joao.data.formats.text import base_name, parse_integer, parse_number, table_rows
from joao.data.validation import make_dataset, to_global_edges

NEEDED = ("graph", "source", "target")


@dataclass(slots=True)
class _Graph:
    """A graph under construction; nodes are numbered in the order of their first occurrence."""

    nodes: dict[str, int] = field(default_factory=dict)
    edges: array[int] = field(default_factory=lambda: array("q"))  # source, target, source, target ...
    attributes: array[float] = field(default_factory=lambda: array("d"))
    label: str | None = None

    def node(self, name: str) -> int:
        return self.nodes.setdefault(name, len(self.nodes))


def read_edge_list(path: Path) -> Dataset:
    rows = table_rows(path)
    columns = _header(path, next(rows, (1, []))[1])
    extra = [name for name in columns if name not in (*NEEDED, "label")]
    graphs: dict[str, _Graph] = {}
    for line, cells in rows:
        if len(cells) != len(columns):
            raise UserError(f"{path}:{line}: {len(cells)} cells, expected {len(columns)} as in the header.")
        _add(graphs, dict(zip(columns, (cell.strip() for cell in cells), strict=True)), extra, f"{path}:{line}")
    values = list(graphs.values())
    sizes = np.array([len(graph.nodes) for graph in values], dtype=np.int64)
    attributes = [np.array(graph.attributes).reshape(-1, len(extra)) for graph in values] if extra else []
    return make_dataset(
        base_name(path),
        sizes,
        to_global_edges((graph.edges for graph in values), sizes),
        edge_attr=np.concatenate([np.zeros((0, len(extra))), *attributes]) if extra else None,
        graph_labels=_labels(values) if "label" in columns else None,
        graph_names=list(graphs),
        report_directed=False,
    )


def _header(path: Path, cells: list[str]) -> list[str]:
    columns = [" ".join(cell.split()) for cell in cells]
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        listed = ", ".join(columns)[:200] or "an empty file"
        raise UserError(f"{path}:1: no column '{missing[0]}'. Needed: {', '.join(NEEDED)}; found: {listed}.")
    count = Counter(columns)  # there may be a million
    repeated = next((name for name in columns if count[name] > 1), None)
    if repeated is not None:
        raise UserError(f"{path}:1: column '{repeated}' occurs twice.")
    return columns


def _add(graphs: dict[str, _Graph], row: dict[str, str], extra: list[str], place: str) -> None:
    for name in ("graph", "source"):
        if not row[name]:
            raise UserError(f"{place}: column '{name}' is empty.")
    graph = graphs.setdefault(row["graph"], _Graph())
    source = graph.node(row["source"])
    if row["target"]:
        graph.edges.extend((source, graph.node(row["target"])))
        graph.attributes.extend(_number(row[name], name, place) for name in extra)
    label = row.get("label", "")
    if label and graph.label not in (None, label):
        raise UserError(
            f"{place}: graph {short_repr(row['graph'])} has label {short_repr(label)} here "
            f"and {short_repr(graph.label)} above."
        )
    graph.label = label or graph.label


def _number(cell: str, column: str, place: str) -> float:
    number = parse_number(cell)
    if number is None or not math.isfinite(number):
        raise UserError(f"{place}: column '{column}': expected a number, got {short_repr(cell)}.")
    return number


def _labels(graphs: list[_Graph]) -> list[int | str | None]:
    """Labels as integers if all of them are integers, so that 10 sorts after 2."""
    texts = [graph.label for graph in graphs]
    numbers = [None if text is None else parse_integer(text) for text in texts]
    return [*texts] if numbers.count(None) > texts.count(None) else [*numbers]
