"""Oracle: the permutation in memory, counts, and the law of a two-stage shuffle by hand."""

from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from joao.training.model import WINDOW, BatchSampler, split_into_batches


def batches(order, generator):
    return list(chain.from_iterable(order.draw(generator)))


@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize(("num_graphs", "batch_size"), [(1, 3), (3, 3), (4, 3), (5, 3), (20, 6), (19, 6), (7, 100)])
def test_up_to_one_window_the_order_is_a_permutation(num_graphs, batch_size, block, generator):
    found = batches(BatchSampler(num_graphs, batch_size, block), generator(5))
    assert torch.cat(found).tolist() == torch.randperm(num_graphs, generator=generator(5)).tolist()
    sizes = [batch.numel() for batch in found]
    assert len(sizes) == len(BatchSampler(num_graphs, batch_size, block))
    assert num_graphs == 1 or min(sizes) > 1
    assert set(sizes[:-1]) <= {batch_size}
    assert sizes[-1] <= batch_size + 1


@pytest.mark.parametrize("num_graphs", [41, 48, 64, 65, 66, 129])
@pytest.mark.parametrize("batch_size", [2, 5, 16, 40])
def test_every_graph_comes_once_per_epoch(num_graphs, batch_size, generator):
    order = BatchSampler(num_graphs, batch_size, block=4, window=16)
    found = batches(order, generator(1))
    assert sorted(torch.cat(found).tolist()) == list(range(num_graphs))
    assert len(found) == len(order)
    assert {batch.numel() for batch in found[:-1]} <= {batch_size}
    assert 1 < found[-1].numel() <= batch_size + 1


def test_blocks_stay_in_one_window(generator):
    shown = torch.cat(batches(BatchSampler(1000, 8, block=10, window=100), generator(2)))
    window_of_graph = torch.empty(1000, dtype=torch.long).index_copy_(0, shown, torch.arange(1000) // 100)
    assert (window_of_graph.view(100, 10) == window_of_graph.view(100, 10)[:, :1]).all()
    # Inside a window, graphs of a block do not stay together: of 999 neighbours, about one in 11 is of the same block.
    blocks = shown // 10
    assert (blocks[1:] == blocks[:-1]).sum() < 150


def test_every_position_is_equally_likely(generator):
    draw = generator(3)
    order, rounds = BatchSampler(24, 6, block=2, window=8), 3000
    shown = torch.stack([torch.cat(batches(order, draw)) for _ in range(rounds)])
    counts = np.array([np.bincount(column, minlength=24) for column in shown.T.numpy()])
    statistic = ((counts - rounds / 24) ** 2 / (rounds / 24)).sum()
    assert statistic < chi2.ppf(1 - 1e-6, 23 * 23)


def test_the_order_depends_on_seed_and_epoch(generator):
    order = BatchSampler(100, 8, block=4, window=32)
    draw, again = generator(4), generator(4)
    first, second = (torch.cat(batches(order, draw)).tolist() for _ in range(2))
    assert first != second
    assert [torch.cat(batches(order, again)).tolist() for _ in range(2)] == [first, second]


def test_memory_does_not_grow_with_the_data(generator):
    """Of ten million graphs, no list of numbers is longer than a window."""
    order = BatchSampler(10_000_000, 256, block=1 << 12)
    drawn = order.draw(generator(0))
    part = next(drawn)
    assert sum(batch.numel() for batch in part) <= WINDOW
    assert part[0].untyped_storage().nbytes() <= 8 * WINDOW
    assert len(order) == 39063


@pytest.mark.parametrize(
    ("num_graphs", "batch_size", "sizes"),
    [(12, 4, [4, 4, 4]), (13, 4, [4, 4, 5]), (14, 4, [4, 4, 4, 2]), (3, 2, [3]), (2, 9, [2]), (1, 2, [1])],
)
def test_a_last_batch_of_one_graph_is_merged(num_graphs, batch_size, sizes, generator):
    (found,) = BatchSampler(num_graphs, batch_size).draw(generator(1))
    assert [len(batch) for batch in found] == sizes
    numbers = torch.randperm(num_graphs, generator=generator(1))
    assert torch.equal(torch.cat(found), numbers)
    assert all(map(torch.equal, split_into_batches(numbers, batch_size), found))
