import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import nn

from joao.objectives import EdgeReconstruction

PATH = (5, [(0, 1), (1, 2), (2, 3), (3, 4)])


def loss_of(vectors, batch, generator):
    return EdgeReconstruction()(lambda shown: vectors, nn.Module(), batch, generator)


def made_up_edges(batch, generator):
    """How often each undirected pair was drawn as a made-up edge.

    Where node v has the unit vector of direction v, all scores are 0, and each made-up edge ``uv`` adds the same
    positive number to the gradient at ``[u, v]`` and at ``[v, u]``; true edges make theirs smaller than 0.
    """
    vectors = torch.eye(batch.num_nodes, dtype=torch.float64, requires_grad=True)
    loss_of(vectors, batch, generator).backward()
    assert torch.equal(vectors.grad, vectors.grad.T)
    edges = set(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    positive = vectors.grad.clamp(min=0)
    unit = positive[positive > 0].min()  # of a pair that was drawn once
    counts = {(u, v): round(float(positive[u, v] / unit)) for u, v in positive.triu().nonzero().tolist()}
    assert {(u, v) for u, v in (vectors.grad < 0).nonzero().tolist()} == edges
    return counts


def naive(vectors, batch, made_up):
    """The equation, summand by summand."""
    vectors = vectors.tolist()

    def probability(u, v):
        return 1 / (1 + math.exp(-sum(a * b for a, b in zip(vectors[u], vectors[v], strict=True))))

    edges = [(u, v) for u, v in zip(batch.source.tolist(), batch.target.tolist(), strict=True) if u < v]
    positive = sum(-math.log(probability(u, v)) for u, v in edges) / len(edges)
    negative = sum(-count * math.log(1 - probability(u, v)) for (u, v), count in made_up.items())
    return positive + negative / sum(made_up.values())


@pytest.mark.parametrize("seed", range(5))
def test_matches_the_equation(seed, make_batch, shapes, generator):
    batch = make_batch([*shapes.values()])
    made_up = made_up_edges(batch, generator(seed))
    vectors = torch.randn(batch.num_nodes, 3, dtype=torch.float64, generator=generator(seed))
    assert loss_of(vectors, batch, generator(seed)).item() == pytest.approx(naive(vectors, batch, made_up), rel=1e-9)


def test_negative_edges_are_unconnected_pairs_of_one_graph(make_batch, shapes, generator):
    batch = make_batch([*shapes.values()] * 5)
    edges = set(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    made_up = made_up_edges(batch, generator())
    assert all(u != v and (u, v) not in edges for u, v in made_up)
    assert all(batch.graph_of_node[u] == batch.graph_of_node[v] for u, v in made_up)


def test_negative_edges_are_uniform(make_batch, generator, assert_law):
    pairs = set(combinations(range(5), 2))
    drawn, numbers = Counter(), []
    for seed in range(15):
        made_up = made_up_edges(make_batch([PATH] * 100), generator(seed))
        of_graph = Counter()
        for (u, v), count in made_up.items():
            drawn[u % 5, v % 5] += count
            of_graph[u // 5] += count
        numbers += [of_graph[graph] for graph in range(100)]
    assert_law(drawn.elements(), dict.fromkeys(pairs - set(PATH[1]), 1 / 6))
    # Four draws, each of which is no edge in six of ten cases.
    assert_law(numbers, {k: math.comb(4, k) * 0.6**k * 0.4 ** (4 - k) for k in range(5)})


def test_complete_graphs_have_no_negative_edges(make_batch, shapes, generator):
    batch = make_batch([shapes["complete"], shapes["two nodes"]])
    vectors = torch.randn(8, 3, generator=generator())
    pairs = [*combinations(range(6), 2), (6, 7)]
    expected = sum(math.log1p(math.exp(-float(vectors[u] @ vectors[v]))) for u, v in pairs) / len(pairs)
    assert loss_of(vectors, batch, generator()).item() == pytest.approx(expected, rel=1e-5)


def test_hand_computation(make_batch, generator):
    # In a path of three nodes only the ends can be a made-up edge.
    batch = make_batch([(3, [(0, 1), (1, 2)])] * 20)
    vectors = torch.tensor([[2.0, 0.0], [0.5, 1.0], [1.0, -3.0]]).repeat(20, 1)
    expected = (math.log1p(math.exp(-1)) + math.log1p(math.exp(2.5))) / 2 + math.log1p(math.exp(2))
    assert loss_of(vectors, batch, generator()).item() == pytest.approx(expected, rel=1e-6)


def test_graphs_without_edges_cost_nothing(make_batch, shapes, generator):
    batch = make_batch([shapes["edgeless"], shapes["single node"]])
    vectors = torch.randn(8, 3, generator=generator()).requires_grad_()
    loss = loss_of(vectors, batch, generator())
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(vectors.grad, torch.zeros(8, 3))


def test_another_seed_draws_other_edges(make_batch, shapes, generator):
    batch = make_batch([shapes["cycle"], shapes["path"]])
    assert made_up_edges(batch, generator(0)) != made_up_edges(batch, generator(1))


def test_encoder_gets_unchanged_graphs(make_batch, shapes, generator, assert_same):
    batch, shown = make_batch([*shapes.values()], with_attributes=True), []

    def encode_nodes(given):
        shown.append(replace(given))
        return given.x

    EdgeReconstruction()(encode_nodes, nn.Module(), batch, generator())
    assert_same(*shown, batch)


def test_nothing_is_learned_beside_the_encoder():
    assert not list(EdgeReconstruction().parts(nn.Linear(2, 2), 2).state_dict())
