"""Write a store of shards. An interrupted store is continued after its last complete shard.

Formats with a piecewise reader (tables of molecules, JSON lines) and stores are read piece by piece; other sources are
read whole and cut.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from joao.core.errors import UserError
from joao.core.files import (
    already_exists,
    lock_folder,
    make_folder,
    open_regular,
    user_error_on_os_error,
    write_file,
    write_json,
)
from joao.core.tables import format_csv
from joao.data.dataset import (
    Dataset,
    Standardised,
    add_counts,
    as_bytes,
    concatenate_datasets,
    sizes_to_offsets,
)
from joao.data.formats import FileFormat, detect_format, known_suffix, packed
from joao.data.formats.smiles import Columns, MoleculeTable, no_molecules_message, table_graphs
from joao.data.molecules import ReadOptions, featuriser_version, standardised_notice
from joao.data.names import resolve_path
from joao.data.shards.index import FAILURES, INDEX, OFFSETS, Facts, Index, ShardInfo, is_shard_store, shard_name
from joao.data.shards.shards import Shards
from joao.data.sources import check_standardised, read_path
from joao.data.validation import is_unicode

SHARD_GRAPHS = 1 << 17


class BlockSource:
    """A source, given as for :func:`joao.read`, that is read in blocks of rows, from any row on.

    Its ``stamp`` is a hash of the contents and of everything that the result depends on. A table without rows is an
    error, unless it ``may_be_empty``.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset | Shards,
        root: str | os.PathLike[str] | None,
        columns: Columns,
        options: ReadOptions,
        *,
        may_be_empty: bool = False,
    ) -> None:
        self.columns, self.options, self.may_be_empty = columns, options, may_be_empty
        self.whole: Dataset | Shards | None = None
        self.format: FileFormat | None = None
        if isinstance(source, Dataset | Shards):
            self.path, self.whole = Path(source.name), source
        else:
            self.path = resolve_path(source, root)
            is_known = self.path.is_file() and known_suffix(self.path) is not None
            self.format = detect_format(self.path, has_columns=columns.are_given) if is_known else None
        if self.format is not None and self.format.piece_reader:
            self._before = self._size_and_time()
            with user_error_on_os_error(self.path, "cannot be read"), open_regular(self.path) as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            converted_by = featuriser_version(options.standardise) if self.format.has_columns else ""
            self.stamp = f"{content} {columns} {converted_by}"
        else:
            if self.whole is None:  # an empty data set is false, too
                self.whole = read_path(self.path, columns, options)
            if options.standardise:
                check_standardised(self.whole)
            self.stamp = f"{self.whole.fingerprint} {len(self.whole)}"

    def blocks(self, rows: int, size: int) -> Iterator[MoleculeTable | Dataset]:
        """Read ``size`` rows at a time after the first ``rows``; molecules are not converted yet.

        Raises:
            UserError: before a block of a file that is not the one whose contents were hashed.
        """
        if self.whole is None:
            assert self.format is not None
            table_options = {"columns": self.columns, "may_be_empty": self.may_be_empty}
            options = table_options if self.format.has_columns else {}
            for block in self.format.read_pieces(self.path, size=size, skip=rows, **options):
                self._check_unchanged()
                yield block
            self._check_unchanged()  # a file that was cut off just ends
            return
        for part in self.whole.pieces() if isinstance(self.whole, Shards) else [self.whole]:
            starts = range(min(rows, part.num_rows), part.num_rows, size)
            yield from (slice_rows(part, row, min(row + size, part.num_rows)) for row in starts)
            rows = max(0, rows - part.num_rows)

    def after(self, rows: int, size: int, convert: Callable[..., Iterable[Dataset]] = map) -> Iterator[Dataset]:
        """Read the graphs after the first ``rows`` rows, ``size`` rows at a time, at least one graph at a time.

        ``convert(function, blocks)`` must yield the results of ``function`` in order.
        """
        to_graphs = partial(block_graphs, columns=self.columns, options=self.options)
        pieces = (convert if self.has_molecules else map)(to_graphs, self.blocks(rows, size))
        yield from self._merge_empty(pieces) if self.whole is not None or self.has_molecules else pieces

    def _check_unchanged(self) -> None:
        if self._size_and_time() != self._before:
            raise UserError(
                f"{self.path}: was changed while it was read. Restore it to continue, or choose another output."
            )

    def _size_and_time(self) -> tuple[int, int]:
        with user_error_on_os_error(self.path, "cannot be read"):
            about = self.path.stat()
        return about.st_size, about.st_mtime_ns

    @property
    def has_molecules(self) -> bool:
        return self.whole is None and self.format is not None and self.format.has_columns

    def _merge_empty(self, pieces: Iterable[Dataset]) -> Iterator[Dataset]:
        """Merge a piece without graphs, in which all rows failed, with its neighbours."""
        pending: Dataset | None = None
        for piece in pieces:
            if pending is not None and len(pending) and len(piece):
                yield pending
                pending = piece
            else:
                pending = piece if pending is None else concatenate_datasets([pending, piece])
        if pending is not None and not len(pending):
            raise UserError(no_molecules_message(self.path, pending))
        if pending is not None:
            yield pending


