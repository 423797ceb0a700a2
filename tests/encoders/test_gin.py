import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GINConv, GINEConv, global_add_pool

from joao.encoders import Gin, Gine
from joao.encoders.base import sum_nodes
from joao.encoders.layers import add_neighbours, adjacency


@pytest.fixture
def batch(make_batch, shapes):
    batch = make_batch([*shapes.values()])
    batch.x[:, 0] = torch.cos(2 * batch.x[:, 0])
    return batch


def dense_adjacency(batch):
    matrix = torch.zeros(batch.num_nodes, batch.num_nodes, dtype=torch.float64)
    for u, v in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        matrix[v, u] = 1
    return matrix


def test_neighbours_are_added_as_by_a_dense_matrix_forward_and_backward(batch, generator):
    weights = torch.randn(batch.num_nodes, 3, dtype=torch.float64, generator=generator())
    x, same_x = (batch.x.double().requires_grad_() for _ in range(2))
    found = add_neighbours(x, adjacency(batch, torch.float64))
    expected = same_x + dense_adjacency(batch) @ same_x
    torch.testing.assert_close(found, expected)
    (found.sin() * weights).sum().backward()
    (expected.sin() * weights).sum().backward()
    torch.testing.assert_close(x.grad, same_x.grad)


def test_gradients_of_both_sums_are_those_of_finite_differences(make_batch, shapes):
    batch = make_batch([shapes["star"], shapes["edgeless"], shapes["single node"], shapes["path"]])
    x = torch.randn(batch.num_nodes, 2, dtype=torch.float64, requires_grad=True)
    matrix = adjacency(batch, torch.float64)
    assert torch.autograd.gradcheck(lambda x: add_neighbours(x, matrix), x)
    assert torch.autograd.gradcheck(lambda x: sum_nodes(x, batch), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_nodes_are_summed_as_by_a_loop(batch, dtype):
    expected = torch.zeros(batch.num_graphs, 3, dtype=torch.float64)
    for row, graph in zip(batch.x.to(dtype).double(), batch.graph_of_node.tolist(), strict=True):
        expected[graph] += row
    found = sum_nodes(batch.x.to(dtype), batch)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype), rtol=1e-5 if dtype != torch.bfloat16 else 0.05, atol=1e-5)


def test_a_batch_without_edges_adds_nothing(make_batch):
    batch = make_batch([(3, []), (1, [])])
    x = batch.x.clone().requires_grad_()
    found = add_neighbours(x, adjacency(batch))
    found.sum().backward()
    assert torch.equal(found, batch.x)
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_summed_in_single_precision_even_under_autocast(batch, dtype):
    x = batch.x.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = add_neighbours(x, adjacency(batch))
        found.square().sum().backward()
    matrix = dense_adjacency(batch) + torch.eye(batch.num_nodes)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), matrix @ x.double())
    torch.testing.assert_close(x.grad, (matrix @ (2 * matrix @ x.double())).to(dtype), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layers", [1, 3])
def test_equals_torch_geometrics_convolution_forward_and_backward(batch, layers, generator):
    encoder = Gin(3, width=8, layers=layers).double()
    norms = [nn.BatchNorm1d(8).double() for _ in range(layers)]
    x, same_x = (batch.x.double().requires_grad_() for _ in range(2))
    found = encoder(type(batch)(x, batch.source, batch.target, batch.graph_of_node, batch.num_graphs))
    hidden, pooled = same_x, []
    convolutions = [GINConv(copy.deepcopy(mlp)) for mlp in encoder.mlps]
    for mlp, convolution, norm in zip(encoder.mlps, convolutions, norms, strict=True):
        convolution.nn.load_state_dict(mlp.state_dict())  # GINConv draws the weights of what it is given afresh
        hidden = norm(convolution(hidden, batch.edge_index))
        pooled.append(global_add_pool(hidden, batch.graph_of_node))
    expected = torch.cat(pooled, dim=1)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=generator())
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, same_x.grad)
    for mlp, convolution in zip(encoder.mlps, convolutions, strict=True):
        for one, other in zip(mlp.parameters(), convolution.nn.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


def test_embedding_is_the_sum_of_concatenated_node_vectors(batch):
    encoder = Gin(3, width=4, layers=3)
    vectors = encoder.encode_nodes(batch)
    assert vectors.shape == (batch.num_nodes, 12)
    expected = torch.stack([vectors[batch.graph_of_node == graph].sum(0) for graph in range(batch.num_graphs)])
    torch.testing.assert_close(encoder(batch), expected)
    torch.testing.assert_close(vectors.mean(0), torch.zeros(12), rtol=0, atol=1e-5)  # normalised layer by layer


def test_layers_start_xavier_uniform_with_zero_bias():
    for layer in Gin(300, width=200, layers=1).modules():
        if isinstance(layer, nn.Linear):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            assert not layer.bias.any()
            assert 0.99 * bound < layer.weight.abs().max() <= bound


@pytest.mark.parametrize("columns", [1, 3])
def test_gine_is_that_of_torch_geometric(make_batch, shapes, columns, generator):
    batch = make_batch([*shapes.values()], with_attributes=True)
    attr = torch.randn(batch.num_edges, columns, dtype=torch.float64, generator=generator())
    batch = replace(batch, x=torch.sin(batch.x).double(), edge_attr=attr)
    encoder = Gine(batch.x.shape[1], columns, width=5, layers=2).double().eval()
    x, pooled = batch.x, []
    for edges, mlp, norm in zip(encoder.edges, encoder.mlps, encoder.norms, strict=True):
        convolution = GINEConv(copy.deepcopy(mlp), edge_dim=columns).double()
        convolution.nn.load_state_dict(mlp.state_dict())  # the constructor draws new weights
        convolution.lin.weight.data, convolution.lin.bias.data = edges.weight[:, :-1], edges.weight[:, -1]
        x = norm(convolution(x, batch.edge_index, attr))
        pooled.append(global_add_pool(x, batch.graph_of_node, batch.num_graphs))
    torch.testing.assert_close(encoder(batch), torch.cat(pooled, dim=1))


def test_gine_without_edge_attributes_has_messages_of_the_neighbour_alone(batch):
    encoder = Gine(batch.x.shape[1], width=5, layers=1).eval()
    bias = encoder.edges[0].weight[:, 0]
    summed = [row.clone() for row in batch.x]
    for u, v in batch.edge_index.T.tolist():
        summed[v] += (batch.x[u] + bias).clamp(min=0)
    expected = encoder.norms[0](encoder.mlps[0](torch.stack(summed)))
    torch.testing.assert_close(encoder.encode_nodes(batch), expected)
