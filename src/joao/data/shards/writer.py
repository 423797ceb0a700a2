"""Sources a piece at a time, for what must not have all graphs in memory.

Tables of molecules (``.csv``, ``.smi``) and JSON lines are read as they come, and so is a store; any other source is
read whole and cut.


Writes a store of shards, a shard at a time; whatever ends it, the next try goes on behind the last whole shard."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np

from joao.core.errors import UserError
from joao.core.files import make_folder, user_error_on_os_error, write_file, write_json
from joao.data.dataset import Dataset, as_bytes, sizes_to_offsets
from joao.data.formats.jsonl import iterate_jsonl
from joao.data.formats.packed import (
    describe_arrays,
    drop_texts,
    make_header,
    packed_chunks,
    read_array,
    read_header,
    read_packed,
)
from joao.data.joining import concatenate_datasets
from joao.data.molecules.featurise import featuriser_version
from joao.data.molecules.sets import ReadOptions, is_molecule_table, iterate_molecules, no_molecules_message
from joao.data.molecules.smiles import SUFFIXES as TABLES
from joao.data.molecules.smiles import Columns
from joao.data.shards.index import FAILURES, INDEX, OFFSETS, Facts, Index, ShardInfo, is_shard_store, shard_name
from joao.data.shards.shards import Shards
from joao.data.sources import known_suffix, read_path, resolve_path

_STREAMED = (".jsonl", ".jsonl.gz")


class PackSource:
    """A source that can be read from any of its rows on.

    Args:
        source: a name or path, as :func:`joao.read` takes it.
        root: where names are looked up.
        columns, work: of tables of molecules.

    Attributes:
        name: of the data.
        stamp: a hash of the contents and of what they are read with.
    """

    def __init__(self, source: str, root: str | os.PathLike[str] | None, columns: Columns, work: ReadOptions) -> None:
        self.path, self.columns, self.work = resolve_path(source, root), columns, work
        self.suffix = known_suffix(self.path) if self.path.is_file() else None
        self.holds_molecules = self.suffix in TABLES and is_molecule_table(self.path, columns)
        self.whole: Dataset | Shards | None = None
        if self.holds_molecules or self.suffix in _STREAMED:
            with user_error_on_os_error(self.path, "cannot be read"), self.path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            self.stamp = f"{content} {columns} {featuriser_version() if self.holds_molecules else ''}"
        else:
            self.whole = read_path(self.path, columns, work)
            self.stamp = f"{self.whole.fingerprint} {len(self.whole)}"

    def after(self, rows: int, size: int) -> Iterator[Dataset]:
        """The graphs behind the first ``rows`` rows, ``size`` rows at a time; each piece has a graph at least."""
        if self.holds_molecules:
            yield from self._with_graphs(iterate_molecules(self.path, self.columns, self.work, size, rows))
        elif self.suffix in _STREAMED:
            yield from iterate_jsonl(self.path, size, rows)
        else:
            parts = self.whole.pieces() if isinstance(self.whole, Shards) else iter([self.whole])
            for part in parts:
                assert part is not None
                count = len(part) + len(part.failures)
                cut = (
                    slice_rows(part, first, min(first + size, count)) for first in range(min(rows, count), count, size)
                )
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
                held = piece if held is None else concatenate_datasets([held, piece])
        if held is not None and not len(held):
            raise UserError(no_molecules_message(self.path, held))
        if held is not None:
            yield held


def slice_rows(dataset: Dataset, first: int, last: int) -> Dataset:
    """The graphs and failures of the rows from ``first`` to before ``last``, which are counted anew."""
    rows = np.arange(len(dataset)) if dataset.row_of_graph is None else dataset.row_of_graph
    inside = np.flatnonzero((rows >= first) & (rows < last))
    failures = tuple(each._replace(row=each.row - first) for each in dataset.failures if first <= each.row < last)
    part = dataset.subset(inside)
    return replace(part, row_of_graph=rows[inside] - first, failures=failures) if failures else part


SHARD_GRAPHS = 1 << 17


@final
class ShardWriter:
    """A store under way.

    Args:
        folder: new, empty, or a store of the same ``origin`` that is not complete; its whole shards are kept.
        name: of the data.
        origin: of what and how it is packed; two stores of the same origin have the same shards.

    Attributes:
        index: as far as it goes.
    """

    def __init__(self, folder: Path, name: str, origin: str) -> None:
        self.folder = folder
        self.index = Index(name, complete=False, facts=None, notices=(), origin=origin, offsets="", shards=())
        if is_shard_store(folder):
            begun = Index.read(folder)
            if begun.complete:
                raise UserError(f"{folder}: exists already. Choose another name or remove it first.")
            if begun.origin != origin:
                raise UserError(f"{folder}: was begun with another source or other options. Remove it first.")
            self._keep_whole(begun)
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder}: exists already. Choose another name or remove it first.")
        make_folder(folder)
        for left in folder.glob(".*"):  # half a file of a process that was killed
            with suppress(OSError):
                left.unlink()
        self._write_index()

    @property
    def position(self) -> tuple[int, int]:
        """Where to go on: the number of the source, and how many of its rows are in shards."""
        source = max((each.source for each in self.index.shards), default=0)
        return source, sum(each.rows for each in self.index.shards if each.source == source)

    def add(self, dataset: Dataset, source: int, rows: int) -> None:
        """Writes the graphs of ``dataset``, made of ``rows`` rows of ``source``, as the next shard."""
        notices = tuple(dict.fromkeys((*self.index.notices, *dataset.notices)))
        dataset = replace(dataset, notices=())
        path = self.folder / shard_name(len(self.index.shards))
        own = Facts.of(dataset)
        before = self.index.facts
        try:
            facts = own if before is None else before.joined(own)
        except UserError as error:
            raise UserError(f"{self.index.name}: {error}. Give graphs that are described alike.") from error
        write_file(path, packed_chunks(dataset, by_degrees=True))
        shards = (*self.index.shards, _info(path, dataset, source, rows))
        self.index = replace(self.index, facts=facts, notices=notices, shards=shards)
        self._write_index()

    def finish(self) -> Shards:
        """Writes offsets and the list of failures, and says that the store is complete."""
        facts = self.index.facts
        if facts is None:
            raise UserError(f"{self.index.name}: no graphs in it.")
        if facts.failures:
            write_file(self.folder / FAILURES, self._failures())
        digest = hashlib.sha256()
        shape = (facts.graphs + len(self.index.shards),)
        entries = describe_arrays({"first_node": ("<u4", shape), "first_edge": ("<u4", shape)})

        def content() -> Iterator[bytes]:
            yield make_header({}, entries)
            for piece in self._offsets():
                digest.update(piece)
                yield piece

        write_file(self.folder / OFFSETS, content())
        self.index = replace(self.index, complete=True, offsets=digest.hexdigest())
        self._write_index()
        return Shards(self.folder)

    def _keep_whole(self, begun: Index) -> None:
        """Takes over the shards of an earlier try, up to the first that is not what the index tells of."""
        self.index = replace(self.index, notices=begun.notices)
        for told in begun.shards:
            try:
                dataset = read_packed(self.folder / told.file)
                if _info(self.folder / told.file, dataset, told.source, told.rows) != told:
                    return
            except UserError:
                return
            own, before = Facts.of(dataset), self.index.facts
            facts = own if before is None else before.joined(own)
            self.index = replace(self.index, facts=facts, shards=(*self.index.shards, told))

    def _write_index(self) -> None:
        write_json(self.folder / INDEX, self.index.as_json())

    def _offsets(self) -> Iterator[bytes]:
        for name in ("first_node", "first_edge"):
            for each in self.index.shards:
                yield bytes(as_bytes(sizes_to_offsets(read_array(self.folder / each.file, name)).astype("<u4")))

    def _failures(self) -> Iterator[bytes]:
        """As :func:`joao.runs.result_files.failures_csv`, without having all in memory."""
        yield b"line,name,smiles,reason\n"
        for each in self.index.shards:
            if each.rows > each.graphs:
                text = io.StringIO()
                failures = read_packed(self.folder / each.file).failures
                lines = ([one.line or one.row, one.name, one.text, one.reason] for one in failures)
                csv.writer(text, lineterminator="\n").writerows(lines)
                yield text.getvalue().encode()


def pack_shards(
    sources: Iterable[PackSource],
    folder: Path,
    name: str,
    *,
    shard_graphs: int = SHARD_GRAPHS,
    with_texts: bool = True,
    on_shard: Callable[[int, int], None] = lambda shards, graphs: None,
) -> Shards:
    """Writes the graphs of all ``sources``, in order, into a store, or goes on with one that was interrupted.

    Args:
        sources: what to pack.
        folder: of the store.
        name: of the data.
        shard_graphs: rows of a source that make a shard; a source begins a new one.
        with_texts: whether SMILES, names of graphs and rows that gave none are kept.
        on_shard: told how many shards, and graphs in them, are done.
    """
    if not 1 <= shard_graphs <= 1 << 24:
        raise UserError(f"shard_graphs must be from 1 to {1 << 24}, got {shard_graphs}.")
    sources = list(sources)
    told = " | ".join(source.stamp for source in sources)
    origin = hashlib.sha256(f"{told} | {name} {shard_graphs} {with_texts}".encode()).hexdigest()
    writer = ShardWriter(folder, name, origin)
    begin, done = writer.position
    for number, source in enumerate(sources):
        for piece in source.after(done if number == begin else 0, shard_graphs) if number >= begin else ():
            rows = len(piece) + len(piece.failures)
            writer.add(piece if with_texts else drop_texts(piece), number, rows)
            on_shard(len(writer.index.shards), sum(each.graphs for each in writer.index.shards))
    return writer.finish()


def _info(path: Path, dataset: Dataset, source: int, rows: int) -> ShardInfo:
    return ShardInfo(
        file=path.name,
        bytes=path.stat().st_size,
        checksum=read_header(path)[0]["checksum"],
        fingerprint=dataset.fingerprint,
        graphs=len(dataset),
        nodes=dataset.num_nodes,
        edges=2 * dataset.num_edges,
        source=source,
        rows=rows,
    )