def block_graphs(block: MoleculeTable | Dataset, columns: Columns, options: ReadOptions) -> Dataset:
    """Convert the molecules of a block; the result may be empty.

    What standardisation changed is for the caller to add up, so that there is one notice for all blocks.
    """
    if isinstance(block, Dataset):
        return block
    dataset = table_graphs(block, columns, options)
    own = standardised_notice(dataset)
    return replace(dataset, notices=tuple(each for each in dataset.notices if each not in own))


def slice_rows(dataset: Dataset, first: int, last: int) -> Dataset:
    """Return the graphs and failures of rows ``first`` to ``last - 1``, renumbered from 0."""
    rows = dataset.rows
    inside = np.flatnonzero((rows >= first) & (rows < last))
    failures = tuple(each._replace(row=each.row - first) for each in dataset.failures if first <= each.row < last)
    part = replace(dataset.subset(inside), standardised=None)  # the counts are those of all rows
    return replace(part, row_of_graph=rows[inside] - first, failures=failures) if failures else part


@final
class ShardWriter:
    """Writes a store shard by shard.

    Args:
        folder: a new or empty folder, or an incomplete store of the same ``origin``, whose complete shards are kept.
        origin: hash of sources and options; two stores of the same origin have the same shards.

    Attributes:
        index: index of the shards written so far.
    """

    def __init__(self, folder: Path, name: str, origin: str) -> None:
        self.folder, self.standardised = folder, list[Standardised | None]()
        self.index = Index(name, complete=False, facts=None, notices=(), origin=origin, offsets="", shards=())
        if is_shard_store(folder):
            earlier = Index.read(folder)
            if earlier.complete:
                raise already_exists(folder)
            if earlier.origin != origin:
                raise UserError(f"{folder}: was started with other sources or options. Remove it first.")
            self._keep_complete(earlier)
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise already_exists(folder)
        make_folder(folder)
        for partial_file in folder.glob(".*"):  # partial files of a killed process
            with suppress(OSError):
                partial_file.unlink()
        self._write_index()

    @property
    def position(self) -> tuple[int, int]:
        """Where to continue: number of the source, and number of its rows that are in shards."""
        source = max((each.source for each in self.index.shards), default=0)
        return source, sum(each.rows for each in self.index.shards if each.source == source)

    def add(self, dataset: Dataset, source: int, rows: int) -> None:
        """Write the graphs of ``dataset``, read from ``rows`` rows of ``source``, as the next shard."""
        notices = tuple(dict.fromkeys((*self.index.notices, *dataset.notices)))
        self.standardised.append(dataset.standardised)
        dataset = replace(dataset, notices=())
        path = self.folder / shard_name(len(self.index.shards))
        try:
            facts = self._merge_facts(dataset)
        except UserError as error:
            raise UserError(f"{self.index.name}: {error}. All graphs need the same columns.") from error
        write_file(path, packed.packed_chunks(dataset, by_degrees=True))
        shards = (*self.index.shards, _info(path, dataset, source, rows))
        self.index = replace(self.index, facts=facts, notices=notices, shards=shards)
        self._write_index()

    def finish(self) -> Shards:
        """Write offsets and failures, and mark the store as complete."""
        facts = self.index.facts
        if facts is None:
            raise UserError(f"{self.index.name}: contains no graphs.")
        if facts.failures:
            write_file(self.folder / FAILURES, self._failures())
        digest = hashlib.sha256()
        shape = (facts.graphs + len(self.index.shards),)
        entries = packed.describe_arrays({"first_node": ("<u4", shape), "first_edge": ("<u4", shape)})

        def content() -> Iterator[bytes]:
            yield packed.make_header({}, entries)
            for name in entries:
                for each in self.index.shards:
                    sizes = packed.read_array(self.folder / each.file, name)
                    total = each.nodes if name == "first_node" else each.edges
                    offsets = bytes(as_bytes(sizes_to_offsets(sizes, total).astype("<u4")))
                    digest.update(offsets)
                    yield offsets

        write_file(self.folder / OFFSETS, content())
        counts = add_counts(self.standardised)  # without the shards of an interrupted call
        notices = self.index.notices if counts is None else (*self.index.notices, f"{self.index.name}: {counts}.")
        self.index = replace(self.index, complete=True, offsets=digest.hexdigest(), notices=notices)
        self._write_index()
        return Shards(self.folder)

    def _merge_facts(self, dataset: Dataset) -> Facts:
        own, before = Facts.of(dataset), self.index.facts
        return own if before is None else before.merge(own)

    def _keep_complete(self, earlier: Index) -> None:
        """Keep the shards of an interrupted store up to the first that does not match its entry in the index."""
        self.index = replace(self.index, notices=earlier.notices)
        for info in earlier.shards:
            try:
                dataset = packed.read_packed(self.folder / info.file)
                if _info(self.folder / info.file, dataset, info.source, info.rows) != info:
                    return
            except UserError:
                return
            self.index = replace(self.index, facts=self._merge_facts(dataset), shards=(*self.index.shards, info))

    def _write_index(self) -> None:
        write_json(self.folder / INDEX, self.index.as_json())

    def _failures(self) -> Iterator[bytes]:
        """The same text as :func:`joao.runs.result_files.failures_csv`, one shard at a time."""
        yield b"line,name,smiles,reason\n"
        for each in self.index.shards:
            if each.rows > each.graphs:
                failures = packed.read_packed(self.folder / each.file).failures
                yield format_csv(failure.cells() for failure in failures).encode()


