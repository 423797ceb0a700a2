import math
from collections import Counter

import networkx as nx
import pytest
import torch
from torch import nn

from joao.encoders import Gin
from joao.objectives import ContextPrediction
from tests.messages import refused

TREE = (15, [(child, (child - 1) // 2) for child in range(1, 15)])
PATH = (7, [(node, node + 1) for node in range(6)])


class Vectors(nn.Module):
    """Gives each node a vector that depends on its number alone, and remembers what it was shown."""

    def __init__(self, num_nodes, generator):
        super().__init__()
        self.of_node = torch.randn(num_nodes, 3, dtype=torch.float64, generator=generator, requires_grad=True)

    def encode_nodes(self, batch):
        self.shown = batch
        return self.of_node[self.nodes()]

    def nodes(self):
        return self.shown.x[:, 0].long()

    def that_count(self):
        """The nodes whose vectors the loss depends on."""
        return self.of_node.grad.any(dim=1).nonzero().flatten().tolist()


def run(objective, batch, draw):
    """The loss, and the two stand-ins for encoders, which know what they were shown and what counted."""
    near, far = Vectors(batch.num_nodes, draw), Vectors(batch.num_nodes, draw)
    loss = objective(near.encode_nodes, far, batch, draw)
    loss.backward()
    return loss.item(), near, far


def as_networkx(batch):
    graph = nx.Graph(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    graph.add_nodes_from(range(batch.num_nodes))
    return graph


def check_subgraph(vectors, graph, nodes, batch):
    """What was shown is the induced subgraph of ``nodes``, each in its own graph."""
    numbers = vectors.nodes().tolist()
    assert numbers == sorted(nodes)
    edges = [(numbers[u], numbers[v]) for u, v in vectors.shown.edge_index.T.tolist()]
    assert sorted(edges) == sorted(graph.subgraph(nodes).to_directed().edges)
    assert vectors.shown.graph_of_node.tolist() == batch.graph_of_node[numbers].tolist()
    assert vectors.shown.num_graphs == batch.num_graphs


def naive(near, far, centres, anchors):
    """The equation, summand by summand; ``anchors`` are those of each centre."""
    near, far = near.of_node.tolist(), far.of_node.tolist()
    contexts = [[sum(far[a][k] for a in group) / len(group) for k in range(3)] for group in anchors]

    def probability(centre, context):
        return 1 / (1 + math.exp(-sum(a * b for a, b in zip(near[centre], context, strict=True))))

    total = 0.0
    for number, centre in enumerate(centres):
        total -= math.log(probability(centre, contexts[number]))
        total -= math.log(1 - probability(centre, contexts[(number + 1) % len(centres)]))
    return total / len(centres)


@pytest.mark.parametrize("hops_inner_outer", [(3, 2, 5), (1, 1, 1), (2, 1, 4), (3, 3, 3), (4, 2, 3), (10**9, 2, 10**9)])
@pytest.mark.parametrize("seed", range(4))
def test_matches_breadth_first_search_and_the_equation(hops_inner_outer, seed, make_batch, generator):
    hops, inner, outer = hops_inner_outer
    # Whatever is drawn in these, there is a context.
    batch = make_batch([TREE, PATH, (12, [(v, (v + 1) % 12) for v in range(12)]), PATH])
    graph = as_networkx(batch)
    loss, near, far = run(ContextPrediction(hops, inner, outer), batch, generator(seed))
    centres = near.that_count()
    assert batch.graph_of_node[centres].tolist() == [0, 1, 2, 3]
    steps = [nx.single_source_shortest_path_length(graph, centre) for centre in centres]
    anchors = [[v for v, d in each.items() if inner <= d <= min(hops, outer)] for each in steps]
    check_subgraph(near, graph, {v for each in steps for v, d in each.items() if d <= hops}, batch)
    check_subgraph(far, graph, {v for each in steps for v, d in each.items() if inner <= d <= outer}, batch)
    assert far.that_count() == sorted(anchor for group in anchors for anchor in group)
    assert loss == pytest.approx(naive(near, far, centres, anchors), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_graphs_without_a_context_are_left_out(seed, make_batch, shapes, generator):
    objective = ContextPrediction()
    batch = make_batch([shapes["complete"], PATH, shapes["single node"], TREE, shapes["edgeless"], PATH])
    graph = as_networkx(batch)
    loss, near, far = run(objective, batch, generator(seed))
    centres = near.that_count()
    assert batch.graph_of_node[centres].tolist() == [1, 3, 5]
    steps = [nx.single_source_shortest_path_length(graph, centre) for centre in centres]
    anchors = [[v for v, d in each.items() if 2 <= d <= 3] for each in steps]
    assert loss == pytest.approx(naive(near, far, centres, anchors), rel=1e-9)
    # Their centres stand in for contexts, so that every graph has a node.
    stand_ins = [v for v in far.nodes().tolist() if batch.graph_of_node[v] in (0, 2, 4)]
    assert batch.graph_of_node[stand_ins].tolist() == [0, 2, 4]
    assert set(stand_ins) <= set(near.nodes().tolist())


@pytest.mark.parametrize("others", [["single node", "complete"], ["edgeless"]])
def test_loss_is_zero_with_a_single_context(others, make_batch, shapes, generator):
    for graphs in ([PATH], []):
        batch = make_batch([*graphs, *(shapes[name] for name in others * 2)])
        loss, near, far = run(ContextPrediction(), batch, generator())
        assert loss == 0
        assert not near.that_count() + far.that_count()


def test_two_contexts_are_each_others_negatives(make_batch, generator):
    batch = make_batch([PATH, TREE])
    loss, near, far = run(ContextPrediction(), batch, generator())
    centres = near.that_count()
    steps = [nx.single_source_shortest_path_length(as_networkx(batch), centre) for centre in centres]
    anchors = [[v for v, d in each.items() if 2 <= d <= 3] for each in steps]
    assert batch.graph_of_node[centres].tolist() == [0, 1]
    assert loss == pytest.approx(naive(near, far, centres, anchors), rel=1e-9)


def test_default_reach_of_contexts(make_batch, generator):
    length = 40
    batch = make_batch([(length, [(node, node + 1) for node in range(length - 1)])] * 2)
    _, near, far = run(ContextPrediction(), batch, generator(1))
    expected = {
        node for centre in near.that_count() for node in range(centre - 5, centre + 6) if abs(node - centre) > 1
    }
    assert all(5 <= centre % length < length - 5 for centre in near.that_count())
    assert set(far.nodes().tolist()) == expected


def test_centre_is_uniform_in_each_graph(make_batch, generator, assert_law):
    # Every node of a path of four has a neighbour.
    batch = make_batch([(4, [(0, 1), (1, 2), (2, 3)])] * 6000)
    _, near, _ = run(ContextPrediction(1, 1, 1), batch, generator(1))
    centres = near.that_count()
    assert [centre // 4 for centre in centres] == list(range(6000))
    inside = [centre % 4 for centre in centres]
    assert_law(inside, dict.fromkeys(range(4), 1 / 4))
    assert_law(zip(inside[::2], inside[1::2], strict=True), {(i, j): 1 / 16 for i in range(4) for j in range(4)})


def test_star_without_randomness(make_batch, shapes, generator):
    # Seen from a leaf, the other leaves are two steps away; seen from the middle, nothing is.
    batch = make_batch([shapes["star"]] * 40)
    _, near, far = run(ContextPrediction(hops=2, inner=2, outer=2), batch, generator())
    shown = Counter(far.shown.graph_of_node.tolist())
    leaves = near.that_count()
    assert all(leaf % 8 != 2 for leaf in leaves)
    assert {graph: shown[graph] for graph in range(40)} == {
        graph: 6 if graph in {leaf // 8 for leaf in leaves} else 1 for graph in range(40)
    }
    assert 20 < len(leaves) < 40


def test_contexts_are_encoded_by_a_separate_copy(make_batch, generator):
    encoder = Gin(3, width=4)
    parts = ContextPrediction().parts(encoder, encoder.num_node_dimensions)
    for ours, theirs in zip(encoder.state_dict().values(), parts.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)
    ContextPrediction()(encoder.encode_nodes, parts, make_batch([PATH, TREE, PATH]), generator()).backward()
    torch.optim.SGD([*encoder.parameters(), *parts.parameters()], lr=0.1).step()
    assert not torch.equal(encoder.mlps[0][0].weight, parts.mlps[0][0].weight)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"inner": 0}, ["inner", "hops", 3, 0]),
        ({"inner": 4}, ["inner", "hops", 3, 4]),
        ({"hops": 0}, ["inner", "hops", 0, 2]),
        ({"outer": 1}, ["outer", "inner", 2, 1]),
        ({"hops": 2**63 - 1}, ["hops", "outer", 10**9, 2**63 - 1, 5]),
        ({"outer": 10**9 + 1}, ["hops", "outer", 10**9, 3, 10**9 + 1]),
    ],
)
def test_impossible_distances_are_rejected(options, values):
    with refused("ContextPrediction", *values):
        ContextPrediction(**options)
