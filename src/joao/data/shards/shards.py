"""A store of shards: a data set larger than memory, read as it is needed.

======================= ===============================================================================================
``index.json``          name, shards with their counts and checksums, and a summary of all graphs (:class:`Facts`)
``shard-00000...``      some graphs each, in the format of :mod:`joao.data.formats.packed`, with degrees
``offsets.safetensors`` ``first_node``, ``first_edge``: for each shard, the offsets of its graphs
``failures.csv``        rows that are not graphs, if there are any
======================= ===============================================================================================

Shards and offsets are memory-mapped: used pages stay in the page cache of the operating system as long as there is
room. Opening a store checks the index, the size of every file and the header of every shard. Reading graphs checks
that they are inside their file, and edges inside their graph. :meth:`Shards.check` reads everything. Truncating a file
while it is mapped kills the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, one_line, quantity, user_error_on_failure
from joao.core.files import parse_json
from joao.core.registry import check_value
from joao.data.dataset import Dataset, as_bytes, concatenate_datasets, sizes_to_offsets
from joao.data.formats.packed import TYPES, convert_array, parse_dtype, read_header, read_packed
from joao.data.formats.text import parse_integer
from joao.data.shards.index import INDEX, OFFSETS, Facts, Index, ShardInfo, damage_error
from joao.data.validation import check_values

_NODE_ROWS = ("degrees", "node_labels", "node_attributes")
_EDGE_ROWS = ("source", "edge_attr")
_AS_STORED = ("degrees", "source")
_JOINED = 256


@final
class Shards:
    """The graphs of a store.

    Attributes:
        folder: folder of the store.
        name: used in messages and records.
        facts: summary of all graphs.
        notices: changes made on packing that the user should know about.
        kind, featuriser, label_values, attribute_facts: as in :class:`Dataset`.
        fingerprint: hash of the fingerprints of the shards; that of the shard if there is only one.

    >>> import joao, networkx, tempfile
    >>> from joao.data.shards.writer import ShardWriter
    >>> with tempfile.TemporaryDirectory() as folder:  # on the command line: joao pack DATA --out FOLDER
    ...     writer = ShardWriter(Path(folder), "paths", "made by hand")
    ...     for size in (2, 3, 4):
    ...         writer.add(joao.read([networkx.path_graph(size)]), source=0, rows=1)
    ...     _ = writer.finish()
    ...     shards = joao.read(folder)
    ...     shards, shards[1]
    (Shards('paths', 3 graphs in 3 shards), Dataset('paths', 1 graph, 3 nodes, 2 edges))
    """

    def __init__(self, folder: Path) -> None:
        index = Index.read(folder)
        if not index.complete:
            raise UserError(f"{folder}: is incomplete. Repeat the same 'joao pack' command to continue it.")
        if index.facts is None:
            raise UserError(f"{folder / INDEX}: is damaged (no graphs). Pack the graphs again.")
        self.folder, self.index, self.facts = folder, index, index.facts
        self.name, self.notices = index.name, index.notices
        self.kind, self.featuriser = index.facts.kind, index.facts.featuriser
        self.standardised = None  # what it changed is in the notices
        self.label_values, self.attribute_facts = index.facts.label_values, index.facts.attributes
        own = [each.fingerprint for each in index.shards]
        self.fingerprint = own[0] if len(own) == 1 else hashlib.sha256(" ".join(own).encode()).hexdigest()[:16]
        self._first_graph = np.array(list(accumulate((each.graphs for each in index.shards), initial=0)))
        self._rows = _MappedRows(folder, index)

    def __reduce__(self) -> tuple[type[Shards], tuple[Path]]:
        """Pickle the path: another process opens the same store."""
        return Shards, (self.folder.absolute(),)

    def __repr__(self) -> str:
        return (
            f"Shards({self.name!r}, {quantity(len(self), self.kind)} in {quantity(len(self.index.shards), 'shards')})"
        )

    def __len__(self) -> int:
        return self.facts.graphs

    @property
    def num_bytes(self) -> int:
        """Size of shards and offsets."""
        return sum(each.bytes for each in self.index.shards) + (self.folder / OFFSETS).stat().st_size

    def __getitem__(self, which: Any) -> Dataset:
        """Select graphs by a number, a slice or a list of numbers, without labels and names."""
        if isinstance(which, slice):
            return self.graphs(np.arange(*which.indices(len(self))))
        numbers = np.atleast_1d(np.asarray(which, dtype=np.int64))
        return self.graphs(np.where(numbers < 0, numbers + len(self), numbers))  # checks the range

    def sizes(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of nodes and of directed edges of the graphs ``numbers``, ``(g,)`` each."""
        # Each earlier shard has one offset more than graphs.
        position = numbers + self._shard_of(numbers)
        nodes, edges = ((each[position + 1].astype(np.int64) - each[position]) for each in self._rows.offsets)
        return nodes, edges

    def graphs(self, numbers: NDArray[np.int64]) -> Dataset:
        """Return the graphs ``numbers`` ``(g,)``, in that order, without labels and names."""
        shard = self._shard_of(numbers)
        position, shards = numbers + shard, shard.tolist()
        bounds = [(each[position].astype(np.int64), each[position + 1].astype(np.int64)) for each in self._rows.offsets]
        nodes, edges = (last - first for first, last in bounds)  # offsets have 32 bits
        if len(numbers) and (nodes.min() < 1 or edges.min() < 0):
            raise damage_error(self.folder, "a graph has an invalid size")
        rows: dict[str, Any] = {name: self._rows.rows(name, shards, *bounds[0]) for name in _NODE_ROWS}
        rows |= {name: self._rows.rows(name, shards, *bounds[1]) for name in _EDGE_ROWS}
        first_node, first_edge = sizes_to_offsets(nodes), sizes_to_offsets(edges)
        degrees, source = rows.pop("degrees").astype(np.int64), rows.pop("source")
        if (sizes_to_offsets(degrees)[first_node] != first_edge).any() or (source >= np.repeat(nodes, edges)).any():
            raise damage_error(self.folder, "an edge refers to a node outside its graph")
        inside = np.arange(len(degrees)) - np.repeat(first_node[:-1], nodes)
        dataset = Dataset(
            name=self.name,
            first_node=first_node,
            first_edge=first_edge,
            source=source,
            target=np.repeat(inside.astype(source.dtype), degrees),
            **rows,
            kind=self.kind,
            featuriser=self.featuriser,
        )
        try:
            check_values(dataset)
        except ValueError as error:
            raise damage_error(self.folder, str(error)) from error
        vars(dataset)["degrees"] = degrees  # saves computing them
        return dataset

    def prefetch(self, first: int, last: int) -> None:
        """Tell the operating system that graphs ``first`` to ``last - 1`` will be read soon."""
        last = min(last, len(self))
        begin, end = self._shard_of(np.array([first, last - 1])).tolist()
        for shard in range(begin, end + 1):
            start, stop = self._first_graph[shard : shard + 2].tolist()
            self._rows.prefetch(shard, max(first, start) - start, min(last, stop) - start)

    def pieces(self) -> Iterator[Dataset]:
        """Read and check one shard after the other, with labels and names; rows are counted inside each shard."""
        for info in self.index.shards:
            dataset = read_packed(self.folder / info.file)
            if dataset.edge_attr is None and self.facts.num_edge_features and not dataset.num_edges:
                dataset = replace(dataset, edge_attr=np.zeros((0, self.facts.num_edge_features), np.float32))
            yield replace(dataset, name=self.name)

    def whole(self) -> Dataset:
        """Read all graphs into memory, with labels and names, as if read from the source."""
        dataset = concatenate_datasets(list(self.pieces()), self.name)
        dataset = _with_classes_in_order(replace(dataset, notices=self.notices))
        vars(dataset)["store_fingerprint"] = self.fingerprint
        return dataset

    def labels(self) -> Dataset:
        """Read graph names, classes, tasks and failures, without nodes and edges."""
        pieces = [_without_graphs(piece) for piece in self.pieces()]
        return _with_classes_in_order(concatenate_datasets(pieces, self.name))

    def check(self) -> None:
        """Read every shard, and check checksums, graphs, offsets and index."""
        facts: Facts | None = None
        for number, info in enumerate(self.index.shards):
            dataset = read_packed(self.folder / info.file)  # the checksum of its header was compared on opening
            first = self._first_graph[number] + number
            for offsets, own in zip(self._rows.offsets, (dataset.first_node, dataset.first_edge), strict=True):
                if (offsets[first : first + len(own)] != own).any():
                    raise damage_error(self.folder, f"wrong offsets of {info.file}")
            # Older versions hashed texts with the width of the longest text of all shards.
            is_text = dataset.node_labels is not None and dataset.node_labels.dtype == object
            if dataset.fingerprint != info.fingerprint and not is_text:
                raise damage_error(self.folder, f"{info.file} contains other graphs")
            own_facts = Facts.of(dataset)
            facts = own_facts if facts is None else facts.merge(own_facts)
        digest = hashlib.sha256()
        for offsets in self._rows.offsets:
            digest.update(as_bytes(offsets))
        if digest.hexdigest() != self.index.offsets:
            raise damage_error(self.folder, "wrong checksum of the offsets")
        if facts != self.facts:
            raise damage_error(self.folder, "wrong summary of the graphs")

    def _shard_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(f"{self.name}: expected a graph number from 0 to {len(self) - 1}")
        return np.searchsorted(self._first_graph, numbers, side="right") - 1


