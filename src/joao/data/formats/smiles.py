"""Tables of molecules: ``.csv`` and ``.smi``, optionally with ``.gz`` or ``.xz``, ``.parquet`` and ``.sdf``.

docs/data-formats.md describes which columns are SMILES, identifiers and tasks. All other columns are ignored, such as
text, numbers mixed with text (``>10``), empty columns, columns without a name and further columns with SMILES or
identifiers. If tasks are given, only these columns are tasks, and a cell that is not a number is an error.

Other types of a Parquet column are read as the text of their values; nested columns are ignored.

If the first line of a ``.smi`` file is a header, its columns are treated like those of a ``.csv`` file.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, join_names, quantity, short_repr, suggest
from joao.core.files import import_parquet, open_parquet
from joao.data.dataset import Dataset
from joao.data.formats import TABLE_SUFFIXES
from joao.data.formats.edge_list import NEEDED
from joao.data.formats.sdf import TITLE, sdf_rows
from joao.data.formats.text import base_name, column_names, parse_number, table_rows, text_lines
from joao.data.molecules import ReadOptions, make_molecules

# In the order of preference.
SMILES_NAMES = (
    "smiles", "canonical_smiles", "isomeric_smiles", "rdkit_smiles", "smile", "smi", "mol", "molecule", "structure",
)  # fmt: skip
IDENTIFIER_NAMES = (
    "id", "mol_id", "molid", "molecule_id", "compound_id", "cmpd_id", "identifier", "chembl_id", "molecule_chembl_id",
    "zinc_id", "cid", "name", "mol_name", "compound_name", "names", "title", "index",
    "molecule_name", "sample_id", "substance_id",
)  # fmt: skip
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_TRUTH = {"true": 1.0, "false": 0.0}
_EMPTY = ("", "na", "n/a", "nan", "null", "none", "?")
_ROWS_PER_CHUNK = 1024
_LARGEST = float(np.finfo(np.float32).max)

Row = tuple[int, list[str]]  # line, cells


@dataclass(frozen=True)
class Columns:
    """Names of columns given by the user; the others are detected.

    Attributes:
        smiles, identifiers: one column each.
        tasks: label columns; by default all numeric columns.
    """

    smiles: str | None = None
    identifiers: str | None = None
    tasks: Sequence[str] | None = None

    @property
    def are_given(self) -> bool:
        return bool(self.smiles or self.identifiers or self.tasks)


DETECT_COLUMNS = Columns()


def is_molecule_table(path: Path) -> bool:
    """Whether a table contains molecules, by its suffix or its header; otherwise it is an edge list."""
    if ".csv" not in path.name.lower():
        return True
    header = column_names(path)
    if {*SMILES_NAMES} & {*map(_plain_name, header)}:
        return not {*NEEDED} <= {*header}
    if {*NEEDED} & {*header}:
        return False  # the reader of edge lists reports what is missing
    listed = ", ".join(header)[:200] or "an empty file"
    raise UserError(
        f"{path}:1: no column 'smiles' (--smiles COLUMN, in Python smiles=, gives another name) and not the columns of "
        f"an edge list ({', '.join(NEEDED)}). The first line must name the columns; it has: {listed}."
    )


def read_molecules(path: Path, columns: Columns, options: ReadOptions) -> Dataset:
    """Read a table of molecules; at least one row must be valid."""
    dataset = table_graphs(read_molecule_table(path, columns), columns, options)
    if not len(dataset):
        raise UserError(no_molecules_message(path, dataset))
    return dataset


def no_molecules_message(path: Path, dataset: Dataset) -> str:
    """Error message for a table without a valid molecule."""
    first, count = dataset.failures[0], len(dataset.failures)
    others = f", and neither is any other of {count} rows" if count > 1 else ""
    fix = "" if ".sdf" in path.name.lower() else " If another column contains the SMILES, give its name."
    return f"{path}:{first.line}: {short_repr(first.text)} is not a molecule ({first.reason}){others}.{fix}"


def table_graphs(table: MoleculeTable, columns: Columns, options: ReadOptions) -> Dataset:
    """Convert the molecules of a table; the result may be empty."""
    notices = [
        f"{table.name}: column {short_repr(column)} is not used as a task: {reason}."
        for column, reason in table.rejected.items()
    ]
    if table.short_lines:
        notices.append(
            f"{table.name}: {quantity(len(table.short_lines), 'rows')} with fewer cells than the header: filled up "
            f"with empty cells. The first: line {table.short_lines[0]}."
        )
    not_numeric = [column for column in table.ignored if column not in table.rejected]
    if not_numeric and columns.tasks is None:
        notices.append(f"{table.name}: columns without numbers are ignored: {join_names(not_numeric, 20)}.")
    dataset = make_molecules(table.name, table.smiles, table.identifiers, options)
    return replace(
        dataset,
        targets=table.labels[dataset.rows] if table.tasks else None,
        target_names=table.tasks,
        failures=tuple(
            each._replace(line=line, reason=table.reasons.get(line, each.reason))
            for each in dataset.failures
            for line in [int(table.lines[each.row])]
        ),
        notices=(*notices, *dataset.notices),
    )


@dataclass(frozen=True, eq=False)
class MoleculeTable:
    """The contents of a table of molecules.

    Attributes:
        name: used in messages and records.
        smiles: ``M`` texts as written, possibly empty or invalid.
        identifiers: names of the molecules, or ``line 7`` for an empty cell; empty if no cell has a name.
        tasks: names of the label columns.
        labels: ``(M, T)``, NaN for missing values.
        lines: ``(M,)`` line of each molecule, counted from 1.
        ignored: names of the ignored columns.
        rejected: for columns that are numeric up to some line, what that line contains.
        reasons: why a structure has no SMILES, by line.
        short_lines: lines with fewer cells than the header; the cells that they lack are empty.
    """

    name: str
    smiles: tuple[str, ...]
    identifiers: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: NDArray[np.float32]
    lines: NDArray[np.int64]
    ignored: tuple[str, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    short_lines: tuple[int, ...] = ()


def read_molecule_table(path: Path, columns: Columns = DETECT_COLUMNS) -> MoleculeTable:
    reader, rows = _open_table(path, columns)
    while chunk := list(islice(rows, _ROWS_PER_CHUNK)):
        reader.add(chunk)
    return reader.table()


def iterate_molecule_table(
    path: Path, size: int, skip: int = 0, columns: Columns = DETECT_COLUMNS, may_be_empty: bool = False
) -> Iterator[MoleculeTable]:
    """Read a table ``size`` rows at a time after the first ``skip``.

    All pieces have the same tasks. If tasks are not given, the table is read twice, because the last line may show
    that a column is not numeric. A table without rows is an error, unless it ``may_be_empty``.
    """
    ignored: tuple[str, ...] = ()
    rejected: Mapping[str, str] = {}
    if columns.tasks is None:
        scanned, rows = _open_table(path, columns)
        while chunk := list(islice(rows, _ROWS_PER_CHUNK)):
            scanned.add(chunk)
            scanned.drop_rows()
        ignored, rejected = scanned.ignored(), scanned.rejected
        columns = replace(columns, tasks=tuple(scanned.tasks().values()))
    reader, rows = _open_table(path, columns)
    deque(islice(rows, skip), maxlen=0)
    while chunk := list(islice(rows, min(size - len(reader.smiles), _ROWS_PER_CHUNK))):
        reader.add(chunk)
        if len(reader.smiles) == size:
            yield replace(reader.table(), ignored=ignored, rejected=rejected)
            reader.drop_rows()
    if reader.smiles or not (skip or reader.num_dropped or may_be_empty):  # table() reports an empty table
        yield replace(reader.table(), ignored=ignored, rejected=rejected)


def read_text_column(path: Path, name: str) -> list[str]:
    """Read one column of a CSV file as text, one cell per row."""
    if ".csv" not in path.name.lower():
        raise UserError(f"{path}: column {short_repr(name)} can be read from a .csv file only.")
    rows = table_rows(path)
    line, header = next(rows, (1, []))
    number = _named_column(f"{path}:{line}", [" ".join(cell.split()) for cell in header], name)
    return [cells[number] if number < len(cells) else "" for _, cells in rows]


def _open_table(path: Path, columns: Columns) -> tuple[_Reader, Iterator[Row]]:
    """Read the header; return a reader and the other rows."""
    suffix = next((suffix for suffix in TABLE_SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise UserError(f"{path}: unknown file type. Known: {', '.join(TABLE_SUFFIXES)}.")
    reasons: dict[int, str] = {}
    if suffix == ".parquet":
        rows = _parquet_rows(path, columns)
    elif suffix.startswith(".sdf"):
        if columns.smiles is not None:
            raise UserError(f"{path}: the SMILES are those of the structures. Leave out --smiles (in Python, smiles=).")
        rows = sdf_rows(path, frozenset({*SMILES_NAMES, TITLE}), reasons)
    else:
        rows = table_rows(path) if suffix.startswith(".csv") else _smi_rows(path, columns.smiles)
    line, header = next(rows, (1, []))
    if not header:
        raise UserError(f"{path}: the file is empty. Expected one molecule per line or record.")
    names = [" ".join(cell.split()) for cell in header]
    roles = _roles(f"{path}:{line}", names, columns)
    return _Reader(path, names, roles, is_given=columns.tasks is not None, reasons=reasons), rows


def _smi_rows(path: Path, smiles: str | None) -> Iterator[Row]:
    """Line numbers and cells, preceded by a header, which is made up if needed. The last column takes the rest."""
    lines = ((number, text) for number, text in enumerate(text_lines(path), 1) if text.strip())
    number, first = next(lines, (1, ""))
    header = first.rstrip("\r\n").split("\t") if "\t" in first else first.split()
    known = SMILES_NAMES if smiles is None else (smiles.casefold(),)
    if any(cell.strip().casefold() in known for cell in header):
        separator = "\t" if "\t" in first else None
        yield number, header
        for number, text in lines:
            yield number, text.strip("\r\n").split(separator, len(header) - 1)
    elif first:
        yield number, [smiles or "smiles", "name"]
        yield number, [*first.split(None, 1), ""][:2]
        for number, text in lines:
            yield number, [*text.split(None, 1), ""][:2]


def _parquet_rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Row numbers, counted from 1, and cells as text, preceded by the names of the columns that are not nested.

    If tasks are given, only columns that may be used are read.
    """
    arrow = import_parquet(path)
    with open_parquet(path) as file:
        nested = {field.name for field in file.schema_arrow if arrow.types.is_nested(field.type)}
        names = [name for name in file.schema_arrow.names if name not in nested]
        known_names = SMILES_NAMES if columns.smiles is None else (columns.smiles,)
        if nested and not {*known_names} & {*names, *map(_plain_name, names)}:
            found = join_names(sorted(nested), 20)
            raise UserError(
                f"{path}: no SMILES column: {found} cannot be one. Write one SMILES, as text, in each cell."
            )
        if columns.tasks is not None:
            named = {columns.smiles, columns.identifiers, *columns.tasks}
            known = {*SMILES_NAMES, *IDENTIFIER_NAMES}
            names = [name for name in names if name in named or name.casefold() in known]
        yield 1, names
        rows = count(1)
        for batch in file.iter_batches(batch_size=_ROWS_PER_CHUNK, columns=names):
            cells = [_texts(column) for column in batch.columns]
            yield from ((next(rows), list(row)) for row in zip(*cells, strict=True))


