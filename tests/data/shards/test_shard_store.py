"""Oracle: the batches of the same graphs in memory, bit for bit."""

import networkx
import numpy as np
import pytest
import torch

from joao.data import read
from joao.data.features import CODE_RULES, RULES, Features, make_store
from joao.data.shards.store import BLOCK, ShardStore
from joao.data.synthetic import random_graphs
from joao.training.fast.batches import PaddedStore

PARTS = ("x", "source", "target", "graph_of_node", "nodes_per_graph", "first_node", "first_edge", "reverse_edge")


def assert_same_batch(found, expected):
    assert found.num_graphs == expected.num_graphs
    for name in PARTS:
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name
    assert torch.equal(found.component.long(), expected.component.long())
    assert (found.edge_attr is None) == (expected.edge_attr is None)
    if found.edge_attr is not None:
        assert torch.equal(found.edge_attr, expected.edge_attr)
        assert found.edge_attr.dtype == expected.edge_attr.dtype


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in CODE_RULES])
def test_batches_match_those_in_memory(as_shards, rule, generator):
    dataset = random_graphs(40, 7, 2.5, num_attributes=2, num_edge_attributes=1)
    features = Features.from_dataset(dataset, rule, max_degree=5)
    memory, shards = make_store(dataset, features), ShardStore(as_shards(dataset), features)
    assert isinstance(shards, ShardStore)
    assert (len(shards), shards.num_features, shards.num_edge_features) == (40, memory.num_features, 1)
    for size in (1, 2, 40):
        numbers = torch.randint(40, (size,), generator=generator(size))
        assert_same_batch(shards.batch(numbers), memory.batch(numbers))
        assert torch.equal(shards.sizes(numbers), memory.sizes(numbers))


def test_molecules(as_shards):
    pytest.importorskip("rdkit")
    dataset = read(["CCO", "c1ccccc1", "[Na+].[Cl-]", "no", "F/C=C/F", "[2H]C"])
    features = Features.from_dataset(dataset)
    memory, shards = make_store(dataset, features), ShardStore(as_shards(dataset, rows=2), features)
    for numbers in (torch.tensor([4, 0, 2]), torch.arange(5)):
        assert_same_batch(shards.batch(numbers), memory.batch(numbers))


def test_only_shards_are_shuffled_in_blocks(as_shards):
    dataset = random_graphs(9, 5, 2)
    features = Features.from_dataset(dataset)
    assert make_store(dataset, features).block == 0
    assert ShardStore(as_shards(dataset), features).block == BLOCK


def test_batches_are_moved_to_the_device(as_shards):
    dataset = random_graphs(9, 5, 2, num_edge_attributes=1)
    store = ShardStore(as_shards(dataset), Features.from_dataset(dataset)).to("meta")
    batch = store.batch(torch.tensor([2, 3]))
    assert {batch.x.device.type, batch.source.device.type, batch.edge_attr.device.type} == {"meta"}
    assert store.device == torch.device("meta")


def test_labels_unseen_in_training(as_shards):
    dataset = random_graphs(20, 5, 2, num_node_labels=4)
    shards = as_shards(dataset)
    features = Features("labels", vocabulary=((0, 2),))
    assert features.unknown_labels(shards) == features.unknown_labels(dataset) > 0
    assert Features.from_dataset(dataset).unknown_labels(shards) == 0


@pytest.mark.parametrize("size", [200, 300, 70_000])
def test_node_numbers_of_any_width_are_read_into_types_that_torch_can_add(as_shards, size):
    ring = networkx.cycle_graph(size)  # shards have 8, 16 and 32 bits for each node
    dataset = read([ring, networkx.path_graph(3)])
    features = Features.from_dataset(dataset)
    memory = PaddedStore(make_store(dataset, features))
    found = PaddedStore(ShardStore(as_shards(dataset), features).graphs(torch.arange(2)))
    for name in ("source", "target", "edge_of_node", "reverse_edge"):
        assert torch.equal(getattr(found, name).long(), getattr(memory, name).long()), name
    assert found.source.max() == size - 1


def test_two_threads_may_read_at_once(as_shards, monkeypatch):
    class Contended(dict):
        """Loses its first key to another thread whenever one thread has looked at the keys."""

        def __iter__(self):
            keys = list(super().__iter__())
            del self[keys[0]]
            return iter(keys)

    dataset = random_graphs(9, 5, 2)
    store = ShardStore(as_shards(dataset), Features.from_dataset(dataset))
    monkeypatch.setattr("joao.data.shards.store._MAX_PREFETCHED", 3)
    monkeypatch.setattr(store.shards, "prefetch", lambda first, last: None)
    store._prefetched = Contended.fromkeys(range(3))
    store._prefetch(BLOCK * np.arange(3, 7))
    assert sorted(store._prefetched.keys()) == [4, 5, 6]
