"""Data sets in the layout of the TU collection: a zip file or folder of the text files listed in docs/data-formats.md.

Edge attributes come before the one-hot edge labels. If nodes are not sorted by graph, they are sorted stably.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joao.core.errors import UserError, join_names
from joao.data.dataset import Array, Dataset
from joao.data.formats.text import READ_ERRORS, Member, folder_members, number_chunks, open_zip, read_numbers
from joao.data.validation import make_dataset

_EDGES = "_A.txt"
_MAX_EDGE_LABELS = 1000


def read_tu(path: Path) -> Dataset:
    """Read the data set in the zip file or folder ``path``."""
    with _open_files(path) as files:
        tables = _Tables(path, _name(path, list(files)), files)
        indicator = tables.whole_numbers("graph_indicator")
        num_graphs, graph_labels, notices = _graph_labels(tables, indicator)
        order = np.argsort(indicator, kind="stable")
        source, target = _edges(tables, indicator, order)
        if not len(source):
            notices.append(f"{tables.name}: {tables.name}{_EDGES} is empty: the graphs have no edges.")
        node_labels = tables.rows("node_labels", np.int64, len(indicator), "nodes")
        attributes = tables.rows("node_attributes", np.float64, len(indicator), "nodes")
        edge_attr = _edge_attr(tables, len(source))
    return make_dataset(
        tables.name,
        np.bincount(indicator - 1, minlength=num_graphs),
        (source, target),
        node_labels=None if node_labels is None else node_labels[order],
        node_attributes=None if attributes is None else attributes[order],
        edge_attr=edge_attr,
        graph_labels=graph_labels,
        notices=notices,
    )


def is_tu(path: Path) -> bool:
    """Whether a folder or zip file contains the edge file of a TU data set."""
    try:
        with _open_files(path) as files:
            return any(file.endswith(_EDGES) for file in files)
    except UserError:
        return False


@contextmanager
def _open_files(path: Path) -> Iterator[dict[str, Member]]:
    """Open the files of a zip file or folder (or of its folder ``raw``), by name."""
    try:
        if path.is_dir():
            folder = path / "raw" if any((path / "raw").glob(f"*{_EDGES}")) else path
            yield folder_members(folder, (file for file in sorted(folder.iterdir()) if file.is_file()))
        else:
            with open_zip(path) as members:
                files = {PurePosixPath(name): member for name, member in members.items() if "__MACOSX" not in name}
                folders = {file.parent for file in files if file.name.endswith(_EDGES)}
                if len(folders) > 1:
                    names = join_names(sorted(map(str, folders)))
                    raise UserError(f"{path}: several folders contain data sets: {names}. Give an archive of one.")
                yield {file.name: member for file, member in files.items() if not folders or file.parent in folders}
    except READ_ERRORS as error:
        raise UserError(f"{path}: cannot be read ({error}). It may be incomplete: copy it again.") from error


def _name(path: Path, files: list[str]) -> str:
    names = [file.removesuffix(_EDGES) for file in files if file.endswith(_EDGES)]
    if len(names) > 1 and path.stem in names:
        return path.stem
    if len(names) != 1:
        listed = " ".join(join_names(names or files).split()) or "nothing"
        raise UserError(f"{path}: expected one file NAME{_EDGES}, found {listed}.")
    return names[0]


@dataclass(frozen=True)
class _Tables:
    """The files of one data set, by the part of the file name after ``NAME_``."""

    path: Path
    name: str
    files: dict[str, Member]

    def place(self, part: str) -> str:
        return f"{self.path}: {self.name}_{part}.txt"

    def table(self, part: str, dtype: DTypeLike) -> Any:
        """Read ``(rows, columns)``; None if the file is missing."""
        if f"{self.name}_{part}.txt" not in self.files:
            return None
        with self.files[f"{self.name}_{part}.txt"].open() as stream:
            return read_numbers(stream, self.place(part), dtype)

    def whole_numbers(self, part: str) -> NDArray[np.int64]:
        """Read ``(rows,)`` integers; the file must exist and have one column."""
        table = self.table(part, np.int64)
        if table is None:
            raise UserError(f"{self.path}: file {self.name}_{part}.txt is missing.")
        if table.shape[1] != 1:
            problem = f"has {table.shape[1]} columns, expected 1" if len(table) else "is empty"
            raise UserError(f"{self.place(part)} {problem}.")
        numbers: NDArray[np.int64] = table[:, 0]
        return numbers

    def rows(self, part: str, dtype: DTypeLike, expected: int, what: str) -> Any:
        """Like :meth:`table`; checks the number of rows."""
        table = self.table(part, dtype)
        if table is not None and len(table) != expected:
            raise UserError(f"{self.place(part)} has {len(table)} lines, expected {expected} (number of {what}).")
        return table


def _graph_labels(tables: _Tables, indicator: NDArray[np.int64]) -> tuple[int, list[int] | None, list[str]]:
    """Return the number of graphs, their labels if they are integers, and notices."""
    place = tables.place("graph_indicator")
    if indicator.min() < 1:
        line = int(np.argmin(indicator))
        raise UserError(f"{place} line {line + 1}: graph {indicator[line]}, but graphs are numbered from 1.")
    labels = tables.table("graph_labels", np.float64)
    num_graphs = int(indicator.max()) if labels is None else len(labels)
    if indicator.max() > min(num_graphs, len(indicator)):
        line = int(np.argmax(indicator))
        known = f"{len(indicator)} nodes" if labels is None else f"{num_graphs} graph labels"
        raise UserError(f"{place} line {line + 1}: graph {indicator[line]}, but there are {known}.")
    if labels is None:
        return num_graphs, None, []
    if labels.shape[1] != 1 or not (np.abs(labels) < 2**53).all() or (labels % 1).any():
        return num_graphs, None, [f"{tables.name}: graph labels are ignored because they are not single integers."]
    return num_graphs, labels[:, 0].astype(np.int64).tolist(), []


def _edges(
    tables: _Tables, indicator: NDArray[np.int64], order: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Read sources and targets as positions in ``order``, in int32 to halve the memory."""
    place, num_nodes = tables.place("A"), len(indicator)
    new_number = np.empty(num_nodes, dtype=np.int32)
    new_number[order] = np.arange(num_nodes, dtype=np.int32)
    chunks, first_line = [np.zeros((2, 0), dtype=np.int32)], 1
    with tables.files[f"{tables.name}{_EDGES}"].open() as stream:
        for rows in number_chunks(stream, place, np.int64, columns=2):
            ends: NDArray[np.int64] = rows.T.astype(np.int64, copy=False) - 1
            _check_edges(ends, indicator, place, first_line)
            chunks.append(new_number[ends])
            first_line += len(rows)
    return np.concatenate([chunk[0] for chunk in chunks]), np.concatenate([chunk[1] for chunk in chunks])


