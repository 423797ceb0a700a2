from dataclasses import replace

import pytest
import torch
import torch_geometric.nn as geometric
from torch import nn

from joao.encoders import Convolutions
from tests.messages import refused


@pytest.fixture
def make(make_batch, shapes):
    def batch(columns):
        batch = make_batch([*shapes.values()], with_attributes=True)
        attr = torch.stack([torch.cos(k + batch.edge_attr[:, 0]) + 1.5 for k in range(columns)], dim=1)
        return replace(batch, edge_attr=attr)

    return batch


def by_hand(encoder, batch, **edges):
    """The network in torch-geometric's own words."""
    x, pooled = batch.x, []
    for convolution, norm in zip(encoder.convolutions, encoder.norms, strict=True):
        x = norm(torch.relu(convolution(x, batch.edge_index, **edges)))
        pooled.append(geometric.global_add_pool(x, batch.graph_of_node))
    return torch.cat(pooled, dim=1)


@pytest.mark.parametrize("name", ["GATv2Conv", "GATConv", "TransformerConv", "GENConv", "ResGatedGraphConv"])
def test_convolutions_with_edge_dim_get_the_attributes(name, make):
    batch = make(4)
    encoder = Convolutions(3, 4, name, width=8, layers=2)
    assert isinstance(encoder.convolutions[1], getattr(geometric, name))
    found = encoder(batch)
    torch.testing.assert_close(found, by_hand(encoder, batch, edge_attr=batch.edge_attr))
    other = encoder(replace(batch, edge_attr=batch.edge_attr.flip(1)))
    assert not torch.allclose(found, other)


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
def test_single_attribute_is_edge_weight(name, make):
    batch = make(1)
    encoder = Convolutions(3, 1, name, width=8)
    found = encoder(batch)
    torch.testing.assert_close(found, by_hand(encoder, batch, edge_weight=batch.edge_attr[:, 0]))
    assert not torch.allclose(found, by_hand(encoder, batch))


def test_several_attributes_are_not_edge_weights(make):
    batch = make(2)
    encoder = Convolutions(3, 2, "GCNConv")
    torch.testing.assert_close(encoder(batch), by_hand(encoder, batch))


def test_without_edge_attributes_nothing_is_passed(make):
    batch = replace(make(1), edge_attr=None)
    for name in ("GATv2Conv", "GCNConv", "SAGEConv"):
        encoder = Convolutions(3, 0, name)
        torch.testing.assert_close(encoder(batch), by_hand(encoder, batch))


def test_convolutions_from_a_function(make):
    batch = make(2)
    encoder = Convolutions(3, 2, lambda before, after: geometric.GINEConv(nn.Linear(before, after), edge_dim=2))
    torch.testing.assert_close(encoder(batch), by_hand(encoder, batch, edge_attr=batch.edge_attr))
    encoder = Convolutions(3, 2, lambda before, after: geometric.GATConv(before, after))
    torch.testing.assert_close(encoder(batch), by_hand(encoder, batch))


def test_probing_a_convolution_changes_neither_mode_nor_statistics():
    for module in Convolutions(3, 0, "GENConv").modules():
        assert module.training
        if isinstance(module, nn.BatchNorm1d):
            assert module.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("GatConv", ["'GatConv'", "'GATConv'"]),
        ("Linear", ["'Linear'"]),
        ("GINEConv", ["edge attributes", "function"]),
        ("GCN2Conv", ["edge_index", "function"]),
        ("ChebConv", ["K", "function"]),
        ("AGNNConv", ["(2, 3)", "(2, 32)", "function"]),
    ],
)
def test_unusable_convolutions_are_rejected(name, values):
    with refused("Convolutions", name, *values):
        Convolutions(3, 0, name)
