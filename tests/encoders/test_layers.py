"""Diffusion against a dense matrix, and running statistics against torch's batch normalisation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from joao.encoders import ENCODERS, Convolutions, EdgeGin, Gin, MoleculeGin, NodeEncoder, ResGcn
from joao.encoders.layers import add_neighbours, diffusion, environments, update_running_statistics

ALPHAS = pytest.mark.parametrize("alpha", [0.05, 0.2, 0.9])
CAN_DIFFUSE = [kind for kind in ENCODERS.values() if issubclass(kind, NodeEncoder) and kind.can_diffuse]


@pytest.fixture
def batch(make_batch, shapes):
    batch = make_batch([*shapes.values()])
    return replace(batch, x=torch.sin(batch.x).double())


def page_rank(batch, alpha):
    """``(N, N)`` as defined, by numpy."""
    matrix = np.eye(batch.num_nodes)
    for u, v in batch.edge_index.T.tolist():
        matrix[v, u] = 1
    root = np.sqrt(matrix.sum(1))
    inverse = np.linalg.inv(np.eye(batch.num_nodes) - (1 - alpha) * matrix / root / root[:, None])
    return torch.from_numpy(alpha * inverse)


@ALPHAS
@pytest.mark.parametrize("tolerance", [0.1, 1e-3, 1e-11])
def test_diffusion_matches_the_inverse_up_to_tolerance(batch, alpha, tolerance):
    every_node = torch.eye(batch.num_nodes, dtype=torch.float64)
    found = add_neighbours(every_node, diffusion(batch, alpha, torch.float64, tolerance))
    assert torch.linalg.matrix_norm(found - page_rank(batch, alpha), 2) <= tolerance + 1e-14


def test_two_nodes_by_hand(make_batch):
    # Half of either stays at every step: A = [[1, 1], [1, 1]] / 2, so A A = A and S = 0.2 I + 0.8 A.
    batch = make_batch([(2, [(0, 1)])])
    found = add_neighbours(torch.eye(2), diffusion(batch, 0.2, torch.float32))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4], [0.4, 0.6]]), rtol=0, atol=1e-3)


def test_published_alpha_needs_ten_products(batch):
    assert len(diffusion(batch, 0.2, torch.float32).weights) == 1 + 10


@ALPHAS
def test_gradient_is_that_of_the_dense_matrix(batch, alpha, generator):
    weights = torch.randn(batch.x.shape, dtype=torch.float64, generator=generator())
    x, same_x = (batch.x.clone().requires_grad_() for _ in range(2))
    (add_neighbours(x, diffusion(batch, alpha, torch.float64, 1e-13)).sin() * weights).sum().backward()
    ((page_rank(batch, alpha) @ same_x).sin() * weights).sum().backward()
    torch.testing.assert_close(x.grad, same_x.grad)


def in_layers(encoder, x, matrix):
    """The nodes' vectors by the encoder's equation, with any matrix in place of its own."""
    made = []
    if isinstance(encoder, Gin):
        for mlp, norm in zip(encoder.mlps, encoder.norms, strict=True):
            x = norm(mlp(matrix @ x))
            made.append(x)
        return torch.cat(made, dim=1)
    norms = [*encoder.node_norms]
    x = torch.relu(encoder.first(norms[0](x)))
    for convolution, norm in zip(encoder.convolutions, norms[1:], strict=True):
        x = torch.relu(convolution(matrix @ norm(x)))
    return x


@ALPHAS
@pytest.mark.parametrize("kind", [Gin, ResGcn])
@torch.no_grad()
def test_diffusion_matches_the_dense_matrix(kind, batch, alpha):
    encoder = kind(3, width=8).double().eval()
    plain = encoder.encode_nodes(batch)
    encoder.diffusion = alpha
    expected = in_layers(encoder, batch.x, page_rank(batch, alpha))
    found = encoder.encode_nodes(batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2 * expected.abs().max().item())
    assert (found - plain).abs().max() > 5e-2 * plain.abs().max()


@pytest.mark.parametrize("kind", CAN_DIFFUSE)
@torch.no_grad()
def test_diffusion_can_be_switched_on_and_off(kind, batch):
    encoder = kind(3, width=8).double().eval()
    plain = encoder.encode_nodes(batch)
    encoder.diffusion = 0.2
    assert not torch.allclose(encoder.encode_nodes(batch), plain)
    encoder.diffusion = None
    assert torch.equal(encoder.encode_nodes(batch), plain)


def test_encoders_with_edge_attributes_cannot_diffuse():
    assert {Convolutions, EdgeGin, MoleculeGin}.isdisjoint(CAN_DIFFUSE)


@pytest.mark.parametrize("momentum", [0.1, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_running_statistics_match_batch_norm(momentum, dtype, generator):
    draw, rows = generator(), [9, 2, 30]
    widths = [4, 1, 7]
    own, given = ([nn.BatchNorm1d(width, momentum=momentum, dtype=dtype) for width in widths] for _ in range(2))
    for _ in range(2):  # the second time from statistics that are no longer those at the start
        means, variances = [], []
        for norm, width in zip(own, widths, strict=True):
            views = [torch.randn(count, width, dtype=dtype, generator=draw) * width + 1 for count in rows]
            for view in views:
                norm(view)
            means.append(torch.stack([view.mean(0) for view in views]))
            variances.append(torch.stack([view.var(0, correction=0) for view in views]))
        keep = torch.arange(max(rows)) < torch.tensor(rows)[:, None]
        update_running_statistics(given, keep, list(zip(means, variances, strict=True)))
        for norm, expected in zip(given, own, strict=True):
            for name, value in expected.named_buffers():
                torch.testing.assert_close(getattr(norm, name), value, msg=name)


def test_running_statistics_do_not_change_weights():
    norm = nn.BatchNorm1d(3)
    update_running_statistics([norm], torch.ones(1, 5, dtype=torch.bool), [(torch.ones(1, 3), torch.ones(1, 3))])
    assert (norm.weight == 1).all()
    assert not norm.bias.any()


def surroundings(batch, node, layers):
    """A nested tuple: the node's numbers, and those of its neighbours and edges up to ``layers`` steps away."""
    if not layers:
        return tuple(batch.x[node].tolist())
    edges = (batch.target == node).nonzero().flatten().tolist()
    around = sorted(
        (surroundings(batch, batch.source[e], layers - 1), tuple(batch.edge_attr[e].tolist())) for e in edges
    )
    return surroundings(batch, node, layers - 1), tuple(around)


def test_environments_are_the_different_surroundings(make_batch, shapes, as_atoms):
    batch = as_atoms(make_batch(2 * [*shapes.values()]))
    batch = replace(batch, x=batch.x % 2)
    for layers, found in enumerate(environments(batch, 3)):
        of_node, nodes = found.of_node.tolist(), found.nodes.tolist()
        expected = [surroundings(batch, node, layers) for node in range(batch.num_nodes)]
        pairs = {*zip(of_node, expected, strict=True)}
        assert len(pairs) == len({*of_node}) == len({*expected}) == len(nodes) < batch.num_nodes
        assert [of_node[node] for node in nodes] == [*range(len(nodes))]
        for number, node in enumerate(nodes):
            edges = found.edges[found.first_edge[number] : found.first_edge[number + 1]]
            assert {*edges.tolist()} == {*(batch.target == node).nonzero().flatten().tolist()}
            assert {*found.target[found.first_edge[number] : found.first_edge[number + 1]].tolist()} <= {number}
