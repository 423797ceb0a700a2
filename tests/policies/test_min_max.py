import pytest
import torch

from joao.policies import MinMax
from joao.policies.min_max import ascend
from tests.messages import refused

LOSSES = torch.tensor([[1.0, 0.0], [0.0, 0.0]])


def test_step_matches_a_hand_computation():
    p = torch.full((2, 2), 0.25)
    stepped = ascend(p, LOSSES, prior=p, gamma=0.0, step=0.4)
    # b = [.65, .25, .25, .25]; it sums to 1.4, so mu = 0.1
    torch.testing.assert_close(stepped, torch.tensor([[0.55, 0.15], [0.15, 0.15]]))


def test_the_prior_pulls_back_as_computed_by_hand():
    p = torch.tensor([[0.7, 0.1], [0.1, 0.1]])
    prior = torch.full((2, 2), 0.25)
    stepped = ascend(p, LOSSES, prior=prior, gamma=2.0, step=0.1)
    # gradient = [1 - .9, .3, .3, .3]; b = [.71, .13, .13, .13]; it sums to 1.1, so mu = 0.025
    torch.testing.assert_close(stepped, torch.tensor([[0.685, 0.105], [0.105, 0.105]]))


def test_the_gradient_is_that_of_psi(generator):
    p, losses, prior = torch.rand(3, 4, 4, dtype=torch.float64, generator=generator()).unbind()
    p, prior = p / p.sum(), prior / prior.sum()
    p.requires_grad_()
    psi = (p * losses).sum() - 0.3 / 2 * (p - prior).square().sum()
    (gradient,) = torch.autograd.grad(psi, p)
    step = 1e-3  # so short that nothing becomes negative: projection only takes off the mean
    moved = ascend(p.detach(), losses, prior=prior, gamma=0.3, step=step)
    torch.testing.assert_close((moved - p.detach()) / step, gradient - gradient.mean())


def test_updates_go_on_from_each_other(generator):
    policy = MinMax("ab", gamma=0.5, step=0.1)
    uniform = torch.full((2, 2), 0.25, dtype=torch.float64)
    first, second = torch.rand(2, 2, 2, dtype=torch.float64, generator=generator()).unbind()
    policy.update(first)
    policy.update(second)
    expected = ascend(uniform, first, prior=uniform, gamma=0.5, step=0.1)
    expected = ascend(expected, second, prior=uniform, gamma=0.5, step=0.1)
    assert torch.equal(policy.probabilities, expected)


def test_repeated_steps_settle_on_the_maximiser_of_psi():
    policy = MinMax("ab", gamma=4.0, step=0.05)
    for _ in range(300):
        policy.update(LOSSES)
    # u + l / gamma = [.5, .25, .25, .25]; it sums to 1.25, so mu = 1/16
    expected = torch.tensor([[7 / 16, 3 / 16], [3 / 16, 3 / 16]], dtype=torch.float64)
    torch.testing.assert_close(policy.probabilities, expected)


def test_without_prior_the_law_collapses_on_the_worst_pair():
    policy = MinMax("ab", gamma=0.0)
    for _ in range(20):
        policy.update(torch.tensor([[0.1, 0.3], [0.2, 0.25]]))
    assert policy.probabilities.tolist() == [[0, 1], [0, 0]]


def test_a_prior_is_where_the_law_starts_and_what_it_is_drawn_to():
    prior = [[0.4, 0.1], [0.2, 0.3]]
    policy = MinMax("ab", gamma=10.0, step=0.05, prior=prior)
    assert policy.probabilities.tolist() == prior
    policy.update(LOSSES)
    assert policy.probabilities[0, 0] > 0.4
    for _ in range(100):
        policy.update(torch.zeros(2, 2))
    torch.testing.assert_close(policy.probabilities, torch.tensor(prior, dtype=torch.float64))


def test_tables_are_computed_in_double_precision():
    policy = MinMax("ab", gamma=0.01)
    losses = torch.tensor([[1 / 3, 1 / 7], [1 / 9, 1 / 11]], dtype=torch.float64)
    policy.update(losses)
    b = 0.25 + losses
    torch.testing.assert_close(policy.probabilities, b - (b.sum() - 1) / 4, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("prior", "values"),
    [
        ([[0.5, 0.5]], ["2 x 2", "(1, 2)"]),
        ([[0.5, 0.5], [0.5, 0.5]], [1, 2]),
        ([[1.5, -0.5], [0.0, 0.0]], []),
        ([[0.5, 0.5 + 1.5e-6], [0.0, 0.0]], [1]),  # more than rounding
        ([[float("nan"), 0.5], [0.5, 0.0]], ["nan"]),
        ([[0.5, 0.5], [0.0]], ["2 x 2"]),
        ([["a", "b"], ["c", "d"]], ["2 x 2"]),
    ],
)
def test_a_prior_that_is_no_law_is_refused(prior, values):
    with refused("policy", "prior", *values):
        MinMax("ab", prior=prior)


def test_a_prior_may_sum_to_one_but_for_rounding():
    prior = [[0.5, 0.5 + 0.5e-6], [0.0, 0.0]]
    assert MinMax("ab", prior=prior).probabilities.tolist() == prior


def test_the_usual_step_is_of_length_1_with_gamma_a_tenth():
    policy = MinMax("ab", prior=[[0.4, 0.1], [0.2, 0.3]])
    policy.probabilities = torch.full((2, 2), 0.25, dtype=torch.float64)
    policy.update(torch.zeros(2, 2))
    # a tenth of the way back to the prior
    expected = torch.tensor([[0.265, 0.235], [0.245, 0.255]], dtype=torch.float64)
    torch.testing.assert_close(policy.probabilities, expected)


@pytest.mark.parametrize(
    ("gamma", "step"),
    [
        (-0.1, 1),
        (0.1, 0),
        (0.1, -1),
        (float("nan"), 1),
        (float("inf"), 1),
        (0.1, float("inf")),
        (0.1, 1e100),
        (1e100, 1),
    ],
)
def test_impossible_settings_are_refused(gamma, step):
    with refused("min_max", "gamma", "step", gamma, step):
        MinMax("ab", gamma=gamma, step=step)
