"""Padded batches."""

import pytest
import torch

from joao.core.graphs import GraphStore
from joao.training.fast.batches import PaddedStore


@pytest.fixture
def padded():
    """Turns a batch into a padded one, with room left over."""

    def pad(batch, spare_nodes=5, spare_edges=7):
        first_edge = torch.searchsorted(batch.target, batch.first_node)
        shift = torch.repeat_interleave(batch.first_node[:-1], first_edge.diff())
        ends = batch.source - shift, batch.target - shift
        store = GraphStore(batch.x, *ends, batch.first_node, first_edge, batch.edge_attr)
        room = batch.num_nodes + 1 + spare_nodes, batch.num_edges + spare_edges
        return PaddedStore(store).batch(torch.arange(batch.num_graphs), *room)

    return pad
