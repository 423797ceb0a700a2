"""Oracles: plain loops over nodes and edges. (tests/data compares batches with torch-geometric's.)"""

import networkx as nx
import pytest
import torch

from joao.core.graphs import GraphStore, concatenate, concatenate_ranges
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs


@pytest.fixture(params=[False, True], ids=["bare", "with attributes"])
def batch(request, make_batch, shapes):
    return make_batch([*shapes.values()], request.param)


def test_counts_and_offsets(batch, shapes):
    sizes = [size for size, _ in shapes.values()]
    assert batch.num_nodes == sum(sizes)
    assert batch.num_edges == 2 * sum(len(edges) for _, edges in shapes.values())
    assert batch.nodes_per_graph.tolist() == sizes
    assert batch.first_node.tolist() == [sum(sizes[:graph]) for graph in range(len(sizes) + 1)]
    assert batch.first_edge.tolist() == [
        sum(target < node for target in batch.target.tolist()) for node in range(batch.num_nodes + 1)
    ]
    assert batch.edge_index.tolist() == [batch.source.tolist(), batch.target.tolist()]


def test_nodes_without_edges_at_the_end_have_offsets_too(make_batch):
    batch = make_batch([(2, [(0, 1)]), (3, [])])
    assert batch.first_edge.tolist() == [0, 1, 2, 2, 2, 2]
    assert make_batch([(2, [])]).first_edge.tolist() == [0, 0, 0]


