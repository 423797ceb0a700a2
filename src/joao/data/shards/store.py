"""Batches of the graphs of a store of shards."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.core.graphs import GraphBatch, GraphStore, Store
from joao.data.dataset import sizes_to_offsets
from joao.data.features import Features, make_store
from joao.data.shards.shards import Shards

# Number of graphs that are read together; 4,096 molecules take half a megabyte.
BLOCK = 1 << 12
_MAX_PREFETCHED = 1 << 10


@final
class ShardStore(Store):
    """Reads batches from shards and computes their features. It contains no labels, so none can reach pre-training."""

    def __init__(self, shards: Shards, features: Features, device: torch.device | str = "cpu") -> None:
        self.shards, self.features, self._device = shards, features, torch.device(device)
        self._prefetched: dict[int, None] = {}
        self._num_features = features.columns(shards[0]).shape[1]

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def num_features(self) -> int:
        return self._num_features

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def num_edge_features(self) -> int:
        return self.shards.facts.num_edge_features

    def to(self, device: torch.device | str) -> ShardStore:
        return ShardStore(self.shards, self.features, device)

    def sizes(self, graphs: Tensor) -> Tensor:
        nodes, edges = self.shards.sizes(graphs.cpu().numpy())
        return torch.from_numpy(nodes + edges)

    def batch(self, graphs: Tensor) -> GraphBatch:
        numbers = graphs.cpu().numpy()
        self._prefetch(numbers)
        dataset = self.shards.graphs(numbers)
        nodes, edges = np.diff(dataset.first_node), np.diff(dataset.first_edge)
        x = self.features.columns(dataset)
        batch = GraphBatch(
            x=x.float() if x.dtype == torch.uint8 else x,
            source=torch.from_numpy(dataset.source + np.repeat(dataset.first_node[:-1], edges)),
            target=torch.from_numpy(np.repeat(np.arange(dataset.num_nodes), dataset.degrees)),
            graph_of_node=torch.from_numpy(np.repeat(np.arange(len(dataset)), nodes)),
            num_graphs=len(dataset),
            edge_attr=None if dataset.edge_attr is None else torch.from_numpy(dataset.edge_attr).float(),
        )
        if self.device.type != "cpu":
            return batch.to(self.device)
        first_edge = sizes_to_offsets(dataset.degrees)
        known = {"nodes_per_graph": nodes, "first_node": dataset.first_node, "first_edge": first_edge}
        batch.__dict__.update({name: torch.from_numpy(value) for name, value in known.items()})  # cached properties
        return batch

    def graphs(self, graphs: Tensor) -> GraphStore:
        """Read the graphs numbered ``graphs`` ``(g,)``, in that order, into memory."""
        numbers = graphs.numpy()
        self._prefetch(numbers)
        return make_store(self.shards.graphs(numbers), self.features)

    def _prefetch(self, graphs: NDArray[np.int64]) -> None:
        """Prefetch the blocks of ``graphs`` that were not prefetched recently: more of their graphs will follow."""
        for block in {*(graphs // BLOCK).tolist()} - self._prefetched.keys():
            self.shards.prefetch(block * BLOCK, (block + 1) * BLOCK)
            self._prefetched[block] = None
        # In one operation each, because another thread may read graphs, too (joao.training.fast.feed).
        for block in list(self._prefetched)[:-_MAX_PREFETCHED]:
            self._prefetched.pop(block, None)
