"""What OGB's files say beside the graphs: the official split, and the words that ogbg-code2 asks for.

Reads data sets of graphs as the Open Graph Benchmark distributes them: a folder, or a zip file with one.

================================ ==================================================================================
``raw/num-node-list.csv.gz``     nodes of each graph
``raw/num-edge-list.csv.gz``     lines of ``edge`` that each graph has
``raw/edge.csv.gz``              ``source,target``, numbers inside their graph, each edge once
``raw/node-feat.csv.gz``         numbers of each node; ogbg-ppa has none
``raw/edge-feat.csv.gz``         numbers of each line of ``edge``; ogbg-code2 has none
``raw/node_depth.csv.gz``        of ogbg-code2, with ``node_is_attributed`` and ``node_dfs_order``
``raw/graph-label.csv.gz``       a class (ogbg-ppa), tasks with gaps (ogbg-mol*), words (ogbg-code2)
``split/NAME/train.csv.gz``      numbers of graphs, likewise ``valid`` and ``test``: :mod:`joao.data.formats.ogb`
``mapping/mol.csv.gz``           of ogbg-mol*, names of the tasks and SMILES
================================ ==================================================================================

A data set whose nodes have nine numbers is one of molecules (kind ``ogb_molecules``), one whose nodes have a depth one
of ``syntax_trees``, see :mod:`joao.core.codes`. All others are plain graphs whose edges have attributes.

Files are read side by side, some graphs at a time, so that memory holds the result and a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES, OGB_TREE_COLUMNS
from joao.core.errors import UserError, short_repr
from joao.data.dataset import Dataset, sizes_to_offsets
from joao.data.formats.ogb_files import SIZES, OgbFiles, Rows, open_ogb
from joao.data.validation import check_isolated_nodes, make_dataset

# OGB's words for the parts.
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class OfficialSplit:
    """Numbers of graphs to learn from, to choose the epoch with, and to test on.

    Attributes:
        name: what it is by: ``scaffold``, ``species`` or ``project``.
    """

    name: str
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def official_split(path: Path, num_graphs: int) -> OfficialSplit:
    """The split of the data set in the folder or zip file ``path``; no graph is in two parts."""
    with open_ogb(path) as files:
        names = sorted(
            {PurePosixPath(file).parts[1] for file in files.members if file.startswith("split/")} - {*_PARTS}
        )
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise UserError(f"{path}: expected one split, split/NAME/train.csv.gz and so on, found {found}.")
        parts = [files.numbers(f"split/{names[0]}/{part}") for part in _PARTS]
    for part, graphs in zip(_PARTS, parts, strict=True):
        if not len(graphs):
            raise UserError(f"{path}: the part '{part}' of its split is empty.")
    everything = np.concatenate(parts)
    if everything.min() < 0 or everything.max() >= num_graphs:
        outside = everything[(everything < 0) | (everything >= num_graphs)][0]
        raise UserError(f"{path}: its split has graph {outside}; there are graphs 0 to {num_graphs - 1}.")
    if len(np.unique(everything)) != len(everything):
        values, counts = np.unique(everything, return_counts=True)
        raise UserError(f"{path}: graph {values[np.argmax(counts)]} is in its split more than once.")
    return OfficialSplit(names[0], *parts)


def read_words(path: Path, num_graphs: int) -> list[list[str]]:
    """The words of each graph's name, in order: ``get name`` is two."""
    file = "raw/graph-label"
    with open_ogb(path) as files, files.stream(file) as stream:
        lines = stream.read().splitlines()  # words of 450,000 names are 8 MB
        if len(lines) != num_graphs:
            raise UserError(f"{files.place(file)} has {len(lines)} lines for {num_graphs} graphs.")
        return [_words(files, file, number, line) for number, line in enumerate(lines, 1)]


def _words(files: OgbFiles, file: str, number: int, line: bytes) -> list[str]:
    try:
        return line.decode("utf-8").strip().strip('"').split()
    except UnicodeDecodeError as error:
        raise UserError(f"{files.place(file)} line {number}: not text in UTF-8.") from error


_AT_ONCE = 1 << 17  # nodes and edges
_SYNTAX = ("raw/node_depth", "raw/node_is_attributed", "raw/node_dfs_order")

Indices = NDArray[np.int64]


