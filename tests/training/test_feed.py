"""Graphs from shards on padded batches against the same graphs in memory, bit for bit."""

from dataclasses import replace

import pytest
import torch

from joao.config.recipe import make_recipe
from joao.data import Features, make_store
from joao.data.shards import store as shard_store
from joao.data.shards.store import ShardStore
from joao.data.synthetic import random_graphs
from joao.runs.pretraining import pretrain
from joao.training import model
from joao.training.checkpoint import capture_state, restore_state
from joao.training.fast import batches, feed


@pytest.fixture
def dataset():
    return random_graphs(60, 8, 2.5, seed=3, num_edge_attributes=2)


@pytest.fixture
def stores(dataset, as_shards):
    """The same graphs in memory and in shards."""
    features = Features.from_dataset(dataset)
    return make_store(dataset, features), ShardStore(as_shards(dataset), features)


@pytest.fixture
def read(monkeypatch):
    """Chunks of about three batches of 6 graphs; the numbers of nodes and edges of those that were read."""
    sizes, graphs = [], ShardStore.graphs

    def counted(store, wanted):
        found = graphs(store, wanted)
        sizes.append((len(found.x), len(found.source)))
        return found

    monkeypatch.setattr(ShardStore, "graphs", counted)
    monkeypatch.setattr(feed, "CHUNK_BYTES", 12_000)
    monkeypatch.setattr(feed, "FIRST_CHUNK", 2)
    return sizes


def shown(training):
    epochs = [(each.loss, each.pair_losses, each.probabilities) for each in training.run()]
    return epochs, training.model.state_dict()


@pytest.mark.parametrize("schedule", [{}, {"update_every": 3, "update_batches": 2}], ids=str)
def test_shards_train_as_graphs_in_memory(stores, read, make_method, make_training, schedule):
    memory, shards = (make_training(make_method(), store=store, fast=True, **schedule) for store in stores)
    assert shards.is_fast
    (one, weights), (other, found) = shown(memory), shown(shards)
    assert one == other
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    assert len(shards.steps.buffers.feed.stores) == (2 if schedule else 1)  # pairs are measured inside an epoch
    # A chunk stays below its size, and each graph is read once in each of three epochs.
    room, store = shards.steps.buffers.feed.stores[0], memory.steps.buffers.store
    assert (room.most_nodes, room.most_edges) == (store.most_nodes, store.most_edges)  # kernels of a GPU depend on them
    of_edges = [room.source, room.target, room.reverse_edge]
    of_nodes = [each for each in vars(room).values() if torch.is_tensor(each) and len(each) == len(room.x)]
    assert len(of_nodes) == 6
    for tensors in (of_nodes, of_edges):
        assert 0.9 * feed.CHUNK_BYTES < sum(each[1:].nbytes for each in tensors) <= feed.CHUNK_BYTES
    nodes, edges = shards.steps.buffers.feed._limits()
    assert max(chunk[0] for chunk in read) <= nodes
    assert max(chunk[1] for chunk in read) <= edges
    assert len(read) > 6
    if not schedule:
        measured = 3  # one batch of the ten of an epoch
        assert sum(chunk[0] for chunk in read) < 3 * len(stores[0].x) * (1 + measured / 10)


def test_the_order_of_windows_is_that_of_the_plain_path(stores, read, make_method, make_training, monkeypatch):
    monkeypatch.setattr(shard_store, "BLOCK", 4)
    trainings = [make_training(make_method(), store=store, fast=True, epochs=2) for store in stores]
    for training in trainings:
        training.sampler = model.BatchSampler(60, 6, block=4, window=16)
    plain = make_training(make_method(), store=stores[1], fast=False, epochs=2)
    plain.sampler = trainings[0].sampler
    drawn = [[batch.graphs.tolist() for _, batch in each._batches("batches")] for each in trainings]
    assert drawn[0] == drawn[1] == [batch.tolist() for _, batch in plain._batches("batches")]
    assert sorted(graph for batch in drawn[0] for graph in batch) == list(range(60))
    assert shown(trainings[0])[0] == shown(trainings[1])[0]


def test_batches_that_do_not_fit_are_not_read_ahead(stores, read, make_method, make_training, monkeypatch):
    mean = [int(size.double().mean() * 6) for size in (stores[0].first_node.diff(), stores[0].first_edge.diff())]
    capacities = iter(mean * 2)
    monkeypatch.setattr(batches, "buffer_capacity", lambda sizes, count: next(capacities))
    memory, shards = (make_training(make_method(), store=store, fast=True, epochs=2) for store in stores)
    fits = [batch.fits for _, batch in shards._batches("batches")]
    assert 0 < sum(fits) < len(fits)
    shards.generators["batches"].set_state(memory.generators["batches"].get_state())
    torch.testing.assert_close(*(torch.tensor([each[0] for each in shown(x)[0]]) for x in (memory, shards)))


def test_a_batch_larger_than_a_chunk_gets_its_own_room(stores, read, make_method, make_training, monkeypatch):
    monkeypatch.setattr(feed, "CHUNK_BYTES", 10)
    memory, shards = (make_training(make_method(), store=store, fast=True, epochs=1) for store in stores)
    assert shown(memory)[0] == shown(shards)[0]
    assert len(read) == 10 + 1
    assert len(shards.steps.buffers.feed.stores) == 1  # large enough for every batch


def test_a_training_resumes_inside_an_epoch_and_skips_what_was_trained_on(stores, read, make_method, make_training):
    whole, part = (make_training(make_method(), store=stores[1], fast=True, epochs=1) for _ in range(2))
    states = []
    (expected,) = whole.run(lambda: states.append(capture_state(whole)) if whole.step == 8 else None)
    read.clear()
    restore_state(part, states[0])
    (found,) = part.run()
    assert (found.loss, found.pair_losses) == (expected.loss, expected.pair_losses)
    assert sum(chunk[0] for chunk in read) < len(stores[0].x) / 2  # two batches, and one for the pairs


def test_an_encoder_that_uses_edge_attributes_gets_them(dataset, as_shards, read):
    recipe = make_recipe(
        {"encoder": {"name": "gine", "width": 4, "layers": 2}, "training": {"epochs": 2, "batch_size": 6}}
    )
    losses = []
    for scaled in (dataset, replace(dataset, name="scaled", edge_attr=100 * dataset.edge_attr)):
        for data in (scaled, as_shards(scaled)):
            trained = pretrain(recipe, data, device="cpu", fast=True)
            assert trained.info.fast
            losses.append([epoch.loss for epoch in trained.metrics])
    assert losses[0] == losses[1] != losses[2] == losses[3]


def test_a_damaged_shard_is_an_error_of_the_training(stores, read, make_method, make_training, monkeypatch):
    training = make_training(make_method(), store=stores[1], fast=True)

    def damaged(store, wanted):
        raise OSError("the disk is gone")

    monkeypatch.setattr(ShardStore, "graphs", damaged)
    with pytest.raises(OSError, match="the disk is gone"):
        list(training.run())
