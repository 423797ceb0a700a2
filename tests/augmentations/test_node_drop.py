"""Dropping nodes, and changing nothing."""

from fractions import Fraction
from itertools import combinations

import pytest
import torch

from joao.augmentations import Identity, NodeDrop


@pytest.mark.parametrize("strength", ["0.1", "0.2", "0.3", "0.58", "0.7", "0.99"])
def test_floor_of_the_share_is_removed_from_each_graph(strength, make_batch, generator):
    sizes = [*range(1, 12), 50, 100]
    view = NodeDrop(float(strength))(make_batch([(size, []) for size in sizes]), generator())
    assert view.nodes_per_graph.tolist() == [size - Fraction(strength) * size // 1 for size in sizes]


def test_share_is_rounded_down_except_for_rounding_errors(make_batch, generator):
    for strength, dropped in ((0.3, 3), ((3 - 0.5e-9) / 10, 3), ((3 - 1.5e-9) / 10, 2)):
        assert NodeDrop(strength)(make_batch([(10, [])]), generator()).num_nodes == 10 - dropped


def test_result_is_the_induced_subgraph(mutag, numbered, generator, edges_of):
    batch = numbered(mutag.batch(torch.arange(40)))
    view = NodeDrop(0.4)(batch, generator())
    old = [int(number) for number in view.x[:, 0]]
    kept = {((u, v), attr) for (u, v), attr in edges_of(batch) if u in old and v in old}
    assert {((old[u], old[v]), attr) for (u, v), attr in edges_of(view)} == kept


def test_every_set_of_nodes_is_equally_likely(make_batch, generator, assert_law):
    view = NodeDrop(0.5)(make_batch([(6, [])] * 4000), generator(1))
    kept = (view.x[:, 0].long() % 6).view(4000, 3).tolist()
    assert_law(map(tuple, kept), dict.fromkeys(combinations(range(6), 3), 1 / 20))


def test_identity_changes_nothing_at_any_strength(mutag, generator, assert_same):
    batch = mutag.batch(torch.arange(10))
    assert_same(Identity(0.9)(batch, generator()), mutag.batch(torch.arange(10)))
