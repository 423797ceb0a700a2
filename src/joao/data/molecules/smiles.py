"""Reads tables of molecules: ``.csv`` and ``.smi``, plain or with ``.gz`` or ``.xz`` behind.

A ``.csv`` file has commas and a header::

    mol_id,smiles,toxic,logP,source
    TOX1,CCO,0,-0.31,A
    TOX2,c1ccccc1,,2.13,B

A ``.smi`` file has a SMILES on each line and, behind a space or tab, whatever names it; where its first line is a
header, its columns are read as those of a ``.csv`` file.

What a column is:

- *the SMILES*, if it is called ``smiles`` or another of :data:`SMILES_NAMES`, in any case, or by the name given;
- *the identifiers*, if it is called ``id``, ``name`` or another of :data:`IDENTIFIER_NAMES`, or by the name given;
- *a task*, if its cells are numbers or empty. ``na``, ``n/a``, ``nan``, ``null``, ``none`` and ``?`` count as empty:
  not measured;
- *ignored* otherwise: text, numbers with something else among them (``>10``), a column that is empty throughout, one
  without a name, and a second one with SMILES or identifiers by its name.

With ``tasks`` given these and no others are tasks, a cell of theirs that is no number is an error, and the rest is
ignored unread.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, short_repr, suggest
from joao.data.formats.text import base_name, table_rows, text_lines

# In the order of preference.
SMILES_NAMES = (
    "smiles", "canonical_smiles", "isomeric_smiles", "rdkit_smiles", "smile", "smi", "mol", "molecule", "structure",
)  # fmt: skip
IDENTIFIER_NAMES = (
    "id", "mol_id", "molid", "molecule_id", "compound_id", "cmpd_id", "identifier", "chembl_id", "molecule_chembl_id",
    "zinc_id", "cid", "name", "mol_name", "compound_name", "names", "title", "index",
)  # fmt: skip
SUFFIXES = tuple(f"{kind}{compressed}" for kind in (".csv", ".smi") for compressed in ("", ".gz", ".xz"))
_EMPTY = ("", "na", "n/a", "nan", "null", "none", "?")
_ROWS_AT_ONCE = 1024
_LARGEST = float(np.finfo(np.float32).max)

Row = tuple[int, list[str]]  # line, cells


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are not to be found by their names.

    Attributes:
        smiles, identifiers: one column each.
        tasks: the columns of labels; None takes all that hold numbers and nothing else.
    """

    smiles: str | None = None
    identifiers: str | None = None
    tasks: Sequence[str] | None = None


DETECT_COLUMNS = Columns()


@dataclass(frozen=True, eq=False)
class MoleculeTable:
    """Molecules as they were read; :func:`joao.data.molecules.featurise` makes graphs of them.

    Attributes:
        name: how messages and records call it.
        smiles: ``M`` of them, as written; one may be empty or wrong.
        identifiers: what the table calls its molecules, or ``line 7`` where a cell is empty; none where all are.
        tasks: the names of the columns of labels.
        labels: ``(M, T)``, NaN where not measured.
        lines: ``(M,)`` of the file, counted from 1, on which each molecule stands.
        ignored: the names of the columns that were left out.
        spoiled: of those that hold numbers up to some line, what is there instead.
    """

    name: str
    smiles: tuple[str, ...]
    identifiers: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: NDArray[np.float32]
    lines: NDArray[np.int64]
    ignored: tuple[str, ...] = ()
    spoiled: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"MoleculeTable({self.name!r}, {len(self)} molecules, {len(self.tasks)} tasks)"

    def __len__(self) -> int:
        return len(self.smiles)


def read_molecule_table(path: Path, columns: Columns = DETECT_COLUMNS) -> MoleculeTable:
    """Reads the molecules of a table, one of :data:`SUFFIXES`."""
    reader, rows = _open_table(path, columns)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        reader.add(chunk)
    return reader.table()


