"""Personalised PageRank in place of the sum over neighbours, against the inverse of a dense matrix."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.encoders import ENCODERS, Convolutions, EdgeGin, Gin, MoleculeGin, NodeEncoder, ResGcn
from joao.encoders.layers import add_neighbours, diffusion

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
def test_the_inverse_up_to_the_tolerance(batch, alpha, tolerance):
    every_node = torch.eye(batch.num_nodes, dtype=torch.float64)
    found = add_neighbours(every_node, diffusion(batch, alpha, torch.float64, tolerance))
    assert torch.linalg.matrix_norm(found - page_rank(batch, alpha), 2) <= tolerance + 1e-14


def test_two_nodes_by_hand(make_batch):
    # Half of either stays at every step: A = [[1, 1], [1, 1]] / 2, so A A = A and S = 0.2 I + 0.8 A.
    batch = make_batch([(2, [(0, 1)])])
    found = add_neighbours(torch.eye(2), diffusion(batch, 0.2, torch.float32))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4], [0.4, 0.6]]), rtol=0, atol=1e-3)


def test_ten_products_do_for_the_published_alpha(batch):
    assert len(diffusion(batch, 0.2, torch.float32).weights) == 1 + 10


@ALPHAS
def test_the_gradient_is_that_of_the_dense_matrix(batch, alpha, generator):
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
    assert isinstance(encoder, ResGcn), "write down its equation here"
    norms = [*encoder.node_norms]
    x = torch.relu(encoder.first(norms[0](x)))
    for convolution, norm in zip(encoder.convolutions, norms[1:], strict=True):
        x = torch.relu(convolution(matrix @ norm(x)))
    return x


@ALPHAS
@pytest.mark.parametrize("kind", CAN_DIFFUSE)
@torch.no_grad()
def test_encoders_diffuse_as_by_the_dense_matrix(kind, batch, alpha):
    encoder = kind(3, width=8).double().eval()
    plain = encoder.encode_nodes(batch)
    encoder.diffusion = alpha
    expected = in_layers(encoder, batch.x, page_rank(batch, alpha))
    found = encoder.encode_nodes(batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2 * expected.abs().max().item())
    assert (found - plain).abs().max() > 5e-2 * plain.abs().max()
    encoder.diffusion = None
    assert torch.equal(encoder.encode_nodes(batch), plain)


def test_what_reads_edges_by_itself_says_that_it_cannot_diffuse():
    assert {Convolutions, EdgeGin, MoleculeGin}.isdisjoint(CAN_DIFFUSE)
