"""Gains of pairs beside the shares that JOAO gave them, on records made by hand."""

import numpy as np
import pytest
from matplotlib.image import imread

from joao.config.recipe import POOL
from joao.core.pair_table import PairTable
from repro.protocols.semi_supervised.pairs import Agreement, agreements, draw_agreement, pairs_markdown
from repro.protocols.semi_supervised.run import PAIRS
from repro.statistics import TableCorrelation
from tests.messages import assert_mentions, refused

DRAWN = np.arange(25).reshape(5, 5)  # of 300 graphs


def record(method, seed, accuracy, dataset="NCI1", **rest):
    cell = {"dataset": dataset, "method": method, "seed": seed, "label_rate": 10}
    facts = {"split_hash": f"{dataset} {seed}", "precision": "tf32"}
    return {"cell": cell, "scores": {"accuracy": [accuracy]}, **facts, **rest}


def joao(seed, drawn=DRAWN, names=POOL, dataset="NCI1", method="joao"):
    return record(method, seed, 0.7, dataset, policy={"augmentations": list(names), "drawn": drawn.tolist()})


def records(gains, seeds=(0, 1), dataset="NCI1"):
    """Records in which the pairs gain so many points, ``(5, 5)``, over no pre-training, whose seeds differ."""
    made = []
    for seed in seeds:
        baseline = 0.5 + seed / 10
        made += [record("none", seed, baseline, dataset), joao(seed, dataset=dataset)]
        made += [
            record(pair, seed, baseline + gain / 100, dataset)
            for pair, gain in zip(PAIRS, np.ravel(gains), strict=True)
        ]
    return made


@pytest.mark.parametrize("sign", [1, -1])
def test_gains_in_the_order_of_the_shares(sign):
    found = agreements(records(sign * DRAWN / 10))["NCI1"]
    assert found.correlation.value == pytest.approx(sign)
    np.testing.assert_allclose(found.gains.values, sign * DRAWN / 10, atol=1e-9)
    np.testing.assert_allclose(found.shares.values, DRAWN / 300)
    assert found.gains.names == found.shares.names == POOL
    assert found.num_seeds == 2


def test_pairs_are_matched_by_name():
    gains = np.zeros((5, 5))
    gains[POOL.index("subgraph"), POOL.index("identity")] = 3
    found = agreements(records(gains))["NCI1"]
    assert found.gains["subgraph", "identity"] == pytest.approx(3)
    assert found.gains["identity", "subgraph"] == pytest.approx(0)
    assert found.shares["subgraph", "identity"] == pytest.approx(9 / 300)


def test_shares_are_matched_by_name_not_position():
    turned = [each for each in records(DRAWN / 10, seeds=[0]) if each["cell"]["method"] != "joao"]
    found = agreements([*turned, joao(0, DRAWN[::-1, ::-1], POOL[::-1])])["NCI1"]
    np.testing.assert_allclose(found.shares.values, DRAWN / 300)
    assert found.correlation.value == pytest.approx(1)


def test_reversed_pairs_stand_in_for_missing_ones():
    gains = DRAWN / 10
    upper = [each for each in records(gains) if not is_lower(each["cell"]["method"])]
    found = agreements(upper)["NCI1"]
    np.testing.assert_allclose(found.gains.values, np.triu(gains) + np.triu(gains, 1).T, atol=1e-9)
    assert (found.num_seeds, found.num_filled) == (2, 10)
    assert "| 15 of 25 |" in pairs_markdown({"NCI1": found})
    # Seeds with both directions are preferred.
    seed_0 = [each for each in records(gains, seeds=[0]) if is_lower(each["cell"]["method"])]
    whole = agreements([*upper, *seed_0])["NCI1"]
    assert (whole.num_seeds, whole.num_filled) == (1, 0)
    np.testing.assert_allclose(whole.gains.values, gains, atol=1e-9)


def is_lower(method):
    first, second = (POOL.index(name) for name in PAIRS.get(method, (POOL[0], POOL[0])))
    return first > second


def test_only_common_seeds_are_compared():
    complete = records(DRAWN / 10)
    # Of seed 2, on which all is easy, only some pairs are there yet; and JOAO drew otherwise.
    more = [record("none", 2, 0.9), joao(2, DRAWN.T), *(record(pair, 2, 0.95) for pair in list(PAIRS)[:7])]
    found, expected = (agreements(each)["NCI1"] for each in ([*more, *complete], complete))
    assert found.num_seeds == 2
    np.testing.assert_array_equal(found.gains.values, expected.gains.values)
    np.testing.assert_array_equal(found.shares.values, expected.shares.values)


def test_records_with_different_labels_are_rejected():
    first, *rest = records(DRAWN)
    with refused("records", "seed 0"):
        agreements([{**first, "split_hash": "other"}, *rest])


def test_markdown_matches_a_hand_computation():
    text = pairs_markdown(agreements(records(-1 - DRAWN / 10)))
    lines = text.splitlines()
    assert lines[2].startswith("| NCI1 | -1.00 (p = 0.02) | 2 | 25 of 25 | ")
    assert_mentions(lines[2], "node_drop + node_drop", "-1.00", "0.000")
    first, second = (number for number, line in enumerate(lines) if line.startswith("## NCI1"))
    gains, shares = lines[first:second], lines[second:]
    assert gains[2] == "| first \\ second | node_drop | subgraph | edge_perturb | attribute_mask | identity |"
    assert gains[5] == "| **subgraph** | -1.50 | -1.60 | -1.70 | -1.80 | -1.90 |"
    assert shares[8] == "| **identity** | 0.067 | 0.070 | 0.073 | 0.077 | 0.080 |"
    assert lines[-1].startswith("![NCI1")
    assert lines[-1].endswith("](pairs-NCI1.png)")


def agreement(gains=DRAWN - 12.0, shares=DRAWN / 300):
    tables = (PairTable.of(POOL, each) for each in (gains, shares))
    return Agreement(*tables, num_seeds=5, correlation=TableCorrelation(0.5, 0.04))


def test_figure_has_panels_for_gains_and_shares(tmp_path):
    panels = []
    for each in (agreement(), agreement(gains=12.0 - DRAWN), agreement(shares=DRAWN.T / 300)):
        draw_agreement("NCI1", each, tmp_path / "picture.png")
        picture = imread(tmp_path / "picture.png")
        assert picture.shape == (480, 1100, 4)
        panels.append((picture[60:, :540], picture[60:, 560:]))  # without the title
    (gains, shares), (other_gains, same_shares), (same_gains, other_shares) = panels
    assert np.array_equal(gains, same_gains)
    assert not np.array_equal(gains, other_gains)
    assert np.array_equal(shares, same_shares)
    assert not np.array_equal(shares, other_shares)
    assert not np.array_equal(gains, shares)