def _texts(column: Any) -> list[str]:
    """Cells of an Arrow column as text; bytes that are not UTF-8, such as those of a fingerprint, are replaced."""
    import pyarrow

    try:
        texts: list[str] = column.cast(pyarrow.string()).fill_null("").to_pylist()
    except pyarrow.ArrowInvalid:
        return [(cell or b"").decode(errors="replace") for cell in column.to_pylist()]
    return texts


def _roles(place: str, names: list[str], columns: Columns) -> _Roles:
    occurrences = Counter(names)  # there may be a million
    repeated = next((name for name in names if name and occurrences[name] > 1), None)
    if repeated is not None:
        raise UserError(f"{place}: column {short_repr(repeated)} occurs twice.")
    smiles = _find_column(place, names, columns.smiles, SMILES_NAMES)
    if smiles is None:
        raise UserError(
            f"{place}: no SMILES column among: {', '.join(names)[:200]}. Name it 'smiles' or give its name; "
            "a file without a header must end in .smi."
        )
    identifiers = _find_column(place, names, columns.identifiers, IDENTIFIER_NAMES)
    if identifiers == smiles:
        raise UserError(f"{place}: column {short_repr(names[smiles])} cannot be both SMILES and identifiers.")
    rest = [number for number in range(len(names)) if number not in (smiles, identifiers)]
    if columns.tasks is None:
        reserved = {"", *SMILES_NAMES, *IDENTIFIER_NAMES}
        may_be_tasks = [number for number in rest if _plain_name(names[number]) not in reserved]
    else:
        numbers = {name: number for number, name in enumerate(names)}
        may_be_tasks = [
            numbers[name] if name in numbers else _named_column(place, names, name) for name in columns.tasks
        ]
        if not {*may_be_tasks} <= {*rest} or len({*may_be_tasks}) < len(may_be_tasks):
            given = short_repr(", ".join(columns.tasks))
            raise UserError(
                f"{place}: tasks must be different columns, other than SMILES and identifiers, got {given}."
            )
    return _Roles(smiles, identifiers, dict.fromkeys(may_be_tasks), sorted({*rest} - {*may_be_tasks}))