def test_the_reverse_of_an_edge_is_where_its_ends_are_exchanged(batch, make_batch):
    pairs = list(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    assert batch.reverse_edge.tolist() == [pairs.index((target, source)) for source, target in pairs]
    assert torch.equal(batch.reverse_edge, torch.argsort(batch.source, stable=True))  # the way of other devices
    assert make_batch([(3, [])]).reverse_edge.tolist() == []


def test_kept_nodes_induce_subgraphs(batch, generator, edges_of):
    for seed in range(5):
        keep = torch.rand(batch.num_nodes, generator=generator(seed)) < 0.6
        old = [node for node in range(batch.num_nodes) if keep[node]]
        found = batch.keep_nodes(keep)
        assert found.x.tolist() == [batch.x[node].tolist() for node in old]
        assert found.graph_of_node.tolist() == [int(batch.graph_of_node[node]) for node in old]
        assert found.num_graphs == batch.num_graphs
        expected = [((old.index(u), old.index(v)), attr) for (u, v), attr in edges_of(batch) if u in old and v in old]
        assert edges_of(found) == expected


def test_kept_edges_leave_the_nodes_as_they_are(batch, generator, edges_of):
    keep = torch.rand(batch.num_edges, generator=generator()) < 0.5
    found = batch.keep_edges(keep)
    assert edges_of(found) == [edge for edge, kept in zip(edges_of(batch), keep.tolist(), strict=True) if kept]
    assert torch.equal(found.x, batch.x)
    assert torch.equal(found.graph_of_node, batch.graph_of_node)


def test_offsets_are_counted_anew_after_a_change(batch):
    before = batch.nodes_per_graph, batch.first_node, batch.first_edge, batch.reverse_edge
    changed = batch.keep_nodes(torch.arange(batch.num_nodes) % 3 != 2)
    assert changed.nodes_per_graph.sum() == changed.num_nodes < before[0].sum()
    assert changed.first_edge.numel() == changed.num_nodes + 1
    assert changed.reverse_edge.numel() == changed.num_edges


@pytest.mark.parametrize(("first", "last"), [(0, 8), (0, 3), (2, 7), (4, 4), (0, 0), (7, 8)])
def test_some_graphs_in_a_row_are_a_batch_of_their_own(first, last, make_batch, shapes, assert_same, edges_of):
    graphs = [*shapes.values()]
    part, expected = make_batch(graphs, with_attributes=True).between(first, last), make_batch(graphs[first:last], True)
    assert (part.num_graphs, part.graph_of_node.tolist()) == (last - first, expected.graph_of_node.tolist())
    assert [ends for ends, _ in edges_of(part)] == [ends for ends, _ in edges_of(expected)]
    nodes, edges = (sum(size for size, _ in graphs[:first]), sum(len(edges) for _, edges in graphs[:first]))
    assert part.x[:, 0].tolist() == [nodes + number for number in range(part.num_nodes)]
    assert part.edge_attr.flatten().tolist() == [edges + number for number in expected.edge_attr.flatten().tolist()]


@pytest.mark.parametrize("with_attributes", [False, True])
def test_concatenated_batches_are_the_batch_of_all_graphs(with_attributes, make_batch, shapes, assert_same):
    whole = make_batch([*shapes.values()], with_attributes)
    graph_of_edge = whole.graph_of_node[whole.source]
    parts = []
    for graphs in ([0, 1, 2], [3], [4, 5, 6, 7]):
        part = make_batch([list(shapes.values())[graph] for graph in graphs], with_attributes)
        # features and attributes number nodes and edges through all graphs
        part.x[:] = whole.x[torch.isin(whole.graph_of_node, torch.tensor(graphs))]
        if with_attributes:
            part.edge_attr[:] = whole.edge_attr[torch.isin(graph_of_edge, torch.tensor(graphs))]
        parts.append(part)
    assert_same(concatenate(parts), whole)
    assert_same(concatenate(parts[:1]), parts[0])


def test_ranges_are_concatenated():
    starts, sizes = [5, 0, 7, 3], [2, 0, 3, 1]
    expected = [number for start, size in zip(starts, sizes, strict=True) for number in range(start, start + size)]
    assert concatenate_ranges(torch.tensor(starts), torch.tensor(sizes)).tolist() == expected
    assert concatenate_ranges(torch.tensor([4]), torch.tensor([0])).tolist() == []


@pytest.mark.parametrize("chosen", [[3], [0], [1, 0], [9, 2, 2, 0, 5], []])
@pytest.mark.parametrize("edge_columns", [0, 2])
def test_a_batch_of_the_store_matches_a_plain_loop(chosen, edge_columns, edges_of):
    dataset = random_graphs(12, 6, 3, seed=4, num_edge_attributes=edge_columns)
    store = make_store(dataset, Features.from_dataset(dataset))
    assert len(store) == 12
    x, graph_of_node, edges = [], [], []
    for place, graph in enumerate(chosen):
        shift = len(x)
        for edge in range(store.first_edge[graph], store.first_edge[graph + 1]):
            pair = int(store.source[edge]) + shift, int(store.target[edge]) + shift
            edges.append((pair, tuple(store.edge_attr[edge].tolist()) if edge_columns else ()))
        for node in range(store.first_node[graph], store.first_node[graph + 1]):
            x.append([float(value) for value in store.x[node]])
            graph_of_node.append(place)
    batch = store.batch(torch.tensor(chosen, dtype=torch.long))
    assert batch.num_graphs == len(chosen)
    assert batch.x.tolist() == x
    assert batch.x.shape[1] == store.num_features
    assert batch.graph_of_node.tolist() == graph_of_node
    assert edges_of(batch) == edges


@pytest.mark.parametrize("chosen", [[3], [1, 0], [9, 2, 2, 0, 5], []])
@pytest.mark.parametrize("edge_columns", [0, 2])
def test_batches_are_the_same_on_a_cpu_and_anywhere_else(chosen, edge_columns, assert_same):
    dataset = random_graphs(12, 6, 3, seed=4, num_edge_attributes=edge_columns)
    store = make_store(dataset, Features.from_dataset(dataset))
    graphs = torch.tensor(chosen, dtype=torch.long)
    found, expected = store.batch(graphs), store._batch_anywhere(graphs)
    assert_same(found, expected)
    assert torch.equal(found.nodes_per_graph, expected.nodes_per_graph)
    assert torch.equal(found.first_node, expected.first_node)


def test_components_are_those_that_paths_join(batch, mutag):
    """Whether they are found in a batch or, once for all batches, in the store."""
    from_store = mutag.batch(torch.tensor([5, 100, 5, 187]))
    apart = random_graphs(30, 9, 1, seed=2)  # one edge a node: most graphs fall apart
    in_parts = make_store(apart, Features.from_dataset(apart)).batch(torch.tensor([29, 3, 3, 0, 17]))
    for each in (batch, from_store, in_parts):
        graph = nx.Graph()
        graph.add_nodes_from(range(each.num_nodes))
        graph.add_edges_from(zip(each.source.tolist(), each.target.tolist(), strict=True))
        found = {}
        for node, number in enumerate(each.component.tolist()):
            found.setdefault(number, set()).add(node)
        assert sorted(map(sorted, found.values())) == sorted(map(sorted, nx.connected_components(graph)))
        assert sorted(found) == list(range(len(found)))
    assert len(found) > in_parts.num_graphs


def test_bytes_become_floats_in_a_batch_and_floats_stay():
    offsets = torch.tensor([0, 2])
    none = torch.zeros(0, dtype=torch.int32)
    for dtype, expected in ((torch.uint8, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2):
        store = GraphStore(torch.ones(2, 3, dtype=dtype), none, none, offsets, torch.tensor([0, 0]))
        batch = store.batch(torch.tensor([0]))
        assert batch.x.dtype == expected
        assert batch.source.dtype == batch.target.dtype == torch.long


def test_moving_a_store_keeps_every_tensor(mutag):
    moved = mutag.to("meta")
    for name in ("x", "source", "target", "first_node", "first_edge", "edge_attr"):
        here, there = getattr(mutag, name), getattr(moved, name)
        assert there.device.type == "meta"
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
    assert moved.device.type == "meta"
    assert len(moved) == len(mutag)
