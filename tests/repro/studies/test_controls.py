"""The tables that stand beside JOAO's."""

import numpy as np
import pytest

from repro.studies import controls


@pytest.fixture
def table():
    shares = np.random.default_rng(0).random((5, 5))
    return shares / shares.sum()


def test_reversed_table_has_the_same_values_in_reverse_order(table):
    turned = controls.opposite(table, seed=0)
    assert sorted(turned.ravel()) == sorted(table.ravel())
    assert np.array_equal(turned.ravel().argsort(), table.ravel().argsort()[::-1])


@pytest.mark.parametrize("seed", range(5))
def test_permutation_moves_every_augmentation_and_keeps_pairs(table, seed):
    moved = controls.permuted(table, seed)
    (order,) = [
        order
        for order in np.array(np.meshgrid(*[range(5)] * 5)).T.reshape(-1, 5)
        if len(set(order)) == 5 and np.array_equal(table[order][:, order], moved)
    ]
    assert not np.any(order == np.arange(5))


def test_frozen_table_is_unchanged(table):
    assert controls.frozen(table, 0) is table
