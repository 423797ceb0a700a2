"""Sums and normalisation on padded views, compared with loops and finite differences."""

import math

import pytest
import torch

from joao.augmentations import EdgePerturb, Identity, NodeDrop
from joao.augmentations.base import padded_floor_share
from joao.core.padded import stack_views
from joao.kernels.layers import graph_sum, neighbour_sum, plain_batch_norm, relu_norm
from joao.training.fast.batches import PaddedStore


@pytest.fixture
def views(mutag, generator):
    """Three views, with nodes left out, with edges left out and added, and with neither; there is room left over."""
    given = PaddedStore(mutag).batch(torch.tensor([3, 120, 7]), 80, 190)
    draws = [NodeDrop(0.4), EdgePerturb(0.4), Identity()]
    return stack_views([each.padded(given, generator(seed)) for seed, each in enumerate(draws)])


@pytest.fixture
def x(views, generator):
    drawn = torch.randn(*views.keep.shape, 4, dtype=torch.float64, generator=generator(9))
    return drawn * views.keep.unsqueeze(-1)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def weight(request, views, generator):
    return torch.rand(views.keep.shape, dtype=torch.float64, generator=generator(4)) + 0.5 if request.param else None


def test_each_kept_node_gets_itself_and_its_kept_neighbours(views, x, weight):
    found, c = neighbour_sum(x, views, weight), torch.ones(3, 80) if weight is None else weight
    for view in range(3):
        keep = views.keep[view].tolist()
        for node in range(80):
            expected = c[view, node] * c[view, node] * x[view, node]
            for edge in range(int(views.first_edge[view, node]), int(views.first_edge[view, node + 1])):
                source = int(views.source[view, edge])
                if keep[source]:
                    expected = expected + c[view, node] * c[view, source] * x[view, source]
            if keep[node]:
                torch.testing.assert_close(found[view, node], expected)


def test_each_graph_gets_its_kept_nodes(views, x):
    expected = torch.zeros(3, 3, 4, dtype=torch.float64)
    for view in range(3):
        for graph in range(3):
            for node in range(int(views.first_node[graph]), int(views.first_node[graph + 1])):
                if views.keep[view, node]:
                    expected[view, graph] += x[view, node]
    torch.testing.assert_close(graph_sum(x, views), expected)


def test_gradient_of_a_sum_over_neighbours_is_the_same_sum(views, x, weight, generator):
    # What the kernels' gradient relies on: of kept nodes, and where nodes that are not kept are not used.
    keep, x = views.keep.unsqueeze(-1), x.requires_grad_()
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=generator(2)) * keep
    (gradient,) = torch.autograd.grad(neighbour_sum(x, views, weight), x, upstream)
    torch.testing.assert_close(gradient * keep, neighbour_sum(upstream, views, weight) * keep)


def test_gradient_of_a_sum_over_graphs_is_each_nodes_own_graphs(views, x, generator):
    upstream = torch.randn(3, 3, 4, dtype=torch.float64, generator=generator(2))
    (gradient,) = torch.autograd.grad(graph_sum(x.requires_grad_(), views), x, upstream)
    for view in range(3):
        for graph in range(3):
            for node in range(int(views.first_node[graph]), int(views.first_node[graph + 1])):
                assert torch.equal(gradient[view, node], upstream[view, graph])


EPS = 0.01


@pytest.fixture
def given(generator):
    """z, bias, keep, scale and shift of three views with five columns; the second column is never above 0."""
    draw = generator()
    keep = torch.rand(3, 9, generator=draw) < 0.6
    z = torch.randn(3, 9, 5, dtype=torch.float64, generator=draw)
    bias, scale, shift = torch.randn(3, 5, dtype=torch.float64, generator=draw)
    bias[1] = -100
    return z, bias, keep, scale, shift


def by_loops(h, keep, scale, shift):
    """Number by number: y, means and variances."""
    (num_views, num_rows), width = keep.shape, h.shape[2]
    y = torch.zeros(h.shape, dtype=torch.float64)
    means, variances = torch.zeros(2, num_views, width, dtype=torch.float64)
    for view in range(num_views):
        rows = [row for row in range(num_rows) if keep[view, row]]
        for column in range(width):
            values = [float(h[view, row, column]) for row in rows]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
            means[view, column], variances[view, column] = mean, variance
            for row, value in zip(rows, values, strict=True):
                normal = (value - mean) / math.sqrt(variance + EPS)
                y[view, row, column] = float(scale[column]) * normal + float(shift[column])
    return y, means, variances


def test_relu_norm_matches_loops(given):
    z, bias, keep, scale, shift = given
    h = torch.tensor([[[max(float(v), 0.0) for v in row] for row in view] for view in (z + bias).tolist()])
    for found, expected in zip(relu_norm(*given, EPS), by_loops(h, keep, scale, shift), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_batch_norm_matches_loops(given):
    z, _, keep, scale, shift = given
    for found, expected in zip(
        plain_batch_norm(z, keep, scale, shift, EPS), by_loops(z, keep, scale, shift), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_gradients_are_those_of_finite_differences(given):
    z, bias, keep, scale, shift = (each.requires_grad_(each.is_floating_point()) for each in given)
    wanted = z, bias, scale, shift
    assert torch.autograd.gradcheck(lambda z, bias, *rest: relu_norm(z, bias, keep, *rest, EPS)[0], wanted)
    assert torch.autograd.gradcheck(lambda z, *rest: plain_batch_norm(z, keep, *rest, EPS)[0], (z, scale, shift))


def test_rows_not_kept_are_zero_and_have_no_influence(given):
    z, bias, keep, scale, shift = given
    other = torch.where(keep.unsqueeze(-1), z, 1e6).requires_grad_()
    for one, found in zip(relu_norm(*given, EPS), relu_norm(other, bias, keep, scale, shift, EPS), strict=True):
        assert torch.equal(one, found)
    y = relu_norm(other, bias, keep, scale, shift, EPS)[0]
    assert not y[~keep].any()
    y.square().sum().backward()
    assert not other.grad[~keep].any()
    assert other.grad[keep].any()


def test_means_and_variances_have_no_gradient(given):
    z, bias, keep, scale, shift = given
    _, means, variances = relu_norm(z.requires_grad_(), bias, keep, scale, shift, EPS)
    assert not means.requires_grad
    assert not variances.requires_grad


def test_low_precision_is_normalised_in_the_precision_of_the_scale(given):
    z, _, keep, scale, shift = (each.float() if each.is_floating_point() else each for each in given)
    low = plain_batch_norm(z.bfloat16(), keep, scale, shift, EPS)
    for found, expected in zip(low, plain_batch_norm(z.bfloat16().float(), keep, scale, shift, EPS), strict=True):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


def test_floored_shares_are_looked_up():
    counts = torch.arange(41)
    for percent in (0, 10, 20, 30, 70, 99):
        found = padded_floor_share(counts, percent / 100, most=40)
        assert found.tolist() == [percent * count // 100 for count in range(41)]
