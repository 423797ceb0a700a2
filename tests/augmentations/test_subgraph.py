from collections import Counter

import networkx as nx
import pytest
import torch

from joao.augmentations import Subgraph
from joao.augmentations.subgraph import dijkstra_growth_time, growth_time
from joao.core.randomness import order_within_groups, random_rank
from joao.kernels.graph_ops import plain_first_passage
from tests.messages import refused

LOLLIPOP = (6, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 5)])
IN_PARTS = (6, [(0, 1), (1, 2), (3, 4)])


def law_of_kept_sets(graph, num_kept):
    """The sequential rule itself, all its ways followed with their probabilities."""
    size, edges = graph
    neighbours = {v: {a if b == v else b for a, b in edges if v in (a, b)} for v in range(size)}
    law = {frozenset(): 1.0}
    for _ in range(num_kept):
        grown = Counter()
        for taken, probability in law.items():
            frontier = set().union(*(neighbours[v] for v in taken)) - taken if taken else set()
            choices = frontier or set(range(size)) - taken
            for v in choices:
                grown[taken | {v}] += probability / len(choices)
        law = grown
    return law


@pytest.mark.parametrize("graph", [LOLLIPOP, IN_PARTS], ids=["connected", "in parts"])
@pytest.mark.parametrize("num_kept", [1, 2, 3, 4, 5])
def test_kept_sets_follow_the_sequential_rule(graph, num_kept, make_batch, generator, assert_law):
    copies = 8000
    view = Subgraph(1 - num_kept / 6)(make_batch([graph] * copies), generator(num_kept))
    kept = (view.x[:, 0].long() % 6).view(copies, num_kept).tolist()
    assert_law(map(frozenset, kept), law_of_kept_sets(graph, num_kept))


@pytest.mark.parametrize("graph", [LOLLIPOP, IN_PARTS], ids=["connected", "in parts"])
@pytest.mark.parametrize("num_kept", [2, 4])
def test_kept_sets_of_padded_batches_follow_the_sequential_rule(
    graph, num_kept, make_batch, padded, generator, assert_law
):
    copies = 8000
    view = Subgraph(1 - num_kept / 6).padded(padded(make_batch([graph] * copies)), generator(num_kept)).compact()
    kept = (view.x[:, 0].long() % 6).view(copies, num_kept).tolist()
    assert_law(map(frozenset, kept), law_of_kept_sets(graph, num_kept))


@pytest.mark.parametrize("strength", [0.2, 0.5, 0.8])
def test_kept_nodes_are_connected_within_components(strength, make_batch, shapes, mutag, generator, numbered):
    made = numbered(make_batch([*shapes.values()] * 5))
    for batch in (made, numbered(mutag.batch(torch.arange(100)))):
        view = Subgraph(strength)(batch, generator(8))
        assert view.nodes_per_graph.tolist() == [n - int(n * strength + 1e-9) for n in batch.nodes_per_graph.tolist()]
        graphs = [nx.Graph(), nx.Graph()]
        for graph, each in zip(graphs, (batch, view), strict=True):
            names = each.x[:, 0].tolist()
            graph.add_nodes_from(names)
            graph.add_edges_from(
                (names[u], names[v]) for u, v in zip(each.source.tolist(), each.target.tolist(), strict=True)
            )
        whole, kept = graphs
        graph_of = dict(zip(batch.x[:, 0].tolist(), batch.graph_of_node.tolist(), strict=True))
        partly = Counter()
        for component in nx.connected_components(whole):
            left = component & set(kept)
            if left:
                assert nx.is_connected(kept.subgraph(left))
            if left and left != component:
                partly[graph_of[min(component)]] += 1
        # growth leaves a component only when it is exhausted: at most the last one is left unfinished
        assert max(partly.values()) == 1


@pytest.mark.parametrize(("keep", "kept"), [(0.2, [1, 1, 2, 10]), (0.5, [1, 2, 5, 25]), (1.0, [1, 5, 10, 50])])
def test_keep_overrides_strength(keep, kept, make_batch, generator):
    batch = make_batch([(n, [(v, v + 1) for v in range(n - 1)]) for n in (1, 5, 10, 50)])
    assert Subgraph(keep=keep)(batch, generator()).nodes_per_graph.tolist() == kept


@pytest.mark.parametrize("keep", [0, -0.5, 1.1, float("nan")])
def test_impossible_share_to_keep_is_rejected(keep):
    with refused("Subgraph", "keep", keep):
        Subgraph(keep=keep)


def draws(batch, generator):
    rank = random_rank(batch.graph_of_node, batch.nodes_per_graph, generator)
    waiting = torch.empty(batch.num_nodes, dtype=torch.float64).exponential_(generator=generator)
    return rank * (waiting.sum() + 1), waiting


@pytest.mark.parametrize("graphs", [range(60), range(60, 120), range(120, 188)])
def test_both_algorithms_grow_in_the_same_order(graphs, mutag, generator):
    batch = mutag.batch(torch.tensor(graphs))
    start, waiting = draws(batch, generator(9))
    by_dijkstra = dijkstra_growth_time(batch, start, waiting)
    for sweeps_per_check in (1, 8):
        by_sweeps = plain_first_passage(batch.source, batch.target, start, waiting, sweeps_per_check)
        torch.testing.assert_close(by_dijkstra, by_sweeps, rtol=1e-12, atol=1e-9)
        assert torch.equal(*(order_within_groups(times, batch.graph_of_node) for times in (by_dijkstra, by_sweeps)))


def test_both_algorithms_agree_on_made_graphs_and_with_growth_time(make_batch, shapes, generator):
    batch = make_batch([*shapes.values()] * 4)
    start, waiting = draws(batch, generator(10))
    by_dijkstra = dijkstra_growth_time(batch, start, waiting)
    torch.testing.assert_close(
        by_dijkstra, plain_first_passage(batch.source, batch.target, start, waiting), rtol=1e-12, atol=1e-9
    )
    torch.testing.assert_close(growth_time(batch, generator(10)), by_dijkstra, rtol=1e-12, atol=1e-12)


def test_times_solve_their_equation(make_batch, shapes, generator):
    batch = make_batch([*shapes.values()])
    start, waiting = draws(batch, generator(11))
    times = dijkstra_growth_time(batch, start, waiting).tolist()
    neighbours = {v: [] for v in range(batch.num_nodes)}
    for u, v in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        neighbours[v].append(u)
    for v, time in enumerate(times):
        arrivals = [times[u] + float(waiting[v]) for u in neighbours[v]]
        assert time == pytest.approx(min([float(start[v]), *arrivals]), rel=1e-12)
