"""Contract of augmentations, for every member and for options with their own code path."""

from collections import Counter
from dataclasses import fields
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joao.augmentations import AUGMENTATIONS, AttributeMask, EdgePerturb, Subgraph
from tests.messages import refused
from tests.strategies import shapes

OPTIONS = {
    "attribute_mask, mean": partial(AttributeMask, fill="mean"),
    "edge_perturb, drop only": partial(EdgePerturb, drop_only=True),
    "subgraph, keep": partial(Subgraph, keep=0.3),
}


@pytest.fixture(params=[*AUGMENTATIONS, *OPTIONS])
def make(request):
    return {**AUGMENTATIONS, **OPTIONS}[request.param]


@pytest.fixture(params=["made", "made with attributes", "one graph", "one node", "MUTAG"])
def batch(request, make_batch, shapes, mutag, numbered):
    """Nodes can be told by ``x[:, 0]``, undirected edges by ``edge_attr``."""
    if request.param == "MUTAG":
        return numbered(mutag.batch(torch.arange(0, 188, 3)))
    if request.param.startswith("one"):
        return make_batch([shapes["single node" if request.param == "one node" else "disconnected"]], True)
    return make_batch([*shapes.values()], with_attributes=request.param.endswith("attributes"))


STRENGTHS = (0.2, 0.5, 0.95)


@pytest.fixture
def views(make, batch, generator):
    """A view for each strength."""
    return {strength: make(strength)(batch, generator()) for strength in STRENGTHS}


def tensors(batch):
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def old_numbers(view, batch):
    """Which node of ``batch`` each node of ``view`` is: by place if all are there, else by the first feature."""
    if view.num_nodes == batch.num_nodes:
        return list(range(batch.num_nodes))
    return [int(number) for number in view.x[:, 0].tolist()]


def test_input_and_the_global_generators_are_untouched(make, batch, generator, numpy_state):
    before = {name: value.clone() for name, value in tensors(batch).items()}
    states = torch.get_rng_state(), numpy_state()
    for strength in STRENGTHS:
        make(strength)(batch, generator())
    for name, value in before.items():
        assert torch.equal(getattr(batch, name), value), name
    assert torch.equal(torch.get_rng_state(), states[0])
    assert numpy_state() == states[1]


def test_columns_and_types_are_kept(make, batch, generator):
    view = make(0.5)(batch, generator())
    for name, value in tensors(batch).items():
        assert getattr(view, name).dtype == value.dtype
        assert getattr(view, name).shape[1:] == value.shape[1:]
    assert (view.edge_attr is None) == (batch.edge_attr is None)


def test_equal_seeds_give_equal_views(make, batch, views, generator, assert_same):
    for strength, view in views.items():
        assert_same(make(strength)(batch, generator()), view)


def test_different_seeds_give_different_views(make, make_batch, shapes, generator, edges_of):
    batch = make_batch([*shapes.values()] * 3, with_attributes=True)
    shown = [(view.x.tolist(), edges_of(view)) for view in (make(0.5)(batch, generator(seed)) for seed in range(3))]
    if shown[0] != (batch.x.tolist(), edges_of(batch)):
        assert shown[0] != shown[1] != shown[2] != shown[0]


def test_graphs_are_neither_added_removed_nor_connected(batch, views):
    for view in views.values():
        assert view.num_graphs == batch.num_graphs
        graphs = view.graph_of_node.tolist()
        assert graphs == sorted(graphs)
        assert set(graphs) == set(range(batch.num_graphs))
        assert len(graphs) == view.num_nodes
        assert all(graphs[u] == graphs[v] for u, v in zip(view.source.tolist(), view.target.tolist(), strict=True))


def test_strength_zero_changes_nothing(make, batch, generator, assert_same):
    assert_same(make(0.0)(batch, generator()), batch)


def test_edges_stay_undirected_sorted_and_without_loops_or_repeats(views):
    for view in views.values():
        pairs = list(zip(view.target.tolist(), view.source.tolist(), strict=True))
        assert pairs == sorted(set(pairs))
        assert {(s, t) for t, s in pairs} == set(pairs)
        assert all(t != s for t, s in pairs)


def test_features_and_graph_numbers_follow_their_nodes(batch, views):
    for view in views.values():
        old = old_numbers(view, batch)
        assert old == sorted(set(old))
        assert view.graph_of_node.tolist() == batch.graph_of_node[old].tolist()
        if view.num_nodes < batch.num_nodes:
            assert torch.equal(view.x, batch.x[old])


def test_edge_attributes_stay_with_their_edges(batch, views, edges_of):
    given, graph_of_node = dict(edges_of(batch)), batch.graph_of_node.tolist()
    of_graph = {(graph_of_node[source], attr) for (source, _), attr in given.items()}
    total = Counter(graph_of_node[source] for source, _ in given)
    for strength, view in views.items():
        old = old_numbers(view, batch)
        found = {(old[source], old[target]): attr for (source, target), attr in edges_of(view)}
        for (source, target), attr in found.items():
            assert found[target, source] == attr
            assert (graph_of_node[source], attr) in of_graph
        # An edge that is removed and drawn again may get other attributes; only a share of a graph's edges is removed.
        changed = Counter(graph_of_node[u] for u, v in found if found[u, v] != given.get((u, v), found[u, v]))
        assert all(count <= strength * total[graph] for graph, count in changed.items())


def test_every_graph_keeps_a_node_at_strength_near_one(make, batch, generator):
    for strength in (1 - 1e-12, 1 - 2**-53):
        assert make(strength)(batch, generator()).nodes_per_graph.min() >= 1


@pytest.mark.parametrize("strength", [-0.1, 1, 1.5, float("nan")])
def test_impossible_strength_is_rejected(make, strength):
    with refused("strength", strength):
        make(strength)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(drawn=shapes(), strength=st.sampled_from([0.0, 0.3, 0.9]), seed=st.integers(0, 9))
def test_random_graphs_stay_valid(make, make_batch, generator, drawn, strength, seed):
    batch = make_batch(drawn, with_attributes=True)
    view = make(strength)(batch, generator(seed))
    assert view.num_graphs == len(drawn)
    assert sorted(set(view.graph_of_node.tolist())) == list(range(len(drawn)))  # none vanishes
    pairs = list(zip(view.source.tolist(), view.target.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == len(view.edge_attr)
    assert {(v, u) for u, v in pairs} == set(pairs)
    assert all(u != v and view.graph_of_node[u] == view.graph_of_node[v] for u, v in pairs)