def iterate_molecule_table(
    path: Path, size: int, *, skip: int = 0, columns: Columns = DETECT_COLUMNS
) -> Iterator[MoleculeTable]:
    """The molecules of a table, ``size`` rows at a time, so that a table of any length can be read.

    All pieces have the same tasks. Where these are not given, the table is read twice: what a column is can be told
    by its last line alone.

    Args:
        path, columns: as of :func:`read_molecule_table`.
        size: rows of a piece; the last one has what is left.
        skip: rows to leave out at the beginning.
    """
    ignored: tuple[str, ...] = ()
    spoiled: Mapping[str, str] = {}
    if columns.tasks is None:
        scanned, rows = _open_table(path, columns)
        while chunk := list(islice(rows, _ROWS_AT_ONCE)):
            scanned.add(chunk)
            scanned.forget()
        tasks, ignored, spoiled = scanned.told()
        columns = replace(columns, tasks=tasks)
    reader, rows = _open_table(path, columns)
    deque(islice(rows, skip), maxlen=0)
    while chunk := list(islice(rows, min(size - len(reader.smiles), _ROWS_AT_ONCE))):
        reader.add(chunk)
        if len(reader.smiles) == size:
            yield replace(reader.table(), ignored=ignored, spoiled=spoiled)
            reader.forget()
    if reader.smiles or not (skip or reader.num_forgotten):  # which is told as an empty table
        yield replace(reader.table(), ignored=ignored, spoiled=spoiled)