def read_ogb(path: Path) -> Dataset:
    """Reads the one data set in the folder or zip file ``path``; its split and words are not part of it."""
    with open_ogb(path) as files:
        form = _form(files)
        num_nodes, num_edges = files.numbers(SIZES), files.numbers("raw/num-edge-list")
        _check_sizes(files, num_nodes, num_edges)
        if not form.node_columns:
            check_isolated_nodes(str(files.path), (num_nodes - 2 * num_edges).tolist())
        first_node, num_found = sizes_to_offsets(num_nodes), 0
        arrays = _room_for(files, form, num_nodes, num_edges)
        edges_per_graph = []
        for graphs, ends, labels, attr in _parts(files, form, num_nodes, num_edges):
            part = make_dataset(files.name, num_nodes[graphs], ends, node_labels=labels, edge_attr=attr)
            nodes = slice(first_node[graphs.start], first_node[graphs.stop])
            edges = slice(num_found, num_found + len(part.source))
            for name, array in arrays.items():
                array[nodes if name == "node_labels" else edges] = getattr(part, name)
            edges_per_graph.append(np.diff(part.first_edge))
            num_found = edges.stop
        classes, class_names = _classes(files, form, len(num_nodes))
        targets, target_names, smiles = _tasks(files, form, len(num_nodes))
        return Dataset(
            name=files.name,
            first_node=first_node,
            first_edge=sizes_to_offsets(np.concatenate(edges_per_graph)),
            **{name: array if name == "node_labels" else array[:num_found] for name, array in arrays.items()},
            classes=classes,
            class_names=class_names,
            targets=targets,
            target_names=target_names,
            kind=form.kind,
            smiles=smiles,
        )


@dataclass(frozen=True)
class _Form:
    """What a kind of data set has: columns of nodes and edges in memory, and their types."""

    kind: str
    node_columns: int
    node_type: type[np.generic]
    edge_columns: int
    edge_type: type[np.generic]


def _form(files: OgbFiles) -> _Form:
    if any(file in files for file in _SYNTAX):
        return _Form("syntax_trees", OGB_TREE_COLUMNS, np.int32, 1, np.uint8)
    if "raw/node-feat" in files:
        return _Form("ogb_molecules", len(OGB_ATOM_SIZES), np.uint8, len(OGB_BOND_SIZES), np.uint8)
    if "raw/edge-feat" not in files:
        return _Form("graphs", 0, np.uint8, 0, np.float32)
    with files.rows("raw/edge-feat", np.float64, None) as rows:
        return _Form("graphs", 0, np.uint8, rows.columns, np.float32)


def _check_sizes(files: OgbFiles, num_nodes: Indices, num_edges: Indices) -> None:
    if len(num_nodes) != len(num_edges) or not len(num_nodes):
        raise UserError(f"{files.path}: {len(num_nodes)} numbers of nodes and {len(num_edges)} numbers of edges.")
    for what, sizes, least in (("nodes", num_nodes, 1), ("edges", num_edges, 0)):
        if sizes.min() < least or sizes.max() >= 1 << 31:
            graph = int(np.argmax((sizes < least) | (sizes >= 1 << 31)))
            raise UserError(f"{files.path}: graph {graph} has {sizes[graph]} {what}.")


def _room_for(files: OgbFiles, form: _Form, num_nodes: Indices, num_edges: Indices) -> dict[str, Any]:
    """Arrays of the data set in the making, with room for both directions of all edges."""
    most, nodes = 2 * int(num_edges.sum()), int(num_nodes.sum())
    narrow = np.int16 if num_nodes.max() < 1 << 15 else np.int32
    try:
        arrays: dict[str, Any] = {"source": np.empty(most, narrow), "target": np.empty(most, narrow)}
        if form.node_columns:
            arrays["node_labels"] = np.empty((nodes, form.node_columns), form.node_type)
        if form.edge_columns:
            arrays["edge_attr"] = np.empty((most, form.edge_columns), form.edge_type)
    except (MemoryError, ValueError) as error:
        raise UserError(f"{files.path}: {nodes} nodes and {most // 2} edges are more than memory holds.") from error
    return arrays