def _find_column(place: str, names: list[str], named: str | None, known: Sequence[str]) -> int | None:
    if named is not None:
        return _named_column(place, names, named)
    plain = [_plain_name(name) for name in names]
    return next((plain.index(name) for name in known if name in plain), None)


def _plain_name(name: str) -> str:
    """
    >>> _plain_name("Compound ID")
    'compound_id'
    """
    return name.casefold().replace(" ", "_").replace("-", "_")


def _named_column(place: str, names: list[str], name: str) -> int:
    if name not in names:
        raise UserError(f"{place}: no column {short_repr(name)}. {suggest(name, names)}")
    return names.index(name)


class _Roles(NamedTuple):
    """Column numbers by role."""

    smiles: int
    identifiers: int | None
    may_be_tasks: dict[int, None]
    ignored: list[int]


class _Reader:
    """Collects the rows of a table."""

    def __init__(self, path: Path, names: list[str], roles: _Roles, is_given: bool, reasons: Mapping[int, str]) -> None:
        self.path, self.names, self.roles, self.is_given, self.reasons = path, names, roles, is_given, reasons
        self.smiles: list[str] = []
        self.identifiers: list[str] = []
        self.labels: dict[int, list[NDArray[np.float32]]] = {}
        self.rejected: dict[str, str] = {}
        self.lines: list[NDArray[np.int64]] = []
        self.short_lines: list[int] = []
        self.num_dropped = 0

    def drop_rows(self) -> None:
        """Forget the rows read so far, but not the roles of the columns."""
        self.num_dropped += len(self.smiles)
        self.smiles, self.identifiers, self.lines, self.short_lines = [], [], [], []
        self.labels = {number: [] for number in self.labels}

    def tasks(self) -> dict[int, str]:
        """Numbers and names of the columns with labels."""
        return {number: self.names[number] for number in self.roles.may_be_tasks if number in self.labels}

    def ignored(self) -> tuple[str, ...]:
        left_out = {*self.roles.ignored, *self.roles.may_be_tasks} - self.labels.keys()
        return tuple(self.names[number] or f"column {number + 1}" for number in sorted(left_out))

    def add(self, rows: list[Row]) -> None:
        if {len(row) for _, row in rows} != {len(self.names)}:
            rows = [(line, self._fit(line, row)) for line, row in rows]
        lines, cells = zip(*rows, strict=True)
        self.lines.append(np.array(lines))
        by_column = list(zip(*cells, strict=True))
        for number in tuple(self.roles.may_be_tasks):
            self._add_labels(number, by_column[number], lines)
        self.smiles += map(str.strip, by_column[self.roles.smiles])
        if self.roles.identifiers is not None:
            self.identifiers += map(str.strip, by_column[self.roles.identifiers])

    def _fit(self, line: int, row: list[str]) -> list[str]:
        """Drop empty cells beyond the header, and fill up a short row, as spreadsheets and pandas do."""
        width = len(self.names)
        # A cell of several lines in a row of the wrong length is probably the result of a stray quotation mark.
        if any(map(str.strip, row[width:])) or (len(row) < width and any("\n" in cell for cell in row)):
            raise UserError(f"{self.path}:{line}: {len(row)} cells, expected {width} as in the header.")
        if len(row) < width:
            self.short_lines.append(line)
        return [*row[:width], *[""] * (width - len(row))]

    def _add_labels(self, number: int, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Add the numbers of a task. A column that is not numeric is ignored from now on, unless the user named it."""
        if number not in self.labels:
            first = next(((line, cell) for line, cell in zip(lines, cells, strict=True) if not _is_empty(cell)), None)
            if first is None:
                return
            if not self.is_given and _number(first[1]) is None:
                reason = f"line {first[0]} has {short_repr(first[1])}"
                if _DECIMAL_COMMA.fullmatch(first[1].strip()):
                    self.rejected[self.names[number]] = f"{reason}. Write a decimal point"
                elif any(_number(cell) is not None for cell in cells):
                    self.rejected[self.names[number]] = f"{reason}, which is not a 32-bit number"
                self._ignore(number)
                return
            self.labels[number] = [np.full(len(self.smiles), np.nan, dtype=np.float32)]
        numbers = _numbers(cells)
        if isinstance(numbers, int):
            line, column, cell = lines[numbers], self.names[number], short_repr(cells[numbers])
            if self.is_given:
                raise UserError(
                    f"{self.path}:{line}: column {short_repr(column)}: expected a 32-bit number, got {cell}. "
                    "Correct or empty the cell, or leave this column out of the tasks."
                )
            self.rejected[column] = f"line {line} has {cell}, which is not a 32-bit number"
            self._ignore(number)
        else:
            self.labels[number].append(numbers)

    def _ignore(self, number: int) -> None:
        self.labels.pop(number, None)
        del self.roles.may_be_tasks[number]
        self.roles.ignored.append(number)

    def table(self) -> MoleculeTable:
        if not self.smiles:
            raise UserError(f"{self.path}: no molecules, only a header.")
        for number in self.roles.may_be_tasks if self.is_given else ():  # also if all values are missing
            self.labels.setdefault(number, [np.full(len(self.smiles), np.nan, dtype=np.float32)])
        tasks, ignored = self.tasks(), self.ignored()
        labels = np.empty((len(self.smiles), len(tasks)), dtype=np.float32)
        for position, number in enumerate(tasks):
            labels[:, position] = np.concatenate(self.labels.pop(number))
        lines = np.concatenate(self.lines)
        with_lines = zip(self.identifiers, lines.tolist(), strict=True) if any(self.identifiers) else ()
        return MoleculeTable(
            name=base_name(self.path),
            smiles=tuple(self.smiles),
            identifiers=tuple(name or f"line {line}" for name, line in with_lines),
            tasks=tuple(tasks.values()),
            labels=labels,
            lines=lines,
            ignored=ignored,
            rejected=self.rejected,
            reasons={line: self.reasons[line] for line in lines.tolist() if line in self.reasons},
            short_lines=tuple(self.short_lines),
        )


def _numbers(cells: Sequence[str]) -> NDArray[np.float32] | int:
    """Values of the cells, or the index of the first cell that is not a number."""
    try:
        values = np.array([float(cell or "nan") for cell in cells])
        text = "".join(cells)
        if text.isascii() and "_" not in text and (np.abs(values) <= _LARGEST)[~np.isnan(values)].all():
            return values.astype(np.float32)
    except ValueError:
        pass
    values_or_none = [math.nan if _is_empty(cell) else _number(cell) for cell in cells]
    return values_or_none.index(None) if None in values_or_none else np.array(values_or_none, dtype=np.float32)


def _is_empty(cell: str) -> bool:
    return cell.strip().casefold() in _EMPTY


def _number(cell: str) -> float | None:
    """Value of a cell, 1 and 0 for True and False; None for text, infinity and numbers beyond 32 bits."""
    value = _TRUTH.get(cell.strip().casefold(), parse_number(cell))
    return value if value is not None and abs(value) <= _LARGEST else None
