from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GINEConv, global_add_pool, global_mean_pool

from joao.encoders.convolutions import ModuleEncoder
from tests.messages import refused


class Geometric(nn.Module):
    """A network as users of torch-geometric write it."""

    def __init__(self):
        super().__init__()
        self.convolution = GCNConv(3, 5)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.norm(self.convolution(x, edge_index)), batch)


class WithAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = GINEConv(nn.Linear(3, 4), edge_dim=1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size=None):
        return global_add_pool(self.convolution(x, edge_index, edge_attr), batch, batch_size)


class Told(nn.Module):
    """Remembers what it was called with."""

    def forward(self, x, batch_size, edge_weight=None, edge_attr=None, **others):
        self.edge_weight, self.edge_attr, self.others = edge_weight, edge_attr, others
        return x[:batch_size]


class Returns(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.result = result

    def forward(self, x):
        return self.result(x)


@pytest.fixture
def batch(make_batch, shapes):
    return make_batch([*shapes.values()], with_attributes=True)


def test_module_gets_the_arguments_of_its_forward(batch):
    module = Geometric()
    encoder = ModuleEncoder(module, batch)
    assert encoder.num_dimensions == 5
    torch.testing.assert_close(encoder(batch), module(batch.x, batch.edge_index, batch.graph_of_node))


def test_edge_attributes_are_passed_on(batch):
    module = WithAttributes()
    encoder = ModuleEncoder(module, batch)
    expected = module(batch.x, batch.edge_index, batch.edge_attr, batch.graph_of_node, batch.num_graphs)
    torch.testing.assert_close(encoder(batch), expected)
    assert not torch.allclose(encoder(replace(batch, edge_attr=batch.edge_attr + 1)), expected)


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_single_attribute_is_also_edge_weight(batch, columns):
    module = Told()
    attr = batch.edge_attr.repeat(1, columns) if columns else None
    ModuleEncoder(module, replace(batch, edge_attr=attr))
    assert module.others == {}
    assert module.edge_attr is attr
    if columns == 1:
        assert torch.equal(module.edge_weight, batch.edge_attr[:, 0])
    else:
        assert module.edge_weight is None


@pytest.mark.parametrize("training", [True, False])
def test_probing_a_module_changes_neither_mode_nor_statistics(batch, training):
    module = Geometric().train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    encoder = ModuleEncoder(module, batch)
    assert module.training == encoder.training == training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (lambda x: x, ["(49, 3)", 8, "torch_geometric.nn.global_add_pool"]),
        (lambda x: x[:8, 0], ["(8,)", 8]),
        (lambda x: (x[:8], x), ["tuple"]),
        (lambda x: None, ["NoneType"]),
    ],
)
def test_wrong_outputs_are_rejected(batch, result, values):
    with refused("Returns", *values):
        ModuleEncoder(Returns(result), batch)


def test_unknown_forward_argument_is_rejected(batch):
    class Wants(nn.Module):
        def forward(self, x, adjacency):
            return x

    with refused("Wants", "'adjacency'", "x, edge_index"):
        ModuleEncoder(Wants(), batch)