def _parts(files: OgbFiles, form: _Form, num_nodes: Indices, num_edges: Indices) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Graphs, edges, nodes and edge attributes, as :func:`make_dataset` takes them, some graphs at a time."""
    with ExitStack() as stack:

        def rows(file: str, dtype: type[np.generic], columns: int) -> Rows:
            return stack.enter_context(files.rows(file, dtype, columns))

        edge = rows("raw/edge", np.int64, 2)
        is_syntax, is_molecule = form.kind == "syntax_trees", form.kind == "ogb_molecules"
        node = [rows("raw/node-feat", np.int64, 2 if is_syntax else form.node_columns)] if form.node_columns else []
        node += [rows(file, np.int64, 1) for file in _SYNTAX] if is_syntax else []
        number: type[np.generic] = np.int64 if is_molecule else np.float64
        attr = [rows("raw/edge-feat", number, form.edge_columns)] if form.edge_columns and not is_syntax else []
        for graphs in _groups(num_nodes + num_edges):
            nodes = [each.take(int(num_nodes[graphs].sum())) for each in node]
            ends = _ends(edge, num_nodes[graphs], num_edges[graphs])
            numbers = [each.take(len(ends)) for each in attr]
            if is_syntax:
                yield graphs, *_syntax(node, nodes, ends)
                continue
            for read, values in zip([*node, *attr], [*nodes, *numbers], strict=True):
                _check_values(read, values, is_molecule)
            yield graphs, (ends[:, 0], ends[:, 1]), nodes[0] if nodes else None, numbers[0] if numbers else None
        for each in (edge, *node, *attr):
            each.finish()


def _groups(sizes: Indices) -> Iterator[slice]:
    """Successive graphs, of about :data:`_AT_ONCE` nodes and edges and one at least."""
    group = (np.cumsum(sizes) - sizes) // _AT_ONCE
    first = np.flatnonzero(np.diff(group, prepend=-1))
    for start, stop in zip(first, [*first[1:], len(sizes)], strict=True):
        yield slice(int(start), int(stop))


def _ends(rows: Rows, num_nodes: Indices, num_edges: Indices) -> Indices:
    """``(e, 2)`` ends of the next edges, as numbers through all these graphs."""
    before = rows.taken
    ends: Indices = rows.take(int(num_edges.sum()))
    size = np.repeat(num_nodes, num_edges)[:, None]
    outside = ((ends < 0) | (ends >= size)).any(axis=1)
    if outside.any():
        line = int(np.argmax(outside))
        raise UserError(
            f"{rows.place} line {before + line + 1}: joins nodes {ends[line, 0]} and {ends[line, 1]} of a graph with "
            f"{size[line, 0]} nodes, counted from 0."
        )
    return ends + np.repeat(sizes_to_offsets(num_nodes)[:-1], num_edges)[:, None]


def _syntax(rows: list[Rows], nodes: list[Any], ends: Indices) -> tuple[Any, Any, Any]:
    """Edges in both directions, the four numbers of nodes, and which way each edge goes."""
    codes, depth, is_attributed, order = nodes
    for read, values in zip(rows, nodes, strict=True):
        if values.size and not (values.min() >= 0 and values.max() < 1 << 31):
            raise UserError(f"{read.place} has {values.min()} to {values.max()}; 0 to {2**31 - 1} are possible.")
    labels = np.concatenate([codes, depth, np.where(is_attributed == 1, order, -1)], axis=1)
    source, target = ends.T
    is_upwards = np.repeat([0, 1], len(ends))[:, None]
    return (np.concatenate([source, target]), np.concatenate([target, source])), labels, is_upwards


def _check_values(rows: Rows, values: Any, is_code: bool) -> None:
    wrong = (values < 0) | (values >= 256) if is_code else ~np.isfinite(values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        line = rows.taken - len(values) + row + 1
        what = "number of a category, 0 to 255" if is_code else "finite number"
        raise UserError(f"{rows.place} line {line}: {values[row, column]} is no {what}.")


def _classes(files: OgbFiles, form: _Form, num_graphs: int) -> tuple[Indices | None, tuple[str, ...]]:
    """Of plain graphs."""
    if form.kind != "graphs" or "raw/graph-label" not in files:
        return None, ()
    labels = files.numbers("raw/graph-label")
    if len(labels) != num_graphs:
        raise UserError(f"{files.place('raw/graph-label')} has {len(labels)} lines for {num_graphs} graphs.")
    values, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int64), tuple(map(str, values.tolist()))


def _tasks(
    files: OgbFiles, form: _Form, num_graphs: int
) -> tuple[NDArray[np.float32] | None, tuple[str, ...], tuple[str, ...]]:
    """Labels of molecules with gaps, names of the tasks, and SMILES."""
    if form.kind != "ogb_molecules":
        return None, (), ()
    names, smiles = _mapping(files, num_graphs)
    if "raw/graph-label" not in files:
        return None, (), smiles
    place, rows = files.place("raw/graph-label"), []
    for line, cells in files.cells("raw/graph-label"):
        rows.append(np.array([_label(cell, place, line) for cell in cells or [""]], dtype=np.float32))
        if len(rows[-1]) != len(rows[0]):
            raise UserError(f"{place} line {line}: {len(rows[-1])} labels where {len(rows[0])} are expected.")
    if len(rows) != num_graphs:
        raise UserError(f"{place} has {len(rows)} lines for {num_graphs} graphs.")
    targets = np.stack(rows)
    fits = len(names) == targets.shape[1]
    return targets, names if fits else tuple(f"task_{task}" for task in range(targets.shape[1])), smiles


def _label(cell: str, place: str, line: int) -> float:
    try:
        return float(cell) if cell.strip() else np.nan
    except ValueError as error:
        raise UserError(f"{place} line {line}: {short_repr(cell)} is not a number.") from error


def _mapping(files: OgbFiles, num_graphs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of tasks and SMILES; none where the table is not there."""
    if "mapping/mol" not in files:
        return (), ()
    (_, header), *rows = [*files.cells("mapping/mol")] or [(1, [])]
    column = header.index("smiles") if "smiles" in header else -1
    if column < 0 or len(rows) != num_graphs or any(len(cells) <= column for _, cells in rows):
        raise UserError(f"{files.place('mapping/mol')} has no column 'smiles' with a row for each graph.")
    return tuple(header[:column]), tuple(cells[column] for _, cells in rows)
