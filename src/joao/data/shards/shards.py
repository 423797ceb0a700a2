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
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.data.dataset import Dataset, as_bytes, concatenate_datasets, sizes_to_offsets
from joao.data.formats.packed import read_packed
from joao.data.shards.index import INDEX, OFFSETS, Facts, Index, damage_error
from joao.data.shards.rows import EDGE_ROWS, NODE_ROWS, MappedRows
from joao.data.validation import check_molecules


@final
class Shards:
    """The graphs of a store.

    Attributes:
        folder: folder of the store.
        name: used in messages and records.
        facts: summary of all graphs.
        notices: changes made on packing that the user should know about.
        kind, featuriser: as in :class:`Dataset`.
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
        own = [each.fingerprint for each in index.shards]
        self.fingerprint = own[0] if len(own) == 1 else hashlib.sha256(" ".join(own).encode()).hexdigest()[:16]
        self._first_graph = np.array(list(accumulate((each.graphs for each in index.shards), initial=0)))
        self._rows = MappedRows(folder, index)

    def __reduce__(self) -> tuple[type[Shards], tuple[Path]]:
        """Pickle the path: another process opens the same store."""
        return Shards, (self.folder.absolute(),)

    def __repr__(self) -> str:
        return f"Shards({self.name!r}, {len(self)} {self.kind} in {len(self.index.shards)} shards)"

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
        if len(numbers) and not (-len(self) <= numbers.min() and numbers.max() < len(self)):
            raise IndexError(f"{self.name}: expected a graph number from 0 to {len(self) - 1}")
        return self.graphs(numbers % len(self))

    def sizes(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of nodes and of directed edges of the graphs ``numbers``, ``(g,)`` each."""
        # Each earlier shard has one offset more than graphs.
        place = numbers + self._shard_of(numbers)
        nodes, edges = ((each[place + 1].astype(np.int64) - each[place]) for each in self._rows.offsets)
        return nodes, edges

    def graphs(self, numbers: NDArray[np.int64]) -> Dataset:
        """Return the graphs ``numbers`` ``(g,)``, in that order, without labels and names."""
        shard = self._shard_of(numbers)
        place, shards = numbers + shard, shard.tolist()
        bounds = [(each[place].astype(np.int64), each[place + 1].astype(np.int64)) for each in self._rows.offsets]
        (_, nodes), (_, edges) = ((first, last - first) for first, last in bounds)
        if len(numbers) and (nodes.min() < 1 or edges.min() < 0):
            raise damage_error(self.folder, "a graph has an invalid size")
        rows = {name: self._rows.rows(name, shards, *bounds[0]) for name in NODE_ROWS}
        rows |= {name: self._rows.rows(name, shards, *bounds[1]) for name in EDGE_ROWS}
        first_node, first_edge = sizes_to_offsets(nodes), sizes_to_offsets(edges)
        degrees, source = rows["degrees"], rows["source"]
        assert degrees is not None  # checked when the store was opened
        assert source is not None
        degrees = degrees.astype(np.int64)
        if (sizes_to_offsets(degrees)[first_node] != first_edge).any() or (source >= np.repeat(nodes, edges)).any():
            raise damage_error(self.folder, "an edge refers to a node outside its graph")
        inside = np.arange(len(degrees)) - np.repeat(first_node[:-1], nodes)
        dataset = Dataset(
            name=self.name,
            first_node=first_node,
            first_edge=first_edge,
            source=source,
            target=np.repeat(inside.astype(source.dtype), degrees),
            node_labels=rows["node_labels"],
            node_attributes=rows["node_attributes"],
            edge_attr=rows["edge_attr"],
            kind=self.kind,
            featuriser=self.featuriser,
        )
        if self.kind == "molecules":
            try:
                check_molecules(dataset)
            except ValueError as error:
                raise damage_error(self.folder, str(error)) from error
        vars(dataset)["degrees"] = degrees  # saves computing them
        return dataset

    def prefetch(self, first: int, last: int) -> None:
        """Tell the operating system that graphs ``first`` to ``last - 1`` will be read soon."""
        last = min(last, len(self))
        begin, end = self._shard_of(np.array([first, last - 1])).tolist()
        for shard in range(begin, end + 1):
            own, behind = self._first_graph[shard : shard + 2].tolist()
            self._rows.prefetch(shard, max(first, own) - own, min(last, behind) - own)

    def pieces(self) -> Iterator[Dataset]:
        """Read and check one shard after the other, with labels and names; rows are counted inside each shard."""
        for info in self.index.shards:
            dataset = read_packed(self.folder / info.file)
            if dataset.edge_attr is None and self.facts.num_edge_features and not dataset.num_edges:
                dataset = replace(dataset, edge_attr=np.zeros((0, self.facts.num_edge_features), np.float32))
            yield replace(dataset, name=self.name)

    def whole(self) -> Dataset:
        """Read all graphs into memory, with labels and names, as if read from the source."""
        return _with_classes_in_order(
            replace(concatenate_datasets(list(self.pieces()), self.name), notices=self.notices)
        )

    def labels(self) -> Dataset:
        """Read graph names, classes, tasks and failures, without nodes and edges."""
        return _with_classes_in_order(
            concatenate_datasets([_without_graphs(piece) for piece in self.pieces()], self.name)
        )

    def check(self) -> None:
        """Read every shard, and check checksums, graphs, offsets and index."""
        facts: Facts | None = None
        for number, info in enumerate(self.index.shards):
            dataset = read_packed(self.folder / info.file)  # the checksum of its header was compared on opening
            first = self._first_graph[number] + number
            for offsets, own in zip(self._rows.offsets, (dataset.first_node, dataset.first_edge), strict=True):
                if (offsets[first : first + len(own)] != own).any():
                    raise damage_error(self.folder, f"wrong offsets of {info.file}")
            if dataset.fingerprint != info.fingerprint:
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
    nothing = np.zeros(len(dataset) + 1, dtype=np.int64)
    return replace(
        dataset,
        first_node=nothing,
        first_edge=nothing,
        source=dataset.source[:0],
        target=dataset.target[:0],
        node_labels=None,
        node_attributes=None,
        edge_attr=None,
        smiles=(),
    )


def _with_classes_in_order(dataset: Dataset) -> Dataset:
    """Number the classes as a reader of all graphs would: sorted by number if all names are numbers, else by text."""
    if dataset.classes is None:
        return dataset
    names = dataset.class_names
    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    keys = [int(name) for name in names] if are_numbers else list(names)
    order = np.argsort(np.array(keys))
    new = np.append(np.argsort(order), -1)
    return replace(dataset, classes=new[dataset.classes], class_names=tuple(names[number] for number in order))
