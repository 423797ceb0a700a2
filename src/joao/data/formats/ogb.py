"""Data sets as distributed by the Open Graph Benchmark (OGB): a folder, or a zip file with one.

================================ ==================================================================================
``raw/num-node-list.csv.gz``     number of nodes of each graph
``raw/num-edge-list.csv.gz``     number of lines of ``edge`` of each graph
``raw/edge.csv.gz``              ``source,target``: node numbers inside their graph, each edge once
``raw/node-feat.csv.gz``         node features; not in ogbg-ppa
``raw/edge-feat.csv.gz``         features of each line of ``edge``; not in ogbg-code2
``raw/node_depth.csv.gz``        in ogbg-code2, with ``node_is_attributed`` and ``node_dfs_order``
``raw/graph-label.csv.gz``       a class (ogbg-ppa), tasks with missing values (ogbg-mol*), words (ogbg-code2)
``split/NAME/train.csv.gz``      graph numbers of the official split, also ``valid`` and ``test``
``mapping/mol.csv.gz``           in ogbg-mol*, task names and SMILES
================================ ==================================================================================

Nodes with nine features are atoms (kind ``ogb_molecules``), nodes with a depth belong to ``syntax_trees``, see
:mod:`joao.core.codes`. All other data sets are plain graphs with edge attributes.

Files are read in parallel, a few graphs at a time, so that memory holds the result and a few megabytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES, OGB_TREE_COLUMNS
from joao.core.errors import UserError, join_names, short_repr
from joao.data.dataset import Dataset, sizes_to_offsets
from joao.data.formats.text import (
    READ_ERRORS,
    Member,
    folder_members,
    names_in_zip,
    number_chunks,
    open_zip,
    parse_number,
    unpack,
)
from joao.data.validation import check_isolated_nodes, make_dataset

_SUFFIX = ".csv.gz"
_NODE_COUNTS = "raw/num-node-list"
_EDGE_COUNTS = "raw/num-edge-list"
LABELS = "raw/graph-label"
_SYNTAX = ("raw/node_depth", "raw/node_is_attributed", "raw/node_dfs_order")
_PARTS = ("train", "valid", "test")
_ITEMS_PER_CHUNK = 1 << 17  # nodes and edges

Indices = NDArray[np.int64]

# Names of OGB's archives whose data sets OGB's package renames.
_DOWNLOADS = {
    "ogbg_ppi_medium": "ogbg-ppa",
    "code": "ogbg-code",
    "code2": "ogbg-code2",
    "lipophilicity": "ogbg-mollipo",
    **{name: f"ogbg-mol{name}" for name in ("bace", "bbbp", "chembl", "clintox", "esol", "freesolv", "hiv", "muv")},
    **{name: f"ogbg-mol{name}" for name in ("pcba", "sider", "tox21", "toxcast")},
}


def archive_stems(name: str) -> list[str]:
    """Possible names of the folder or archive of a data set, without a suffix.

    >>> archive_stems("ogbg-ppa")
    ['ogbg_ppa', 'ogbg_ppi_medium']
    """
    return [name.replace("-", "_"), *(stem for stem, other in _DOWNLOADS.items() if other == name)]


def _name_from_stem(stem: str) -> str:
    return _DOWNLOADS.get(stem, stem.replace("_", "-", 1) if stem.startswith("ogbg_") else stem)


@dataclass(frozen=True)
class OgbFiles:
    """The files of a data set, by their names without ``.csv.gz``, such as ``raw/edge``."""

    path: Path
    name: str
    members: Mapping[str, Member]

    def __contains__(self, file: str) -> bool:
        return file in self.members

    def place(self, file: str) -> str:
        return f"{self.path}: {file}{_SUFFIX}"

    @contextmanager
    def stream(self, file: str) -> Iterator[IO[bytes]]:
        """Open a file for reading; raises an error if it is missing."""
        if file not in self.members:
            raise UserError(f"{self.path}: file {file}{_SUFFIX} is missing.")
        try:
            with unpack(self.members[file].open(), self.members[file].budget) as text:
                yield text
        except READ_ERRORS as error:
            raise UserError(f"{self.place(file)} cannot be read ({error}). Copy it again.") from error

    @contextmanager
    def rows(self, file: str, dtype: DTypeLike, columns: int | None) -> Iterator[Rows]:
        """Open a file of numbers; raises an error if it is missing."""
        with self.stream(file) as stream:
            yield Rows(self.place(file), number_chunks(stream, self.place(file), dtype, columns))

    def numbers(self, file: str) -> NDArray[np.int64]:
        """Read a file with one integer per line, ``(n,)``."""
        with self.stream(file) as stream:
            parts = [part[:, 0] for part in number_chunks(stream, self.place(file), np.int64, columns=1)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def cells(self, file: str) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each line of a CSV file; a blank line has no cells."""
        with self.stream(file) as stream:
            reader = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""), strict=True)
            try:
                for cells in reader:
                    yield reader.line_num, cells
            except (csv.Error, UnicodeDecodeError) as error:
                raise UserError(f"{self.place(file)} line {reader.line_num + 1}: not valid CSV ({error}).") from error

    def check_labels(self, labels: Sized, num_graphs: int) -> None:
        if len(labels) != num_graphs:
            count = f"more than {num_graphs}" if len(labels) > num_graphs else len(labels)
            raise UserError(f"{self.place(LABELS)} has {count} lines for {num_graphs} graphs.")


