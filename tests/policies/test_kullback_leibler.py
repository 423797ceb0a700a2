import math

import pytest
import torch

from joao.policies import KullbackLeibler
from tests.messages import refused


def value(p, losses, gamma, prior):
    """What the law is to maximise; 0 log 0 is 0."""
    return (p * losses).sum(dim=(-2, -1)) - gamma * (torch.xlogy(p, p) - torch.xlogy(p, prior)).sum(dim=(-2, -1))


def laws(generator, *shape):
    draws = torch.empty(*shape, dtype=torch.float64).exponential_(generator=generator)
    return draws / draws.sum(dim=(-2, -1), keepdim=True)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_no_feasible_table_is_better(gamma, generator):
    for seed in range(5):
        losses = torch.rand(4, 4, dtype=torch.float64, generator=generator(seed))
        prior = laws(generator(seed + 50), 4, 4)
        policy = KullbackLeibler("abcd", gamma, prior)
        policy.update(losses)
        best = value(policy.probabilities, losses, gamma, prior)
        others = laws(generator(seed + 100), 2000, 4, 4)
        near = policy.probabilities + 0.01 * (others - policy.probabilities)
        assert (value(others, losses, gamma, prior) < best).all()
        assert (value(near, losses, gamma, prior) < best).all()
        # The maximum is known in closed form, too.
        assert best.item() == pytest.approx(gamma * math.log((prior * (losses / gamma).exp()).sum()))


def test_hand_computation_with_a_prior():
    policy = KullbackLeibler("ab", gamma=0.5, prior=[[0.4, 0.1], [0.2, 0.3]])
    assert policy.probabilities.tolist() == [[0.4, 0.1], [0.2, 0.3]]
    # The second pair is harder by gamma log 2, the last by gamma log 3: weights .4, .2, .2, .9, in all 1.7.
    policy.update(torch.tensor([[7.0, 7 + 0.5 * math.log(2)], [7.0, 7 + 0.5 * math.log(3)]], dtype=torch.float64))
    expected = torch.tensor([[4, 2], [2, 9]], dtype=torch.float64) / 17
    torch.testing.assert_close(policy.probabilities, expected, rtol=0, atol=1e-14)


def test_default_gamma_doubles_probability_per_log_2():
    policy = KullbackLeibler("ab")
    policy.update(torch.tensor([[math.log(2), 0.0], [0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(policy.probabilities, torch.tensor([[2, 1], [1, 1]], dtype=torch.float64) / 5)


def test_support_is_that_of_the_prior():
    policy = KullbackLeibler("ab", prior=[[0.5, 0.0], [0.25, 0.25]])
    policy.update([[0, 9], [3, 1]])
    assert policy.probabilities[0, 1] == 0
    assert (policy.probabilities > 0).sum() == 3


def test_strong_prior_dominates_weak_prior_does_not(generator):
    losses = torch.rand(3, 3, dtype=torch.float64, generator=generator())
    prior = laws(generator(1), 3, 3)
    strong, weak = KullbackLeibler("abc", 1e9, prior), KullbackLeibler("abc", 1e-4, prior)
    strong.update(losses)
    weak.update(losses)
    torch.testing.assert_close(strong.probabilities, prior, rtol=0, atol=1e-8)
    assert weak.probabilities.argmax() == losses.argmax()
    assert weak.probabilities.max() > 1 - 1e-12


@pytest.mark.parametrize("gamma", [0, -1, float("nan"), float("inf")])
def test_impossible_gamma_is_rejected(gamma):
    with refused("kullback_leibler", "gamma", gamma, "min_max"):
        KullbackLeibler("ab", gamma)
