"""A table that is given."""

import pytest
import torch

from joao.config.recipe import make_recipe
from joao.policies import Given
from tests.messages import refused

POOL = ["node_drop", "identity"]


def test_numbers_are_shares_of_their_sum_and_stay(generator):
    policy = Given(POOL, table=[[2, 0], [1, 1]])
    expected = torch.tensor([[0.5, 0.0], [0.25, 0.25]], dtype=torch.float64)
    assert torch.equal(policy.probabilities, expected)
    policy.update(torch.rand(2, 2))
    assert torch.equal(policy.probabilities, expected)
    drawn = policy.sample(40_000, generator())
    shares = torch.bincount(drawn @ torch.tensor([2, 1]), minlength=4).view(2, 2) / len(drawn)
    torch.testing.assert_close(shares.double(), expected, rtol=0, atol=0.01)


def test_shares_may_be_small():
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
def test_what_is_no_table(table, value):
    with refused("policy", "'table'", value):
        Given(POOL, table=table)


def test_a_recipe_has_it_by_name():
    table = [[1.0, 0.0], [0.0, 1.0]]
    recipe = make_recipe({"augmentations": POOL, "policy": {"name": "given", "table": table}})
    assert make_recipe(recipe.table()) == recipe