def _without_graphs(dataset: Dataset) -> Dataset:
    empty_offsets = np.zeros(len(dataset) + 1, dtype=np.int64)
    return replace(
        dataset,
        first_node=empty_offsets,
        first_edge=empty_offsets,
        source=dataset.source[:0],
        target=dataset.target[:0],
        node_labels=None,
        node_attributes=None,
        edge_attr=None,
        smiles=(),
    )


def _with_classes_in_order(dataset: Dataset) -> Dataset:
    """Number the classes as a reader of all graphs would: sorted by number if all names are numbers, else by text."""
    dataset = dataset.drop_unused_classes()
    if dataset.classes is None:
        return dataset
    names = dataset.class_names
    numbers = [parse_integer(name) for name in names]
    keys: Sequence[Any] = names if None in numbers else numbers
    order = sorted(range(len(names)), key=keys.__getitem__)
    new = np.append(np.argsort(order), -1)
    return replace(dataset, classes=new[dataset.classes], class_names=tuple(names[number] for number in order))


class _Form(NamedTuple):
    """Type and shape of a row in the file, and its type in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: np.dtype[Any]

    @property
    def width(self) -> int:
        """Bytes per row."""
        return self.dtype.itemsize * int(np.prod(self.shape))


@final
class _MappedRows:
    """The files of a store, mapped on first use.

    Attributes:
        offsets: ``first_node`` and ``first_edge``, ``(graphs + shards,)``: a shard with G graphs has G + 1 offsets.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self._mapped: set[int] = set()
        self._views = {name: [memoryview(b"")] * len(index.shards) for name in (*_NODE_ROWS, *_EDGE_ROWS)}
        self._headers = [self._checked_header(each) for each in index.shards]
        self._first_place = list(accumulate((each.graphs + 1 for each in index.shards), initial=0))
        self.offsets = self._checked_offsets()
        self._forms = {name: self._forms_of(name) for name in (*_NODE_ROWS, *_EDGE_ROWS)}

    def rows(
        self, name: str, shards: list[int], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[Any] | None:
        """Concatenate the rows ``first`` to ``last - 1`` of array ``name`` of each graph."""
        forms = self._forms[name]
        if not forms:
            return None
        for number in {*shards} - self._mapped:
            self._map(number)
        form, *others = forms
        if others or form.kind.kind == "U":
            return self._mixed_rows(name, shards, first.tolist(), last.tolist())
        # Joining byte ranges is several times faster than indexing with numpy, as long as there are few at a time:
        # the garbage collector goes through everything again and again while thousands of views are made.
        width, views = form.width, self._views[name]
        ends = zip(shards, (first * width).tolist(), (last * width).tolist(), strict=True)
        data = bytearray()
        while part := [views[shard][start:stop] for shard, start, stop in islice(ends, _JOINED)]:
            data += b"".join(part)
        if len(data) != int((last - first).sum()) * width:
            raise damage_error(self.folder, f"{name}: a graph exceeds its shard")
        array: NDArray[Any] = np.frombuffer(data, form.dtype).reshape(-1, *form.shape)
        return array if name in _AS_STORED else array.astype(form.kind, copy=False)

    def prefetch(self, shard: int, first: int, last: int) -> None:
        """Tell the operating system that graphs ``first`` to ``last - 1`` of a shard will be read soon.

        Without this hint, every page fault reads megabytes of neighbouring pages.
        """
        position, length = self._first_place[shard] + first, self._first_place[-1]
        size, count = self._offsets_size, 4 * (last - first + 1)
        # The file ends with two arrays of ``length`` offsets of four bytes: of the nodes, then of the edges.
        _will_need(self.folder / OFFSETS, [(size - 4 * (back - position), count) for back in (2 * length, length)])
        nodes, edges = ((int(each[position]), int(each[position + last - first])) for each in self.offsets)
        entries, _, start = self._headers[shard]
        ranges = []
        for names, (begin, end) in ((_NODE_ROWS, nodes), (_EDGE_ROWS, edges)):
            for entry in (entries[name] for name in names if name in entries):
                array_start, array_end = entry["data_offsets"]
                width = (array_end - array_start) // max(1, entry["shape"][0])
                ranges.append((start + array_start + begin * width, (end - begin) * width))
        _will_need(self.folder / self.index.shards[shard].file, ranges)

    def _mixed_rows(self, name: str, shards: list[int], first: list[int], last: list[int]) -> NDArray[Any]:
        """Like :meth:`rows`, for text and for arrays with different types in different shards."""
        parts = []
        for shard, start, stop in zip(shards, first, last, strict=True):
            form = self._form_of(name, shard)
            if form is None:
                if stop > start:
                    raise damage_error(self.folder, f"{name}: missing in {self.index.shards[shard].file}")
                continue
            data = self._views[name][shard][start * form.width : stop * form.width]
            if len(data) != (stop - start) * form.width:
                raise damage_error(self.folder, f"{name}: a graph exceeds its shard")
            array = np.frombuffer(data, form.dtype).reshape(-1, *form.shape)
            try:
                parts.append(array if name in _AS_STORED else convert_array(array, form.kind))
            except ValueError as error:
                raise damage_error(self.folder, f"{name}: {one_line(error)}") from error
        _, shape, kind = self._forms[name][0]
        shape = shape[:-1] if kind.kind == "U" else shape
        empty = np.zeros((0, *shape), parts[0].dtype if parts else object if kind.kind == "U" else kind)
        return np.concatenate([empty, *parts])

    def _checked_header(self, info: ShardInfo) -> tuple[dict[str, Any], dict[str, str], int]:
        """Return a shard's array entries, their types in memory, and the position of the first array."""
        path = self.folder / info.file
        if not path.is_file():
            raise UserError(f"{path}: is missing. Copy it again, or pack the graphs again.")
        metadata, entries = read_header(path)
        size = path.stat().st_size
        if size != info.bytes or metadata.get("checksum") != info.checksum:
            raise UserError(f"{path}: does not match {INDEX}. Copy or pack it again.")
        with user_error_on_failure(f"{path}: is damaged", "Copy or pack it again."):
            lengths = {"first_node": info.graphs, "first_edge": info.graphs}
            lengths |= dict.fromkeys(_NODE_ROWS, info.nodes) | dict.fromkeys(_EDGE_ROWS, info.edges)
            types = check_value(parse_json(metadata["about"])["types"], Mapping[str, str], "types")
            for name, entry in entries.items():
                if name in lengths and (entry["shape"][0] != lengths[name] or 0 in entry["shape"][1:]):
                    raise ValueError(f"{name} has a wrong length")
            if not {"first_node", "first_edge", "source", "degrees"} <= entries.keys():
                raise ValueError("an array is missing")
            integers = ("U8", "U16", "U32")
            if any(entries[name]["dtype"] not in integers and entries[name]["shape"][0] for name in _AS_STORED):
                raise ValueError("node numbers are not integers")
        last = max(entry["data_offsets"][1] for entry in entries.values())
        return entries, types, size - last

    def _checked_offsets(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        path, length = self.folder / OFFSETS, self._first_place[-1]
        size = self._offsets_size = path.stat().st_size if path.is_file() else 0
        if size < 8 * length:
            problem = "incomplete" if path.is_file() else "missing"
            raise UserError(f"{path}: is {problem}. Copy it again, or pack the graphs again.")
        both = np.frombuffer(_mapping(path, size)[size - 8 * length :], "<u4")
        return both[:length], both[length:]

    def _map(self, number: int) -> None:
        info = self.index.shards[number]
        entries, _, start = self._headers[number]
        content = _mapping(self.folder / info.file, info.bytes)
        for name in self._views.keys() & entries.keys():
            first, last = entries[name]["data_offsets"]
            self._views[name][number] = content[start + first : start + last]
        self._mapped.add(number)

    def _form_of(self, name: str, shard: int) -> _Form | None:
        """Form of an array in a shard; None if it is missing."""
        entries, types, _ = self._headers[shard]
        if name not in entries:
            return None
        entry = entries[name]
        try:
            dtype = np.dtype(TYPES[entry["dtype"]])
            return _Form(dtype, tuple(entry["shape"][1:]), parse_dtype(types.get(name, dtype.str)))
        except (TypeError, ValueError) as error:
            raise damage_error(self.folder, f"{name}: {one_line(error)}") from error

    def _forms_of(self, name: str) -> list[_Form]:
        forms = [self._form_of(name, number) for number in range(len(self.index.shards))]
        sizes = [self._headers[number][0].get(name, {"shape": [0]})["shape"][0] for number in range(len(forms))]
        # Ignore the type of empty arrays, unless the array is empty in all shards.
        used = list(dict.fromkeys(form for form, size in zip(forms, sizes, strict=True) if form is not None and size))
        used = used or [form for form in forms if form is not None][:1]
        is_missing = len(used) and name != "edge_attr" and None in forms
        axes = {"degrees": 1, "source": 1}.get(name, 2)
        wrong = [kind for _, shape, kind in used if len(shape) + 1 - (kind.kind == "U") != axes]
        if is_missing or wrong or len({shape for _, shape, kind in used if kind.kind != "U"}) > 1:
            raise damage_error(self.folder, f"{name} differs between shards")
        return used


def _will_need(path: Path, ranges: list[tuple[int, int]]) -> None:
    """Ask the operating system to read ranges (position, size) of a file ahead; failures do not matter."""
    with suppress(OSError, OverflowError, AttributeError):  # AttributeError: not supported by the system
        handle = os.open(path, os.O_RDONLY)
        try:
            for position, size in ranges:
                os.posix_fadvise(handle, position, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(handle)


def _mapping(path: Path, size: int) -> memoryview:
    """Map a file into memory. Unlike Python's mmap, torch does not keep a file handle open."""
    import torch

    try:
        storage = torch.UntypedStorage.from_file(str(path), False, size)
    except (RuntimeError, OSError, UnicodeEncodeError) as error:
        raise UserError(f"{path}: cannot be mapped ({one_line(error)}).") from error
    mapped: NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()  # type: ignore[arg-type]
    return mapped.data
