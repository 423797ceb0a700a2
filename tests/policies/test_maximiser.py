import pytest
import torch

from joao.policies import Maximiser, MinMax
from tests.messages import refused


def psi(p, losses, gamma, prior):
    return (p * losses).sum(dim=(-2, -1)) - gamma / 2 * (p - prior).square().sum(dim=(-2, -1))


def laws(generator, *shape):
    draws = torch.empty(*shape, dtype=torch.float64).exponential_(generator=generator)
    return draws / draws.sum(dim=(-2, -1), keepdim=True)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_nothing_feasible_is_better(gamma, generator):
    for seed in range(5):
        losses = torch.rand(4, 4, dtype=torch.float64, generator=generator(seed))
        prior = laws(generator(seed + 50), 4, 4)
        policy = Maximiser("abcd", gamma, prior)
        policy.update(losses)
        best = psi(policy.probabilities, losses, gamma, prior)
        others = laws(generator(seed + 100), 2000, 4, 4)
        near = policy.probabilities + 0.01 * (others - policy.probabilities)
        assert (psi(others, losses, gamma, prior) <= best).all()
        assert (psi(near, losses, gamma, prior) <= best).all()


@pytest.mark.parametrize("gamma", [0.05, 0.1, 1.0, 10.0])
def test_a_projected_step_of_one_over_gamma_lands_on_it(gamma, generator):
    exact, stepping = Maximiser("abc", gamma), MinMax("abc", gamma, step=1 / gamma)
    for seed in range(5):
        losses = torch.rand(3, 3, dtype=torch.float64, generator=generator(seed))
        exact.update(losses)
        stepping.update(losses)
        torch.testing.assert_close(stepping.probabilities, exact.probabilities, rtol=0, atol=1e-12)


def test_earlier_losses_are_forgotten(generator):
    first, second = torch.rand(2, 3, 3, generator=generator()).unbind()
    one, other = Maximiser("abc"), Maximiser("abc")
    one.update(first)
    one.update(second)
    other.update(second)
    assert torch.equal(one.probabilities, other.probabilities)


def test_hand_computation_with_a_prior():
    policy = Maximiser("ab", gamma=2.0, prior=[[0.4, 0.1], [0.2, 0.3]])
    assert policy.probabilities.tolist() == [[0.4, 0.1], [0.2, 0.3]]
    policy.update(torch.tensor([[0.4, 0.0], [0.0, 0.0]]))
    # u + l / 2 = [.6, .1, .2, .3]; it sums to 1.2, so mu = .05
    expected = torch.tensor([[0.55, 0.05], [0.15, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(policy.probabilities, expected, rtol=0, atol=1e-7)  # 0.4 came in single precision


def test_the_usual_gamma_makes_ten_of_a_loss():
    policy = Maximiser("ab")
    policy.update(torch.tensor([[0.02, 0.0], [0.0, 0.0]], dtype=torch.float64))
    # u + l / .1 = [.45, .25, .25, .25]; it sums to 1.2, so mu = .05
    torch.testing.assert_close(policy.probabilities, torch.tensor([[0.4, 0.2], [0.2, 0.2]], dtype=torch.float64))


@pytest.mark.parametrize("gamma", [0, -1, float("nan"), float("inf")])
def test_an_impossible_gamma_is_refused(gamma):
    with refused("maximiser", "gamma", gamma, "min_max"):
        Maximiser("ab", gamma)


def test_a_prior_that_is_no_law_is_refused():
    with refused("prior", 2):
        Maximiser("ab", prior=[[0.5, 0.5], [0.5, 0.5]])
