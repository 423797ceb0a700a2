"""The benchmark of training from shards: both sides train on the same graphs."""

import torch

from joao.data.features import Features, make_store
from joao.data.shards.store import ShardStore
from repro.benchmarks import shard_feed
from repro.benchmarks.workloads import molecule_like_graphs


def test_both_sides_have_the_same_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_feed, "SHARD_GRAPHS", 7)
    dataset = molecule_like_graphs(20)
    shards = shard_feed.write_shards(dataset, tmp_path / "shards")
    features = Features.from_dataset(dataset, "labels")
    one, other = (
        each.batch(torch.arange(20)) for each in (make_store(dataset, features), ShardStore(shards, features))
    )
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.source, other.source)
    assert torch.equal(one.first_node, other.first_node)


def test_rates_and_ratio_belong_together():
    found = shard_feed.measure(64, 4, 1, 16, 1, "cpu", "32-true")
    (memory,), (shards,) = found["graphs per second"].values()
    assert abs(shards / memory - found["shards over memory"]["median"]) < 0.01 * shards / memory + 0.01
