"""Criteria without labels: closed forms on tiny embeddings."""

from dataclasses import asdict

import numpy as np
import pytest

from repro.studies import criteria, headroom
from repro.studies.criteria import alignment_and_uniformity, hold_out, probe
from repro.studies.sweep import SETS

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


def make_records(good, best_by_probe):
    """Records in which the arm ``good`` of every set is 2 points (and a little by set) better than all others."""
    scored, judged = [], []
    for cell in headroom.cells(SETS, 5):
        gain = (0.02 + 1e-3 * SETS.index(cell.dataset)) * ((cell.arm, cell.strength) == good)
        scored.append({"cell": asdict(cell), "accuracies": [0.5 + gain] * 10, "effective rank": 1.0 + cell.strength})
    for cell in criteria.cells(SETS, criteria.SEEDS):
        values = {"alignment": 0.0, "uniformity": float(cell.strength), "effective rank": float(cell.strength)}
        judged.append({"cell": asdict(cell), **values, "probe": float((cell.arm, cell.strength) == best_by_probe)})
    return judged, scored


def gains(judged, scored):
    lines = [line.strip("| ").split(" | ") for line in criteria.section(judged, scored).splitlines()]
    return {line[0]: [float(each.split()[0]) for each in line[1:]] for line in lines if line[0] in criteria.CRITERIA}


def test_first_criterion_that_finds_the_good_arm_is_adopted():
    good = ("subgraph+identity", 0.3)
    found = gains(*make_records(good, best_by_probe=good))
    assert found["probe of WL histograms"] == pytest.approx([2.25, 2.25 * 41 / 42], abs=0.01)
    assert found["alignment + uniformity"] == pytest.approx([0.0, -2.25 / 42], abs=0.01)  # smaller is better: 0.1
    assert "*probe of WL histograms* becomes a policy" in criteria.section(*make_records(good, best_by_probe=good))


def test_no_decision_before_all_pretrainings_are_finished():
    judged, scored = make_records(("subgraph+identity", 0.3), ("subgraph+identity", 0.3))
    assert "1 pre-trainings are missing" in criteria.section(judged[1:], scored)