class Rows:
    """Rows of numbers, read in order."""

    def __init__(self, place: str, chunks: Iterator[NDArray[Any]]) -> None:
        self.place, self.chunks = place, chunks
        self.rest = next(chunks, np.zeros((0, 1)))
        self.columns: int = self.rest.shape[1]
        self.taken = 0

    def take(self, number: int) -> NDArray[Any]:
        parts, count = [self.rest[:number]], min(number, len(self.rest))
        self.rest = self.rest[count:]
        while count < number:
            chunk = next(self.chunks, None)
            if chunk is None:
                raise UserError(f"{self.place} has {self.taken + count} lines, too few for the graphs.")
            parts.append(chunk[: number - count])
            self.rest = chunk[number - count :]
            count += len(parts[-1])
        self.taken += number
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def finish(self) -> None:
        """Raise an error if rows are left over."""
        if len(self.rest) or next(self.chunks, None) is not None:
            raise UserError(f"{self.place} has more than {self.taken} lines, too many for the graphs.")


def is_ogb(path: Path) -> bool:
    """Whether a folder or zip file is an OGB data set."""
    if path.is_dir():
        return (path / f"{_NODE_COUNTS}{_SUFFIX}").is_file()
    return any(map(_is_node_counts, names_in_zip(path)))


def _is_node_counts(name: str) -> bool:
    return PurePosixPath(name).match(f"{_NODE_COUNTS}{_SUFFIX}")


def dataset_name(path: Path) -> str:
    """OGB's name of the data set in a folder or zip file."""
    try:
        with open_ogb(path) as files:
            return files.name
    except UserError:  # reported when it is read
        return _name_from_stem(path.stem if path.suffix == ".zip" else path.name)


@contextmanager
def open_ogb(path: Path) -> Iterator[OgbFiles]:
    """Open the one data set in a folder or zip file."""
    if path.is_dir():
        files = folder_members(path, path.glob(f"*/**/*{_SUFFIX}"))
        by_name = {name.removesuffix(_SUFFIX): member for name, member in files.items()}
        yield OgbFiles(path, _name_from_stem(path.name), by_name)
        return
    with open_zip(path) as members:
        markers = [name for name in members if _is_node_counts(name) and "__MACOSX" not in name]
        if len(markers) != 1:
            raise UserError(f"{path}: expected one file {_NODE_COUNTS}{_SUFFIX}, found {len(markers)}.")
        root = markers[0].removesuffix(f"{_NODE_COUNTS}{_SUFFIX}")
        inner = {
            name.removeprefix(root).removesuffix(_SUFFIX): member
            for name, member in members.items()
            if name.startswith(root) and name.endswith(_SUFFIX)
        }
        inside = PurePosixPath(root).name
        known = path.stem if path.stem in _DOWNLOADS or path.stem.startswith("ogbg") else inside or path.stem
        yield OgbFiles(path, _name_from_stem(known), inner)


@dataclass(frozen=True, eq=False)
class OfficialSplit:
    """Graph numbers of the three parts of a split by ``scaffold``, ``species`` or ``project`` (its name)."""

    name: str
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def official_split(path: Path, num_graphs: int) -> OfficialSplit:
    """Read the official split of the data set in the folder or zip file ``path``."""
    with open_ogb(path) as files:
        names = {PurePosixPath(file).parts[1] for file in files.members if file.startswith("split/")} - {*_PARTS}
        if len(names) != 1:
            listed = join_names(sorted(names)) or "none"
            raise UserError(f"{path}: expected one split (split/NAME/train.csv.gz and so on), found {listed}.")
        name = names.pop()
        parts = [files.numbers(f"split/{name}/{part}") for part in _PARTS]
    for part, graphs in zip(_PARTS, parts, strict=True):
        if not len(graphs):
            raise UserError(f"{path}: part '{part}' of the split is empty.")
    all_graphs = np.concatenate(parts)
    if all_graphs.min() < 0 or all_graphs.max() >= num_graphs:
        outside = all_graphs[(all_graphs < 0) | (all_graphs >= num_graphs)][0]
        raise UserError(f"{path}: the split contains graph {outside}, expected 0 to {num_graphs - 1}.")
    values, counts = np.unique(all_graphs, return_counts=True)
    if counts.max() > 1:
        raise UserError(f"{path}: graph {values[np.argmax(counts)]} occurs more than once in the split.")
    return OfficialSplit(name, *parts)


