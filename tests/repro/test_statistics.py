from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from repro.statistics import table_correlation
from tests.messages import refused


@pytest.mark.parametrize("ties", [False, True])
def test_table_correlation_is_spearmans(ties):
    first, second = np.random.default_rng(5).normal(size=(2, 4, 4))
    if ties:
        first, second = first.round(), second.round()
        assert len(set(first.ravel())) < 16
    found = table_correlation(first, second)
    assert found.value == pytest.approx(stats.spearmanr(first.ravel(), second.ravel()).statistic)
    assert table_correlation(np.exp(first), -second).value == pytest.approx(-found.value)


def test_p_value_is_the_share_of_permutations_at_least_as_good():
    first, second = np.random.default_rng(8).normal(size=(2, 3, 3))
    values = []
    for way in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        renamed = [[second[way[i], way[j]] for j in range(3)] for i in range(3)]
        values.append(abs(stats.spearmanr(first.ravel(), np.ravel(renamed)).statistic))
    expected = sum(value >= values[0] - 1e-12 for value in values) / 6
    assert 1 / 6 < expected < 1  # or any share would do
    assert table_correlation(first, second).p_value == pytest.approx(expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_perfect_agreement(sign):
    table = np.random.default_rng(2).normal(size=(5, 5))
    found = table_correlation(table, sign * table**3)
    assert found.value == pytest.approx(sign)
    assert found.p_value == pytest.approx(1 / 120)


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [((2, 3), (2, 3), ["(2, 3)"]), ((2, 2), (3, 3), ["(2, 2)", "(3, 3)"]), ((2, 2), None, ["equal", "ranks"])],
)
def test_table_correlation_rejects_wrong_tables(a, b, values):
    second = np.zeros(a) if b is None else np.random.default_rng(0).normal(size=b)
    with refused("correlation", *values):
        table_correlation(np.random.default_rng(1).normal(size=a), second)
