from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, global_add_pool

from joao.encoders import ResGcn


@pytest.fixture
def batch(make_batch, shapes):
    batch = make_batch([*shapes.values()])
    batch.x[:, 0] = torch.cos(2 * batch.x[:, 0])
    return replace(batch, x=batch.x.double())


@pytest.fixture
def make(generator):
    """An encoder none of whose parameters and statistics is at its start, so that every one of them counts."""

    def make(**options) -> ResGcn:
        encoder, draw = ResGcn(3, **options).double(), generator(5)
        for norm in (*encoder.node_norms, *encoder.graph_norms):
            norm.running_mean.normal_(generator=draw)
            norm.running_var.uniform_(0.5, 2, generator=draw)
        for parameter in encoder.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=draw)
        return encoder

    return make


class Geometric(nn.Module):
    """The same network put together from layers of torch and torch-geometric, with copied weights and statistics."""

    def __init__(self, encoder):
        super().__init__()
        width, num_features = encoder.first.weight.shape
        norms = [*encoder.node_norms, *encoder.graph_norms]
        self.first = nn.Linear(num_features, width, bias=False)
        self.convolutions = nn.ModuleList(GCNConv(width, width) for _ in encoder.convolutions)
        self.last = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.BatchNorm1d(norm.num_features) for norm in norms)
        self.double().train(encoder.training)
        self.first.load_state_dict(encoder.first.state_dict())
        self.last.load_state_dict(encoder.last.state_dict())
        for own, given in zip(self.convolutions, encoder.convolutions, strict=True):
            own.load_state_dict({"lin.weight": given.weight, "bias": given.bias})
        for own, given in zip(self.norms, norms, strict=True):
            own.load_state_dict(given.state_dict())

    def forward(self, x, edge_index, graph_of_node):
        norm, *of_convolutions, before, behind = self.norms
        x = self.first(norm(x)).relu()
        for convolution, norm in zip(self.convolutions, of_convolutions, strict=True):
            x = convolution(norm(x), edge_index).relu()
        return behind(self.last(before(global_add_pool(x, graph_of_node))).relu())


def in_their_order(encoder):
    """The encoder's parameters and buffers, as those of :class:`Geometric` come."""
    convolutions = [each for layer in encoder.convolutions for each in (layer.bias, layer.weight)]
    norms = [*encoder.node_norms, *encoder.graph_norms]
    parameters = [encoder.first.weight, *convolutions, *encoder.last.parameters()]
    parameters += [each for norm in norms for each in norm.parameters()]
    return parameters, [each for norm in norms for each in norm.buffers()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_torch_geometrics_convolutions_forward_and_backward(make, batch, layers, training, generator):
    encoder = make(width=8, layers=layers).train(training)
    oracle = Geometric(encoder)
    x, same_x = (batch.x.clone().requires_grad_() for _ in range(2))
    found = encoder(replace(batch, x=x))
    expected = oracle(same_x, batch.edge_index, batch.graph_of_node)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=generator())
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, same_x.grad)
    parameters, buffers = in_their_order(encoder)
    for one, other in zip(parameters, oracle.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(buffers, oracle.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def dense(batch):
    """The matrix of a convolution, entry by entry: 1 / sqrt((1 + deg u) (1 + deg v)) for u = v and for neighbours."""
    edges = set(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    size = [1 + sum(v == node for _, v in edges) for node in range(batch.num_nodes)]
    matrix = torch.zeros(batch.num_nodes, batch.num_nodes, dtype=torch.float64)
    for u in range(batch.num_nodes):
        for v in range(batch.num_nodes):
            if u == v or (u, v) in edges:
                matrix[v, u] = (size[u] * size[v]) ** -0.5
    return matrix


def normalised(norm, x):
    return norm.weight * (x - x.mean(0)) / (x.var(0, correction=0) + norm.eps).sqrt() + norm.bias


@pytest.mark.parametrize("residual", [False, True])
def test_a_residual_connection_adds_a_convolutions_input_to_its_output(make, batch, residual):
    encoder = make(width=5, layers=2, residual=residual)
    of_input, *norms = encoder.node_norms
    x = torch.clamp(normalised(of_input, batch.x) @ encoder.first.weight.T, min=0)
    for convolution, norm in zip(encoder.convolutions, norms, strict=True):
        made = dense(batch) @ normalised(norm, x) @ convolution.weight.T + convolution.bias
        x = torch.clamp(made, min=0) + (x if residual else 0)
    torch.testing.assert_close(encoder.encode_nodes(batch), x)
    pooled = torch.stack([x[batch.graph_of_node == graph].sum(0) for graph in range(batch.num_graphs)])
    before, behind = encoder.graph_norms
    hidden = torch.clamp(normalised(before, pooled) @ encoder.last.weight.T + encoder.last.bias, min=0)
    torch.testing.assert_close(encoder(batch), normalised(behind, hidden))


def test_published_network_is_the_default_with_its_initial_values():
    encoder = ResGcn(37)
    assert not encoder.residual
    assert (encoder.num_dimensions, encoder.num_node_dimensions) == (128, 128)
    assert [tuple(parameter.shape) for name, parameter in encoder.named_parameters() if "norm" not in name] == [
        (128, 37),  # without a bias
        *[(128, 128), (128,)] * 3,
        *[(128, 128), (128,)],
    ]
    norms = [module for module in encoder.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == [37] + [128] * 5
    for norm in norms:
        assert (norm.weight == 1).all()
        assert (norm.bias == 1e-4).all()
    for layer in encoder.modules():
        if isinstance(layer, nn.Linear):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            assert 0.99 * bound < layer.weight.abs().max() <= bound
            assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
            assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize(("width", "layers"), [(4, 1), (7, 2), (3, 6)])
def test_width_and_layers_options(width, layers, batch):
    encoder = ResGcn(3, width=width, layers=layers).double()
    assert len(encoder.convolutions) == layers
    assert encoder(batch).shape == (batch.num_graphs, width)
    assert encoder.encode_nodes(batch).shape == (batch.num_nodes, width)


@pytest.mark.parametrize("residual", [False, True])
def test_edge_attributes_are_not_used(make, batch, residual):
    encoder = make(width=4, residual=residual).eval()
    with_attributes = replace(batch, edge_attr=torch.randn(batch.num_edges, 2))
    assert not encoder.uses_edge_attr
    assert torch.equal(encoder(with_attributes), encoder(batch))


@pytest.mark.parametrize("residual", [False, True])
def test_constant_columns_give_finite_and_different_embeddings(batch, residual):
    constant = replace(batch, x=torch.ones_like(batch.x))
    encoder = ResGcn(3, width=6, residual=residual).double()
    embeddings = encoder(constant)
    assert embeddings.isfinite().all()
    assert embeddings.std(0).max() > 0.1  # graphs of different shapes are still told apart
