import pytest
import torch

from joao.augmentations import EdgePerturb, Identity, NodeDrop
from joao.core.padded import stack_views
from joao.kernels.sums import graph_sum, neighbour_sum
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


def test_the_gradient_of_a_sum_over_neighbours_is_the_same_sum(views, x, weight, generator):
    # What the kernels' gradient relies on: of kept nodes, and where nodes that are not kept are not used.
    keep, x = views.keep.unsqueeze(-1), x.requires_grad_()
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=generator(2)) * keep
    (gradient,) = torch.autograd.grad(neighbour_sum(x, views, weight), x, upstream)
    torch.testing.assert_close(gradient * keep, neighbour_sum(upstream, views, weight) * keep)


def test_the_gradient_of_a_sum_over_graphs_is_each_nodes_own_graphs(views, x, generator):
    upstream = torch.randn(3, 3, 4, dtype=torch.float64, generator=generator(2))
    (gradient,) = torch.autograd.grad(graph_sum(x.requires_grad_(), views), x, upstream)
    for view in range(3):
        for graph in range(3):
            for node in range(int(views.first_node[graph]), int(views.first_node[graph + 1])):
                assert torch.equal(gradient[view, node], upstream[view, graph])
