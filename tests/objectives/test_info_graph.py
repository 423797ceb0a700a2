import math

import pytest
import torch
from torch import nn

from joao.objectives import InfoGraph
from joao.objectives.infomax import FeedForward, node_graph_loss


def log_sigmoid(a):
    return -math.log1p(math.exp(-a))


def naive_loss(nodes, graphs, graph_of_node):
    """The equation, summand by summand: two means, of the own graphs and of all others."""
    own, others = [], []
    for node, its_graph in zip(nodes.tolist(), graph_of_node, strict=True):
        for number, graph in enumerate(graphs.tolist()):
            score = sum(a * b for a, b in zip(node, graph, strict=True))
            if number == its_graph:
                own.append(log_sigmoid(score))
            else:
                others.append(log_sigmoid(-score))
    return -sum(own) / len(own) - sum(others) / len(others)


def naive_sums(vectors, graph_of_node):
    summed = torch.zeros(max(graph_of_node) + 1, vectors.shape[1], dtype=vectors.dtype)
    for vector, graph in zip(vectors, graph_of_node, strict=True):
        summed[graph] = summed[graph] + vector
    return summed


def by_hand(network, x):
    """A feed-forward network by its matrices."""
    weights = [*network.layers.parameters()]
    made = x
    for matrix, bias in zip(weights[::2], weights[1::2], strict=True):
        made = (made @ matrix.T + bias).clamp(min=0)
    return made + x @ network.shortcut.weight.T + network.shortcut.bias


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_equation(seed, make_batch, shapes, generator):
    batch, graph_of_node = make_batch([*shapes.values()]), []
    for graph, (size, _) in enumerate(shapes.values()):
        graph_of_node += [graph] * size
    vectors = torch.randn(batch.num_nodes, 4, dtype=torch.float64, generator=generator(seed))
    parts = InfoGraph().parts(nn.Module(), 4).double()
    nodes, graphs = by_hand(parts["nodes"], vectors), by_hand(parts["graphs"], naive_sums(vectors, graph_of_node))
    found = InfoGraph()(lambda shown: vectors, parts, batch, generator())
    assert found.item() == pytest.approx(naive_loss(nodes, graphs, graph_of_node), rel=1e-9)


def test_hand_computation():
    # Scores: [[log 3, 0], [log 3, 0], [0, 0]]; the first two nodes are of graph 0, the last one of graph 1.
    nodes, graphs = torch.tensor([[1.0], [1.0], [0.0]]), torch.tensor([[math.log(3)], [0.0]])
    own, others = [3 / 4, 3 / 4, 1 / 2], [1 / 2, 1 / 2, 1 / 2]
    expected = -sum(map(math.log, own)) / 3 - sum(map(math.log, others)) / 3
    assert node_graph_loss(nodes, graphs, torch.tensor([0, 0, 1])).item() == pytest.approx(expected, rel=1e-6)


def test_negatives_are_averaged_over_other_graphs(generator):
    graph_of_node = torch.tensor([0, 0, 1, 2, 2, 3])
    nodes, graphs = torch.randn(6, 3, generator=generator(0)), torch.randn(4, 3, generator=generator(1))
    order = torch.tensor([2, 0, 3, 1])
    place = torch.argsort(order)
    shuffled = node_graph_loss(nodes, graphs[order], place[graph_of_node])
    torch.testing.assert_close(shuffled, node_graph_loss(nodes, graphs, graph_of_node))


def test_gradient_is_that_of_finite_differences(generator):
    nodes, graphs = (
        torch.randn(size, 3, dtype=torch.float64, generator=generator(size)).requires_grad_() for size in (6, 4)
    )
    torch.autograd.gradcheck(lambda *given: node_graph_loss(*given, torch.tensor([0, 0, 1, 2, 2, 3])), (nodes, graphs))


def test_scores_of_any_size_keep_the_loss_right():
    # Own graphs score 1e6, the others 0: nothing is lost beside the large numbers.
    nodes = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]]).requires_grad_()
    loss = node_graph_loss(nodes, nodes, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(math.log(2))
    loss.backward()
    assert nodes.grad.isfinite().all()


def test_uninformative_networks_cost_two_log_two(make_batch, shapes, generator):
    parts = InfoGraph().parts(nn.Module(), 3)
    for parameter in parts.parameters():
        parameter.data.zero_()
    loss = InfoGraph()(lambda shown: shown.x, parts, make_batch([*shapes.values()]), generator())
    assert loss.item() == pytest.approx(2 * math.log(2))


def test_nothing_is_random(make_batch, shapes, generator):
    draw = generator()
    before = draw.get_state()
    InfoGraph()(lambda shown: shown.x, InfoGraph().parts(nn.Module(), 3), make_batch([*shapes.values()]), draw)
    assert torch.equal(draw.get_state(), before)


def test_parts_are_two_networks_with_shortcut():
    parts = InfoGraph().parts(nn.Module(), 5)
    assert sorted(parts) == ["graphs", "nodes"]
    for network in parts.values():
        assert isinstance(network, FeedForward)
        assert [tuple(each.shape) for each in network.parameters()] == [(5, 5), (5,)] * 4
    assert not torch.equal(parts["nodes"].shortcut.weight, parts["graphs"].shortcut.weight)
