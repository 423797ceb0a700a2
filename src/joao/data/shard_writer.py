"""Writes a store of shards, a shard at a time; whatever ends it, the next try goes on behind the last whole shard."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import final

from joao.data.base import Dataset, as_bytes, offsets_of
from joao.data.packed import entries_of, header_of, pieces_of, read_array, read_header, read_packed, without_texts
from joao.data.pieces import Pieces
from joao.data.shard_facts import Facts
from joao.data.shard_index import FAILURES, INDEX, OFFSETS, Index, ShardInfo, holds_shards, shard_name
from joao.data.shards import Shards
from joao.errors import UserError
from joao.files import make_folder, write_file, write_json

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
        if holds_shards(folder):
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
        write_file(path, pieces_of(dataset, by_degrees=True))
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
        entries = entries_of({"first_node": ("<u4", shape), "first_edge": ("<u4", shape)})

        def content() -> Iterator[bytes]:
            yield header_of({}, entries)
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
                yield bytes(as_bytes(offsets_of(read_array(self.folder / each.file, name)).astype("<u4")))

    def _failures(self) -> Iterator[bytes]:
        """As :func:`joao.reporting.failures.failures_csv`, without having all in memory."""
        yield b"line,name,smiles,reason\n"
        for each in self.index.shards:
            if each.rows > each.graphs:
                text = io.StringIO()
                failures = read_packed(self.folder / each.file).failures
                lines = ([one.line or one.row, one.name, one.text, one.reason] for one in failures)
                csv.writer(text, lineterminator="\n").writerows(lines)
                yield text.getvalue().encode()


def pack_shards(
    sources: Iterable[Pieces],
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
            writer.add(piece if with_texts else without_texts(piece), number, rows)
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
