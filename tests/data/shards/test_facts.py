"""Oracle: the facts of all graphs at once."""

from dataclasses import asdict, fields

import numpy as np
import pytest

from joao.core.registry import make_record
from joao.data.features import CODE_RULES, RULES, Features
from joao.data.shards.index import ColumnFacts, Facts
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from tests.data.refusals import refused


def test_merged_facts_equal_those_of_the_whole():
    dataset = random_graphs(50, 6, 2, num_attributes=3, num_edge_attributes=2)
    parts = [Facts.of(dataset[first : first + 11]) for first in range(0, 50, 11)]
    found = parts[0]
    for part in parts[1:]:
        found = found.merge(part)
    whole = Facts.of(dataset)
    for field in fields(Facts):
        if field.name != "attributes":
            assert getattr(found, field.name) == getattr(whole, field.name), field.name
    assert make_record(Facts, asdict(found), "facts") == found
    found.check()


def test_moments_match_numpy():
    values = np.random.default_rng(0).normal(1000, 0.1, size=500)
    found = ColumnFacts.of(values[:100]).merge(ColumnFacts.of(values[100:130])).merge(ColumnFacts.of(values[130:]))
    assert found.count == 500
    np.testing.assert_allclose([found.mean, found.deviation], [values.mean(), values.std()], rtol=1e-12)
    assert (found.least, found.most, found.binary) == (values.min(), values.max(), False)
    zeros = ColumnFacts.of(np.zeros(3))
    assert zeros.merge(ColumnFacts.of(np.ones(1))).shift_and_scale == (0.0, 1.0)
    assert zeros.merge(ColumnFacts.of(np.full(1, 2.0))).shift_and_scale == (0.5, pytest.approx(0.75**0.5))
    fives = ColumnFacts.of(np.full(3, 5.0))
    assert fives.merge(fives).shift_and_scale == (5.0, 1.0)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in CODE_RULES])
def test_feature_rules_match_those_in_memory(as_shards, tmp_path, rule):
    dataset = random_graphs(40, 6, 2, num_attributes=2)
    expected = Features.from_dataset(dataset, rule)
    assert Features.from_dataset(as_shards(dataset, rows=40, folder=tmp_path / "one"), rule) == expected
    found = Features.from_dataset(as_shards(dataset, rows=9, folder=tmp_path / "several"), rule)
    assert (found.rule, found.vocabulary, found.max_degree) == (expected.rule, expected.vocabulary, 64)
    for name in ("shift", "scale"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)


@pytest.mark.parametrize("rule", ["labels", "attributes"])
def test_impossible_feature_rules_are_rejected(as_shards, rule):
    shards = as_shards(random_graphs(9, 4, 2, num_node_labels=0))
    assert Features.from_dataset(shards).rule == "degree"
    with refused(shards.name, f"'{rule}'", "'auto'"):
        Features.from_dataset(shards, rule)
    with refused(shards.name, "'atoms'", "molecules", "'auto'"):
        Features.from_dataset(shards, "atoms")


def test_graphs_with_different_columns_are_rejected():
    with_labels, without = random_graphs(5, 4, 2), random_graphs(5, 4, 2, num_node_labels=0)
    with refused("node labels", 5, 1):
        Facts.of(with_labels).merge(Facts.of(without))
    edges = np.array([0]), np.array([1])
    weighted, plain = (make_dataset("d", np.array([2]), edges, edge_attr=a) for a in (np.ones((1, 2)), None))
    with refused("edge attributes", 1, 2):
        Facts.of(weighted).merge(Facts.of(plain))
