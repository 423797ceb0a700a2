"""Sources a piece at a time, for what must not have all graphs in memory.

Tables of molecules (``.csv``, ``.smi``) and JSON lines are read as they come, and so is a store; any other source is
read whole and cut.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from joao.data.base import Dataset
from joao.data.joining import joined
from joao.data.jsonl import jsonl_pieces
from joao.data.molecule_sets import Columns, Work, holds_molecules, molecule_pieces, no_molecules
from joao.data.molecules import featuriser
from joao.data.shards import Shards
from joao.data.smiles import SUFFIXES as TABLES
from joao.data.sources import path_of, read_path, suffix_of
from joao.errors import UserError
from joao.files import attempt

_STREAMED = (".jsonl", ".jsonl.gz")


class Pieces:
    """A source that can be read from any of its rows on.

    Args:
        source: a name or path, as :func:`joao.read` takes it.
        root: where names are looked up.
        columns, work: of tables of molecules.

    Attributes:
        name: of the data.
        stamp: a hash of the contents and of what they are read with.
    """

    def __init__(self, source: str, root: str | os.PathLike[str] | None, columns: Columns, work: Work) -> None:
        self.path, self.columns, self.work = path_of(source, root), columns, work
        self.suffix = suffix_of(self.path) if self.path.is_file() else None
        self.holds_molecules = self.suffix in TABLES and holds_molecules(self.path, columns)
        self.whole: Dataset | Shards | None = None
        if self.holds_molecules or self.suffix in _STREAMED:
            with attempt(self.path, "cannot be read"), self.path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            self.stamp = f"{content} {columns} {featuriser() if self.holds_molecules else ''}"
        else:
            self.whole = read_path(self.path, columns, work)
            self.stamp = f"{self.whole.fingerprint} {len(self.whole)}"

    def after(self, rows: int, size: int) -> Iterator[Dataset]:
        """The graphs behind the first ``rows`` rows, ``size`` rows at a time; each piece has a graph at least."""
        if self.holds_molecules:
            yield from self._with_graphs(molecule_pieces(self.path, self.columns, self.work, size, rows))
        elif self.suffix in _STREAMED:
            yield from jsonl_pieces(self.path, size, rows)
        else:
            parts = self.whole.pieces() if isinstance(self.whole, Shards) else iter([self.whole])
            for part in parts:
                assert part is not None
                count = len(part) + len(part.failures)
                cut = (rows_of(part, first, min(first + size, count)) for first in range(min(rows, count), count, size))
                yield from self._with_graphs(cut)
                rows = max(0, rows - count)

    def _with_graphs(self, pieces: Iterable[Dataset]) -> Iterator[Dataset]:
        """Rows that gave no graph join the piece before them, or behind."""
        held: Dataset | None = None
        for piece in pieces:
            if held is not None and len(held) and len(piece):
                yield held
                held = piece
            else:
                held = piece if held is None else joined([held, piece])
        if held is not None and not len(held):
            raise UserError(no_molecules(self.path, held))
        if held is not None:
            yield held


def rows_of(dataset: Dataset, first: int, last: int) -> Dataset:
    """The graphs and failures of the rows from ``first`` to before ``last``, which are counted anew."""
    rows = np.arange(len(dataset)) if dataset.row_of_graph is None else dataset.row_of_graph
    inside = np.flatnonzero((rows >= first) & (rows < last))
    failures = tuple(each._replace(row=each.row - first) for each in dataset.failures if first <= each.row < last)
    part = dataset.subset(inside)
    return replace(part, row_of_graph=rows[inside] - first, failures=failures) if failures else part
