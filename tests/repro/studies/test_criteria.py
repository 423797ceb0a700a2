"""Criteria without labels: closed forms on tiny embeddings."""

import numpy as np
import pytest

from repro.studies.criteria import alignment_and_uniformity, hold_out, probe

CORNERS = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])  # mean 0 and deviation 1 in both columns


def test_alignment_and_uniformity_of_a_square():
    # Half of the views are the opposite corners, at distance 2; the pairs of corners are four sides and two diagonals.
    opposite = CORNERS * [[-1], [-1], [1], [1]]
    alignment, uniformity = alignment_and_uniformity([opposite, CORNERS])
    assert alignment == pytest.approx((4 + 4 + 0 + 0) / 4)
    assert uniformity == pytest.approx(np.log((4 * np.exp(-4) + 2 * np.exp(-8)) / 6))


def test_alignment_is_the_mean_over_all_pairs_of_views():
    alignment, _ = alignment_and_uniformity([-CORNERS, CORNERS, CORNERS])
    assert alignment == pytest.approx((4 + 4 + 0) / 3)


def test_shift_and_scale_of_columns_change_nothing():
    views = [np.random.default_rng(seed).normal(size=(20, 3)) for seed in range(3)]
    moved = [view * [1, 10, 1000] + [5, 0, -3] for view in views]
    np.testing.assert_allclose(alignment_and_uniformity(moved), alignment_and_uniformity(views))


def test_probe_of_one_uncorrelated_column():
    # Standardised x and y = x: the weight is 1 / 1.01 and the residual 0.01 / 1.01 of y.
    x = np.array([[-1.0], [1]])
    assert probe(x, 3 * x, (2 * x + 7, 6 * x + 7)) == pytest.approx(1 - (0.01 / 1.01) ** 2)
    # A second label that the embedding knows nothing of: half of the variance is lost.
    x = CORNERS[:, :1]
    assert probe(x, x, (CORNERS, CORNERS)) == pytest.approx((1 - (0.01 / 1.01) ** 2) / 2)


def test_isomorphic_graphs_are_held_out_together():
    groups = np.repeat(np.arange(50), 2)
    mask = hold_out(groups, 0)
    assert mask.sum() == 20
    assert (mask[::2] == mask[1::2]).all()
    assert not np.array_equal(mask, hold_out(groups, 1))
