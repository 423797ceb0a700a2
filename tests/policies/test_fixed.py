"""Policies that do not learn."""

import pytest
import torch

from joao.config.recipe import make_recipe
from joao.policies import Fixed, Given, RulePool, Uniform
from tests.messages import refused


def test_all_probability_is_on_the_named_pair(generator):
    policy = Fixed(["a", "b", "c"], pair=["c", "a"])
    assert policy.probabilities.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert policy.sample(3, generator()).tolist() == [[2, 0]] * 3


def test_default_pair_is_the_first_augmentation_twice():
    assert Fixed(["a", "b"]).probabilities.tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(("pair", "values"), [(["a"], ["'pair'", 1]), (["a", "d"], ["'d'"])])
def test_wrong_pairs_are_rejected(pair, values):
    with refused("policy", *values):
        Fixed(["a", "b"], pair=pair)


POOL = ["node_drop", "identity"]


def test_given_table_is_normalised_and_fixed(generator):
    policy = Given(POOL, table=[[2, 0], [1, 1]])
    expected = torch.tensor([[0.5, 0.0], [0.25, 0.25]], dtype=torch.float64)
    assert torch.equal(policy.probabilities, expected)
    policy.update(torch.rand(2, 2))
    assert torch.equal(policy.probabilities, expected)
    drawn = policy.sample(40_000, generator())
    shares = torch.bincount(drawn @ torch.tensor([2, 1]), minlength=4).view(2, 2) / len(drawn)
    torch.testing.assert_close(shares.double(), expected, rtol=0, atol=0.01)


def test_given_table_may_sum_to_less_than_one():
    assert Given(POOL, table=[[0.25, 0.0], [0.0, 0.25]]).probabilities.tolist() == [[0.5, 0.0], [0.0, 0.5]]


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ([[1, 1]], 2),
        ([[1], [1, 1]], 2),
        ([[1, -1], [1, 1]], 0),
        ([[0, 0], [0, 0]], 0),
        ([[1, float("nan")], [1, 1]], 0),
        ([[1, float("inf")], [1, 1]], 0),
    ],
)
def test_invalid_tables_are_rejected(table, value):
    with refused("policy", "'table'", value):
        Given(POOL, table=table)


def test_given_table_survives_a_recipe():
    table = [[1.0, 0.0], [0.0, 1.0]]
    recipe = make_recipe({"augmentations": POOL, "policy": {"name": "given", "table": table}})
    assert make_recipe(recipe.table()) == recipe


NAMES = ["identity", "subgraph", "attribute_mask", "node_drop", "edge_perturb"]


@pytest.mark.parametrize(("pool", "members"), [("molecules", [1, 3]), ("sparse", [1, 3, 4]), ("dense", [1, 2, 3, 4])])
def test_both_views_are_drawn_uniformly_from_the_pool_of_the_rule(pool, members):
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i in members:
        for j in members:
            expected[i, j] = 1 / len(members) ** 2
    torch.testing.assert_close(RulePool(NAMES, pool).probabilities, expected)


def test_unknown_pools_and_missing_members_are_rejected():
    with refused("'molecule'", "'molecules'"):
        RulePool(NAMES, "molecule")
    with refused("'edge_perturb'"):
        RulePool(NAMES[:4], "sparse")


def test_every_pair_has_the_same_probability():
    assert Uniform(["a", "b"]).probabilities.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    assert Uniform(["a"]).probabilities.tolist() == [[1]]
