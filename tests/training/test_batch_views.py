import pytest
import torch

from joao.core.graphs import concatenate
from joao.training import steps
from joao.training.distributed.group import BatchShard, ProcessGroup
from joao.training.steps import BatchViews

GRAPHS = torch.tensor([7, 3, 0, 12, 3, 1, 20, 5, 9, 2])


@pytest.fixture(params=[1024, 4], ids=["one section", "sections of 4"])
def section(request, monkeypatch):
    monkeypatch.setattr(steps, "SECTION", request.param)
    return request.param


def numbers_for(mode, pool):
    return torch.tensor([1]) if mode == "batch" else torch.arange(len(GRAPHS)) * 7 % len(pool)


@pytest.mark.parametrize("mode", ["batch", "graph"])
@pytest.mark.parametrize("size", [2, 3, 12])
def test_shards_of_all_processes_make_up_the_view_of_one(store, pool, generator, assert_same, section, mode, size):
    pool, numbers = list(pool.values()), numbers_for(mode, list(pool))
    alone, sources = generator(4), [generator(4) for _ in range(size)]
    expected = BatchViews(store, GRAPHS).view(numbers, pool, alone)
    views = [
        BatchShard(store, GRAPHS, ProcessGroup(rank, size)).view(numbers, pool, sources[rank]) for rank in range(size)
    ]
    assert_same(concatenate([view.batch for view in views]), expected.batch)
    for view, source in zip(views, sources, strict=True):
        assert torch.equal(source.get_state(), alone.get_state())
        assert mode == "batch" or torch.equal(view.row, expected.row)
    if mode == "graph":
        assert torch.cat([view.augmentation for view in views]).tolist() == expected.augmentation.tolist()


@pytest.mark.parametrize("mode", ["batch", "graph"])
def test_every_graph_is_in_its_row_with_its_augmentation(store, pool, generator, section, mode):
    pool = [pool["identity"]] * 5
    numbers = numbers_for(mode, pool)
    view = BatchViews(store, GRAPHS).view(numbers, pool, generator())
    row = torch.arange(len(GRAPHS)) if view.row is None else view.row
    sizes = view.batch.nodes_per_graph[row]
    assert sizes.tolist() == store.first_node.diff()[GRAPHS].tolist()
    if mode == "graph":
        assert view.augmentation[row].tolist() == numbers.tolist()


def test_a_batch_of_one_section_is_drawn_from_the_generator_itself(store, pool, generator, assert_same):
    drop = pool["node_drop"]
    view = BatchViews(store, GRAPHS).view(torch.tensor([0]), [drop], generator(3))
    assert_same(view.batch, drop(store.batch(GRAPHS), generator(3)))


def test_sections_are_drawn_independently(store, pool, generator, monkeypatch):
    monkeypatch.setattr(steps, "SECTION", 5)
    twice = torch.cat([GRAPHS[:5], GRAPHS[:5]])
    source = generator(3)
    one, other = (BatchViews(store, twice).view(torch.tensor([0]), [pool["node_drop"]], source).batch for _ in range(2))
    first, second = (one.between(0, 5), one.between(5, 10))
    assert not torch.equal(first.source, second.source)
    assert not torch.equal(one.source, other.source)


def test_a_process_draws_only_the_sections_of_its_shard(store, monkeypatch, pool, generator):
    monkeypatch.setattr(steps, "SECTION", 4)
    read = [BatchShard(store, GRAPHS, ProcessGroup(rank, 5)).sections for rank in range(5)]
    assert [[batch.num_graphs for batch in sections] for sections in read] == [[4], [4], [4], [4], [2]]
    monkeypatch.setattr(steps, "SECTION", 3)
    assert [batch.num_graphs for batch in BatchShard(store, GRAPHS, ProcessGroup(1, 3)).sections] == [3]


def test_unchanged_graphs_are_detected_in_one_process_only(store, pool, generator):
    pool, numbers = [pool["identity"]], torch.tensor([0])
    for views, expected in ((BatchViews(store, GRAPHS), True), (BatchShard(store, GRAPHS, ProcessGroup(0, 2)), False)):
        assert views.is_unchanged(views.view(numbers, pool, generator())) == expected
