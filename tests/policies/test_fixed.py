import pytest

from joao.policies import Fixed
from tests.messages import refused


def test_all_probability_is_on_the_named_pair(generator):
    policy = Fixed(["a", "b", "c"], pair=["c", "a"])
    assert policy.probabilities.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert policy.sample(3, generator()).tolist() == [[2, 0]] * 3


def test_the_first_of_the_pool_is_paired_with_itself_if_nothing_is_said():
    assert Fixed(["a", "b"]).probabilities.tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(("pair", "values"), [(["a"], ["'pair'", 1]), (["a", "d"], ["'d'"])])
def test_wrong_pairs_are_refused(pair, values):
    with refused("policy", *values):
        Fixed(["a", "b"], pair=pair)