def _check_edges(ends: NDArray[np.int64], indicator: NDArray[np.int64], place: str, first_line: int) -> None:
    if ends.min() < 0 or ends.max() >= len(indicator):
        missing = (ends < 0) | (ends >= len(indicator))
        line = int(np.argmax(missing.any(0)))
        node = ends[:, line][missing[:, line]][0] + 1
        raise UserError(f"{place} line {first_line + line}: no node {node}; expected 1 to {len(indicator)}.")
    graphs = indicator[ends]
    if (graphs[0] != graphs[1]).any():
        line = int(np.argmax(graphs[0] != graphs[1]))
        ends_of_edge = " and ".join(
            f"node {node + 1} of graph {graph}" for node, graph in zip(ends[:, line], graphs[:, line], strict=True)
        )
        raise UserError(f"{place} line {first_line + line}: connects {ends_of_edge}. Edges must stay within one graph.")


def _edge_attr(tables: _Tables, num_edges: int) -> Array | None:
    """Return ``(E, columns)``: attributes, then one-hot labels."""
    parts = []
    attributes = tables.rows("edge_attributes", np.float64, num_edges, "edges")
    if attributes is not None and attributes.size:
        parts.append(attributes)
    labels = tables.rows("edge_labels", np.int64, num_edges, "edges")
    for column in () if labels is None else labels.T:
        values = np.unique(column)
        if len(values) > _MAX_EDGE_LABELS:
            count = f"{len(values)} different labels, expected at most {_MAX_EDGE_LABELS}"
            raise UserError(f"{tables.place('edge_labels')} has {count}. Use edge attributes instead.")
        tables.files[f"{tables.name}{_EDGES}"].budget.take(8 * num_edges * len(values), f"{len(values)} edge labels")
        parts.append((column[:, None] == values).astype(np.float32))
    return np.concatenate(parts, axis=1) if parts else None
