"""Oracle: torch-geometric's own batching of the same graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from joao.data import Features, make_store, read
from joao.data.synthetic import random_graphs


def as_data(store, index):
    nodes = slice(*store.first_node[index : index + 2].tolist())
    edges = slice(*store.first_edge[index : index + 2].tolist())
    edge_index = torch.stack([store.source[edges], store.target[edges]]).long()
    return Data(x=store.x[nodes].float(), edge_index=edge_index, edge_attr=store.edge_attr[edges])


@pytest.mark.parametrize("rule", ["auto", "labels", "attributes", "degree", "constant"])
@pytest.mark.parametrize("chosen", [[0], [1, 0, 1], [5, 2, 9, 0, 1], list(range(30))])
def test_batch_is_bit_identical_to_torch_geometric(rule, chosen):
    dataset = random_graphs(30, 9, 3, seed=1, num_attributes=2, num_edge_attributes=3)
    store = make_store(dataset, Features.from_dataset(dataset, rule))
    batch = store.batch(torch.tensor(chosen))
    expected = Batch.from_data_list([as_data(store, index) for index in chosen])
    assert batch.num_graphs == len(chosen)
    for found, wanted in (
        (batch.x, expected.x),
        (batch.edge_index, expected.edge_index),
        (batch.edge_attr, expected.edge_attr),
        (batch.graph_of_node, expected.batch),
        (batch.first_node, expected.ptr),
    ):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_torch_geometric_graphs_round_trip_through_a_batch():
    torch.manual_seed(0)
    graphs = []
    for size in (4, 1, 6):
        adjacency = torch.rand(size, size).triu(1) > 0.5
        graphs.append(Data(x=torch.eye(size, 6), edge_index=(adjacency | adjacency.T).nonzero().T))
    dataset = read(graphs)
    batch = make_store(dataset, Features.from_dataset(dataset)).batch(torch.tensor([2, 0, 1]))
    expected = Batch.from_data_list([graphs[2], graphs[0], graphs[1]])
    assert torch.equal(batch.x, expected.x)
    assert set(map(tuple, batch.edge_index.T.tolist())) == set(map(tuple, expected.edge_index.T.tolist()))
    assert torch.equal(batch.graph_of_node, expected.batch)


def test_edges_of_a_batch_are_symmetric_and_sorted_by_target():
    dataset = random_graphs(20, 12, 4, seed=3)
    batch = make_store(dataset, Features.from_dataset(dataset)).batch(torch.arange(20).flip(0))
    pairs = list(zip(batch.target.tolist(), batch.source.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert {(s, t) for t, s in pairs} == set(pairs)
