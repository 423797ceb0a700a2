import math

import pytest
import torch
from torch import nn

from joao.objectives import Infomax


def make_matrix(weight):
    matrix = nn.Linear(len(weight), len(weight), bias=False, dtype=weight.dtype)
    matrix.weight.data = weight
    return matrix


def loss_of(vectors, weight, batch, generator):
    return Infomax()(lambda shown: vectors, make_matrix(weight), batch, generator)


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


def naive(vectors, weight, graph_of_node):
    """The equation, summand by summand."""
    vectors, weight, num_graphs = vectors.tolist(), weight.tolist(), max(graph_of_node) + 1
    dimensions = range(len(weight))
    summaries = []
    for graph in range(num_graphs):
        members = [vector for vector, its_graph in zip(vectors, graph_of_node, strict=True) if its_graph == graph]
        summaries.append([sigmoid(sum(vector[i] for vector in members) / len(members)) for i in dimensions])

    def probability(vector, summary):
        return sigmoid(sum(vector[i] * weight[i][j] * summary[j] for i in dimensions for j in dimensions))

    total = 0.0
    for vector, graph in zip(vectors, graph_of_node, strict=True):
        total -= math.log(probability(vector, summaries[graph]))
        total -= math.log(1 - probability(vector, summaries[(graph + 1) % num_graphs]))
    return total / len(vectors)


@pytest.mark.parametrize("seed", range(5))
def test_matches_the_equation(seed, make_batch, shapes, generator):
    batch = make_batch([*shapes.values()])
    draw = generator(seed)
    vectors = torch.randn(batch.num_nodes, 4, dtype=torch.float64, generator=draw)
    weight = torch.randn(4, 4, dtype=torch.float64, generator=draw)
    expected = naive(vectors, weight, batch.graph_of_node.tolist())
    assert loss_of(vectors, weight, batch, draw).item() == pytest.approx(expected, rel=1e-9)


def test_scores_are_float32_under_mixed_precision(make_batch, shapes, generator):
    batch = make_batch([*shapes.values()])
    vectors, weight = torch.randn(batch.num_nodes, 4, generator=generator()), torch.randn(4, 4, generator=generator(1))
    plain = loss_of(vectors, weight, batch, generator())
    assert plain.item() == pytest.approx(naive(vectors, weight, batch.graph_of_node.tolist()), rel=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss_of(vectors, weight, batch, generator()), plain)


def test_hand_computation(make_batch, generator):
    # Summaries: sigmoid(0) and sigmoid(log 3), that is 1/2 and 3/4; with W = 4 their scores are 2 x and 3 x.
    batch = make_batch([(2, [(0, 1)]), (1, [])])
    vectors = torch.tensor([[1.0], [-1.0], [math.log(3)]])
    own = [2, -2, 3 * math.log(3)]
    other = [3, -3, 2 * math.log(3)]
    expected = sum(math.log1p(math.exp(-a)) + math.log1p(math.exp(b)) for a, b in zip(own, other, strict=True)) / 3
    assert loss_of(vectors, torch.tensor([[4.0]]), batch, generator()).item() == pytest.approx(expected, rel=1e-6)


def test_gradient_is_that_of_the_equation(make_batch, shapes, generator):
    batch = make_batch([shapes["two nodes"], shapes["single node"], shapes["path"]])
    vectors = torch.randn(batch.num_nodes, 3, dtype=torch.float64, generator=generator(), requires_grad=True)
    weight = torch.randn(3, 3, dtype=torch.float64, generator=generator())
    loss_of(vectors, weight, batch, generator()).backward()
    step = 1e-6
    for n in range(batch.num_nodes):
        for k in range(3):
            shift = torch.zeros_like(vectors)
            shift[n, k] = step
            ahead, behind = (naive(vectors + sign * shift, weight, batch.graph_of_node.tolist()) for sign in (1, -1))
            assert vectors.grad[n, k].item() == pytest.approx((ahead - behind) / (2 * step), abs=1e-7)


def test_nothing_is_random(make_batch, shapes, generator):
    draw = generator()
    before = draw.get_state()
    batch = make_batch([*shapes.values()])
    Infomax()(lambda shown: shown.x, make_matrix(torch.eye(3)), batch, draw)
    assert torch.equal(draw.get_state(), before)


def test_identical_graphs_are_indistinguishable(make_batch, shapes, generator):
    batch = make_batch([shapes["path"]] * 3)
    vectors = torch.randn(6, 3, generator=generator()).repeat(3, 1)
    # The own summary and the next one are the same, and log sigmoid(a) + log sigmoid(-a) is highest for a = 0.
    assert loss_of(vectors, torch.zeros(3, 3), batch, generator()).item() == pytest.approx(2 * math.log(2))
    assert loss_of(vectors, torch.randn(3, 3, generator=generator()), batch, generator()) > 2 * math.log(2)


def test_matrix_is_initialised_xavier_uniform():
    (weight,) = Infomax().parts(nn.Linear(2, 2), 200).parameters()
    assert weight.shape == (200, 200)
    bound = math.sqrt(6 / 400)
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