def _open_table(path: Path, columns: Columns) -> tuple[_Reader, Iterator[Row]]:
    """A reader of the table that has seen its header, and the other rows."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise UserError(f"{path}: unknown kind of file. Known: {', '.join(SUFFIXES)}.")
    rows = table_rows(path) if suffix.startswith(".csv") else _smi_rows(path, columns.smiles)
    line, header = next(rows, (1, []))
    if not header:
        raise UserError(f"{path}: an empty file. A table of molecules has a SMILES on each line.")
    names = [" ".join(cell.split()) for cell in header]
    return _Reader(path, names, _roles(f"{path}:{line}", names, columns), is_given=columns.tasks is not None), rows


def _smi_rows(path: Path, smiles: str | None) -> Iterator[Row]:
    """Line and cells, under a header: that of the file, or one made up. The last column takes the rest of a line."""
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


def _roles(place: str, names: list[str], columns: Columns) -> _Roles:
    count = Counter(names)  # there may be a million
    repeated = next((name for name in names if name and count[name] > 1), None)
    if repeated is not None:
        raise UserError(f"{place}: column {short_repr(repeated)} is there twice.")
    smiles = _find_column(place, names, columns.smiles, SMILES_NAMES)
    if smiles is None:
        found = ", ".join(names)[:200]
        raise UserError(
            f"{place}: no column of SMILES among: {found}. Call it 'smiles', or give its name; "
            "a file without a header must end in .smi."
        )
    identifiers = _find_column(place, names, columns.identifiers, IDENTIFIER_NAMES)
    if identifiers == smiles:
        raise UserError(f"{place}: column {short_repr(names[smiles])} cannot be both SMILES and identifiers.")
    rest = [number for number in range(len(names)) if number not in (smiles, identifiers)]
    if columns.tasks is None:
        taken = {"", *SMILES_NAMES, *IDENTIFIER_NAMES}
        may_be = [number for number in rest if names[number].casefold() not in taken]
    else:
        may_be = [_named_column(place, names, name) for name in columns.tasks]
        if not {*may_be} <= {*rest} or len({*may_be}) < len(may_be):
            raise UserError(f"{place}: tasks must be different columns, and neither SMILES nor identifiers.")
    return _Roles(smiles, identifiers, dict.fromkeys(may_be), sorted({*rest} - {*may_be}))


def _find_column(place: str, names: list[str], given: str | None, known: Sequence[str]) -> int | None:
    if given is not None:
        return _named_column(place, names, given)
    lower = [name.casefold() for name in names]
    return next((lower.index(name) for name in known if name in lower), None)


def _named_column(place: str, names: list[str], name: str) -> int:
    if name not in names:
        raise UserError(f"{place}: no column {short_repr(name)}. {suggest(name, names)}")
    return names.index(name)


class _Roles(NamedTuple):
    """What columns are, by their numbers."""

    smiles: int
    identifiers: int | None
    may_be_tasks: dict[int, None]
    ignored: list[int]


class _Reader:
    """What the rows have said so far."""

    def __init__(self, path: Path, names: list[str], roles: _Roles, is_given: bool) -> None:
        self.path, self.names, self.roles, self.is_given = path, names, roles, is_given
        self.smiles: list[str] = []
        self.identifiers: list[str] = []
        self.labels: dict[int, list[NDArray[np.float32]]] = {}
        self.spoiled: dict[str, str] = {}
        self.lines: list[NDArray[np.int64]] = []
        self.num_forgotten = 0

    def forget(self) -> None:
        """Lets go of the rows so far; what the columns are stays known."""
        self.num_forgotten += len(self.smiles)
        self.smiles, self.identifiers, self.lines = [], [], []
        self.labels = {number: [] for number in self.labels}

    def told(self) -> tuple[tuple[str, ...], tuple[str, ...], Mapping[str, str]]:
        """The names of the tasks and of the columns left out, and of those that hold numbers up to a line, why."""
        left_out = {*self.roles.ignored, *(number for number in self.roles.may_be_tasks if number not in self.labels)}
        tasks = tuple(self.names[number] for number in self._tasks())
        ignored = tuple(self.names[number] or f"column {number + 1}" for number in sorted(left_out))
        return tasks, ignored, self.spoiled

    def _tasks(self) -> list[int]:
        return [number for number in self.roles.may_be_tasks if number in self.labels]

    def add(self, rows: list[Row]) -> None:
        lines, cells = zip(*rows, strict=True)
        width = len(self.names)
        if {*map(len, cells)} != {width}:
            line, row = next((line, row) for line, row in rows if len(row) != width)
            raise UserError(f"{self.path}:{line}: {len(row)} cells where the header has {width}.")
        self.lines.append(np.array(lines))
        by_column = list(zip(*cells, strict=True))
        for number in tuple(self.roles.may_be_tasks):
            self._add_labels(number, by_column[number], lines)
        self.smiles += map(str.strip, by_column[self.roles.smiles])
        if self.roles.identifiers is not None:
            self.identifiers += map(str.strip, by_column[self.roles.identifiers])

    def _add_labels(self, number: int, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Numbers of a task; a column that turns out to hold something else is ignored from now on, unless named."""
        if number not in self.labels:
            first = next((cell for cell in cells if not _is_empty(cell)), None)
            if first is None:
                return
            if not self.is_given and _number(first) is None:
                self._ignore(number)
                return
            self.labels[number] = [np.full(len(self.smiles), np.nan, dtype=np.float32)]
        numbers = _numbers(cells)
        if isinstance(numbers, int):
            line, column, cell = lines[numbers], self.names[number], short_repr(cells[numbers])
            if self.is_given:
                raise UserError(
                    f"{self.path}:{line}: column {short_repr(column)}: {cell} is not a number that a label can be. "
                    "Mend or empty the cell, or name the tasks without this column."
                )
            self.spoiled[column] = f"line {line} has {cell}, not a number that a label can be"
            self._ignore(number)
        else:
            self.labels[number].append(numbers)

    def _ignore(self, number: int) -> None:
        self.labels.pop(number, None)
        del self.roles.may_be_tasks[number]
        self.roles.ignored.append(number)

    def table(self) -> MoleculeTable:
        if not self.smiles:
            raise UserError(f"{self.path}: no molecules in it, only a header.")
        for number in self.roles.may_be_tasks if self.is_given else ():  # also one of which nothing was measured
            self.labels.setdefault(number, [np.full(len(self.smiles), np.nan, dtype=np.float32)])
        tasks, ignored, spoiled = self.told()
        labels = np.empty((len(self.smiles), len(tasks)), dtype=np.float32)
        for place, number in enumerate(self._tasks()):
            labels[:, place] = np.concatenate(self.labels.pop(number))
        lines = np.concatenate(self.lines)
        return MoleculeTable(
            name=base_name(self.path),
            smiles=tuple(self.smiles),
            identifiers=self._all_identifiers(lines),
            tasks=tasks,
            labels=labels,
            lines=lines,
            ignored=ignored,
            spoiled=spoiled,
        )

    def _all_identifiers(self, lines: NDArray[np.int64]) -> tuple[str, ...]:
        """One for each row, by its line where the cell is empty; none where all are."""
        if not any(self.identifiers):
            return ()
        return tuple(name or f"line {line}" for name, line in zip(self.identifiers, lines.tolist(), strict=True))


def _numbers(cells: Sequence[str]) -> NDArray[np.float32] | int:
    """The values of cells, or the place of the first that has none."""
    try:
        values = np.array([float(cell or "nan") for cell in cells])
        if "_" not in "".join(cells) and (np.abs(values) <= _LARGEST)[~np.isnan(values)].all():
            return values.astype(np.float32)
    except ValueError:
        pass
    slowly = [math.nan if _is_empty(cell) else _number(cell) for cell in cells]
    return slowly.index(None) if None in slowly else np.array(slowly, dtype=np.float32)


def _is_empty(cell: str) -> bool:
    return cell.strip().casefold() in _EMPTY


def _number(cell: str) -> float | None:
    """The value of a cell; None for text, infinity, and what does not fit 32 bits."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if "_" not in cell and abs(value) <= _LARGEST else None