def read_ogb(path: Path) -> Dataset:
    """Read the data set in the folder or zip file ``path``, without its split and words."""
    with open_ogb(path) as files:
        form = _form(files)
        num_nodes, num_edges = files.numbers(_NODE_COUNTS), files.numbers(_EDGE_COUNTS)
        _check_sizes(files, num_nodes, num_edges)
        if not form.node_columns:
            check_isolated_nodes(files.members[_NODE_COUNTS].budget, num_nodes - 2 * num_edges)
        first_node, num_found = sizes_to_offsets(num_nodes), 0
        arrays = _allocate(files, form, num_nodes, num_edges)
        edges_per_graph = []
        for graphs, ends, labels, attr in _parts(files, form, num_nodes, num_edges):
            part = make_dataset(files.name, num_nodes[graphs], ends, node_labels=labels, edge_attr=attr)
            nodes = slice(first_node[graphs.start], first_node[graphs.stop])
            edges = slice(num_found, num_found + len(part.source))
            for name, array in arrays.items():
                array[nodes if name == "node_labels" else edges] = getattr(part, name)
            edges_per_graph.append(np.diff(part.first_edge))
            num_found = edges.stop
        return Dataset(
            name=files.name,
            first_node=first_node,
            first_edge=sizes_to_offsets(np.concatenate(edges_per_graph)),
            **{name: array if name == "node_labels" else array[:num_found] for name, array in arrays.items()},
            kind=form.kind,
            **_labels(files, form.kind, len(num_nodes)),
        )


class _Form(NamedTuple):
    """Columns of nodes and edges and their types in memory."""

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
        raise UserError(f"{files.path}: {len(num_nodes)} node counts and {len(num_edges)} edge counts.")
    for what, sizes, least in (("nodes", num_nodes, 1), ("edges", num_edges, 0)):
        if sizes.min() < least or sizes.max() >= 1 << 31:
            graph = int(np.argmax((sizes < least) | (sizes >= 1 << 31)))
            raise UserError(f"{files.path}: graph {graph} has {sizes[graph]} {what}.")


def _allocate(files: OgbFiles, form: _Form, num_nodes: Indices, num_edges: Indices) -> dict[str, Any]:
    """Allocate the arrays of the data set, for both directions of all edges."""
    most, nodes = 2 * int(num_edges.sum()), int(num_nodes.sum())
    narrow = np.int16 if num_nodes.max() < 1 << 15 else np.int32
    node_bytes = form.node_columns * np.dtype(form.node_type).itemsize
    edge_bytes = 2 * np.dtype(narrow).itemsize + form.edge_columns * np.dtype(form.edge_type).itemsize
    what = f"{nodes} nodes and {most // 2} edges"
    files.members[_NODE_COUNTS].budget.take(nodes * node_bytes + most * edge_bytes, what)
    arrays: dict[str, Any] = {"source": np.empty(most, narrow), "target": np.empty(most, narrow)}
    if form.node_columns:
        arrays["node_labels"] = np.empty((nodes, form.node_columns), form.node_type)
    if form.edge_columns:
        arrays["edge_attr"] = np.empty((most, form.edge_columns), form.edge_type)
    return arrays


