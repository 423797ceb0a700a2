"""Graphs from shards on the fast path: those of the next batches are on the device, and the following are read ahead.

The batches of an epoch are divided into *chunks* of consecutive batches. While the graphs of one chunk are trained on,
a thread reads those of the next one and copies them to the device: on a GPU from pinned memory in a stream of its own.
So the device holds two chunks, however many graphs there are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from joao.core.graphs import GraphStore
from joao.data.shards.store import ShardStore
from joao.training.fast.batches import PaddedStore

CHUNK_BYTES = 1 << 27  # on the device, for the nodes and as much for the edges of a chunk
FIRST_CHUNK = 64  # the first chunk, for which training waits, has this part of the size; the next ones double it
_COUNTED = 1 << 20  # graphs whose sizes are read at once


@final
class ShardFeed:
    """Keep the graphs of a chunk of batches on the device of ``store``."""

    def __init__(self, store: ShardStore, with_edge_attr: bool) -> None:
        self.reader, self.device, self.with_edge_attr = store.to("cpu"), store.device, with_edge_attr
        # Of high priority: training does not wait for this stream unless the next chunk is late.
        self.stream = torch.cuda.Stream(self.device, priority=-1) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        # CUDA graphs read from the tensors of these stores, so they are kept and refilled. There is more than one
        # because pairs may be measured inside an epoch, while the feed of the training is not finished.
        self.stores: list[PaddedStore] = []
        self.free_stores: list[PaddedStore] = []

    def sizes(self, graphs: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of nodes and of directed edges of ``graphs``."""
        nodes, edges = self.reader.shards.sizes(graphs.numpy())
        return torch.from_numpy(nodes), torch.from_numpy(edges)

    def count_sizes(self) -> tuple[Counter[int], Counter[int]]:
        """Number of graphs by number of nodes and by number of directed edges."""
        counters: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        for start in range(0, len(self.reader), _COUNTED):
            sizes = self.reader.shards.sizes(np.arange(start, min(start + _COUNTED, len(self.reader))))
            for counter, each in zip(counters, sizes, strict=True):
                values, counts = np.unique(each, return_counts=True)
                counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        return counters

    def feed(
        self, batches: Sequence[Tensor], sizes: Sequence[tuple[int, int]], largest: tuple[int, int]
    ) -> Iterator[tuple[PaddedStore, Tensor]]:
        """Yield a store on the device for each batch, and the numbers of its graphs there.

        Args:
            batches: indices of graphs.
            sizes: numbers of nodes and of directed edges of each batch.
            largest: those that a batch of the training may have.
        """
        chunks = self._chunks(batches, sizes)
        capacity = [*map(max, self._limits(), largest)]  # one batch may be larger than the limits of a chunk
        store = self.free_stores.pop() if self.free_stores else None
        with ThreadPoolExecutor(1, "joao-shards") as thread:
            next_chunk = thread.submit(self._read, chunks[0]) if chunks else None
            try:
                for number, chunk in enumerate(chunks, 1):
                    assert next_chunk is not None
                    store = self._move(next_chunk.result(), store, capacity)
                    next_chunk = thread.submit(self._read, chunks[number]) if number < len(chunks) else None
                    rows = torch.arange(sum(map(len, chunk)), device=self.device)
                    for rows_of_batch in torch.split(rows, [*map(len, chunk)]):
                        yield store, rows_of_batch
            finally:
                if store is not None:
                    self.free_stores.append(store)

    def _limits(self) -> tuple[int, int]:
        """Nodes and directed edges of a chunk: four bytes per feature, and eight per number of a :class:`PaddedStore`.

        A node may be a graph, so it has five numbers. An edge has three.
        """
        nodes = CHUNK_BYTES // (4 * self.reader.num_features + 40)
        return nodes, CHUNK_BYTES // (4 * self.reader.num_edge_features * self.with_edge_attr + 24)

    def _chunks(self, batches: Sequence[Tensor], sizes: Sequence[tuple[int, int]]) -> list[list[Tensor]]:
        """Divide batches into chunks within the limits, of at least one batch each."""
        chunks: list[list[Tensor]] = []
        used = (0, 0)
        for batch, own in zip(batches, sizes, strict=True):
            part = max(1, FIRST_CHUNK >> max(0, len(chunks) - 1))
            fits = all(a + b <= most // part for a, b, most in zip(used, own, self._limits(), strict=True))
            if not chunks or not fits:
                chunks.append([])
                used = (0, 0)
            chunks[-1].append(batch)
            used = (used[0] + own[0], used[1] + own[1])
        return chunks

    def _read(self, chunk: Sequence[Tensor]) -> PaddedStore:
        """Read the graphs of a chunk, and copy them to the device; runs in the thread."""
        store = self.reader.graphs(torch.cat(list(chunk)))
        if not self.with_edge_attr:
            store = replace(store, edge_attr=None)
        facts = self.reader.shards.facts
        most = facts.most_nodes, 2 * facts.most_edges
        if self.stream is None:
            return PaddedStore(store, most)
        # The thread waits here only: until the chunk before is copied, whose pinned memory can then be used again.
        self.stream.synchronize()
        with torch.cuda.stream(self.stream):
            tensors = {each.name: getattr(store, each.name) for each in fields(store)}
            pinned = {name: value.pin_memory() for name, value in tensors.items() if value is not None}
            moved = {name: value.to(self.device, non_blocking=True) for name, value in pinned.items()}
            return PaddedStore(GraphStore(**moved), most)

    def _move(self, chunk: PaddedStore, store: PaddedStore | None, capacity: Sequence[int]) -> PaddedStore:
        """Copy a chunk to the store that CUDA graphs read from, or to a new one if there is none or it is too small."""
        nodes, edges = capacity
        if store is None or len(store.x) <= nodes or len(store.source) <= edges:
            store = chunk.with_capacity(nodes, edges)
            self.stores.append(store)
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        store.copy_(chunk)
        if self.stream is not None:
            # The memory of ``chunk`` belongs to the stream, which may use it again only after this copy.
            self.stream.wait_stream(torch.cuda.current_stream())
        return store