def pack_shards(
    sources: Iterable[BlockSource],
    folder: Path,
    name: str,
    *,
    shard_graphs: int = SHARD_GRAPHS,
    with_texts: bool = True,
    on_shard: Callable[[int, int], None] = lambda shards, graphs: None,
    convert: Callable[..., Iterable[Dataset]] = map,
) -> Shards:
    """Write the graphs of all ``sources``, in order, into a store in ``folder``, or continue an interrupted one.

    Args:
        shard_graphs: number of rows per shard; each source starts a new shard.
        with_texts: whether to keep SMILES, graph names and failures.
        on_shard: called with the number of shards and of graphs written so far.
        convert: see :meth:`BlockSource.after`.
    """
    if not 1 <= shard_graphs <= 1 << 24:
        raise UserError(f"shard_graphs must be from 1 to {1 << 24}, got {shard_graphs}.")
    if not (is_unicode(str(folder.absolute())) and is_unicode(name)):
        raise UserError(f"{folder}: path and name of shards must be UTF-8, which torch needs to map them. Rename them.")
    sources = list(sources)
    stamps = " | ".join(source.stamp for source in sources)
    settings = f"{stamps} | {name} {shard_graphs} {with_texts}"
    origin = hashlib.sha256(settings.encode(errors="surrogateescape")).hexdigest()  # a path may not be UTF-8
    if not folder.exists():
        make_folder(folder)
    with lock_folder(folder):
        writer = ShardWriter(folder, name, origin)
        begin, done = writer.position
        for number, source in enumerate(sources[begin:], begin):
            for piece in source.after(done if number == begin else 0, shard_graphs, convert):
                writer.add(piece if with_texts else packed.drop_texts(piece), number, piece.num_rows)
                on_shard(len(writer.index.shards), sum(each.graphs for each in writer.index.shards))
        return writer.finish()


def _info(path: Path, dataset: Dataset, source: int, rows: int) -> ShardInfo:
    return ShardInfo(
        file=path.name,
        bytes=path.stat().st_size,
        checksum=packed.read_header(path)[0]["checksum"],
        fingerprint=dataset.fingerprint,
        graphs=len(dataset),
        nodes=dataset.num_nodes,
        edges=2 * dataset.num_edges,
        source=source,
        rows=rows,
    )