def _parts(files: OgbFiles, form: _Form, num_nodes: Indices, num_edges: Indices) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Read a few graphs at a time: their numbers, edges, node labels and edge attributes."""
    with ExitStack() as stack:

        def rows(file: str, dtype: type[np.generic], columns: int) -> Rows:
            return stack.enter_context(files.rows(file, dtype, columns))

        # One reader per file: edges, the columns of nodes (several files for syntax trees) and edge attributes, if any.
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
            for read, values in zip([*node, *attr], [*nodes, *numbers], strict=True):
                _check_values(read, values, 1 << 31 if is_syntax else 256 if is_molecule else None)
            if is_syntax:
                yield graphs, *_syntax(nodes, ends)
                continue
            yield graphs, (ends[:, 0], ends[:, 1]), nodes[0] if nodes else None, numbers[0] if numbers else None
        for each in (edge, *node, *attr):
            each.finish()


def _groups(sizes: Indices) -> Iterator[slice]:
    """Slices of successive graphs with about :data:`_ITEMS_PER_CHUNK` nodes and edges."""
    group = (np.cumsum(sizes) - sizes) // _ITEMS_PER_CHUNK
    first = np.flatnonzero(np.diff(group, prepend=-1))
    for start, stop in zip(first, [*first[1:], len(sizes)], strict=True):
        yield slice(int(start), int(stop))


def _ends(rows: Rows, num_nodes: Indices, num_edges: Indices) -> Indices:
    """Read the next edges, ``(e, 2)``, and number their nodes through all graphs of the slice."""
    before = rows.taken
    ends: Indices = rows.take(int(num_edges.sum()))
    size = np.repeat(num_nodes, num_edges)[:, None]
    outside = ((ends < 0) | (ends >= size)).any(axis=1)
    if outside.any():
        line = int(np.argmax(outside))
        raise UserError(
            f"{rows.place} line {before + line + 1}: edge from {ends[line, 0]} to {ends[line, 1]}, but the graph has "
            f"nodes 0 to {size[line, 0] - 1}."
        )
    return ends + np.repeat(sizes_to_offsets(num_nodes)[:-1], num_edges)[:, None]


def _syntax(nodes: list[Any], ends: Indices) -> tuple[Any, Any, Any]:
    """Edges in both directions, the four codes of each node, and the direction of each edge."""
    codes, depth, is_attributed, order = nodes
    labels = np.concatenate([codes, depth, np.where(is_attributed == 1, order, -1)], axis=1)
    source, target = ends.T
    is_upwards = np.repeat([0, 1], len(ends))[:, None]
    return (np.concatenate([source, target]), np.concatenate([target, source])), labels, is_upwards


def _check_values(rows: Rows, values: Any, num_codes: int | None) -> None:
    wrong = (values < 0) | (values >= num_codes) if num_codes else ~np.isfinite(values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        line = rows.taken - len(values) + row + 1
        expected = f"an integer from 0 to {num_codes - 1}" if num_codes else "a finite number"
        raise UserError(f"{rows.place} line {line}: expected {expected}, got {values[row, column]}.")


def _labels(files: OgbFiles, kind: str, num_graphs: int) -> dict[str, Any]:
    """Classes of plain graphs; tasks (NaN for missing values) and SMILES of molecules."""
    if kind == "graphs" and LABELS in files:
        labels = files.numbers(LABELS)
        files.check_labels(labels, num_graphs)
        values, classes = np.unique(labels, return_inverse=True)
        return {"classes": classes.astype(np.int64), "class_names": tuple(map(str, values.tolist()))}
    if kind != "ogb_molecules":
        return {}
    names, smiles = _mapping(files, num_graphs)
    if LABELS not in files:
        return {"smiles": smiles}
    place, rows = files.place(LABELS), []
    for line, cells in islice(files.cells(LABELS), num_graphs + 1):
        rows.append(np.array([_label(cell, place, line) for cell in cells or [""]], dtype=np.float32))
        if len(rows[-1]) != len(rows[0]):
            raise UserError(f"{place} line {line}: {len(rows[-1])} labels, expected {len(rows[0])}.")
    files.check_labels(rows, num_graphs)
    if len(names) != len(rows[0]):
        names = tuple(f"task_{task}" for task in range(len(rows[0])))
    return {"targets": np.stack(rows), "target_names": names, "smiles": smiles}


def _label(cell: str, place: str, line: int) -> float:
    number = parse_number(cell) if cell.strip() else np.nan
    if number is None or abs(number) > np.finfo(np.float32).max:
        raise UserError(f"{place} line {line}: expected a 32-bit number, got {short_repr(cell)}.")
    return number


def _mapping(files: OgbFiles, num_graphs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Task names and SMILES; empty if the table is missing."""
    if "mapping/mol" not in files:
        return (), ()
    (_, header), *rows = [*islice(files.cells("mapping/mol"), num_graphs + 2)] or [(1, [])]
    column = header.index("smiles") if "smiles" in header else -1
    if column < 0 or len(rows) != num_graphs or any(len(cells) <= column for _, cells in rows):
        raise UserError(f"{files.place('mapping/mol')} needs a column 'smiles' with one row per graph.")
    return tuple(header[:column]), tuple(cells[column] for _, cells in rows)
