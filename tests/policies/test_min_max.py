"""JOAO's policy, its exact solution, and the projection onto the simplex."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from scipy.optimize import minimize

from joao.policies import Maximiser, MinMax
from joao.policies.min_max import ascend, project_onto_simplex
from tests.messages import refused

TABLES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


def by_bisection(values):
    """Shift ``mu`` until the positive parts sum to 1."""
    low, high = min(values) - 1, max(values)
    for _ in range(200):
        mu = (low + high) / 2
        low, high = (mu, high) if sum(max(v - mu, 0) for v in values) > 1 else (low, mu)
    return [max(v - (low + high) / 2, 0) for v in values]


@given(TABLES)
def test_agrees_with_bisection(values):
    found = project_onto_simplex(torch.tensor(values, dtype=torch.float64))
    assert found.tolist() == pytest.approx(by_bisection(values), abs=1e-10)


@given(TABLES)
def test_satisfies_the_conditions_of_optimality(values):
    b = torch.tensor(values, dtype=torch.float64)
    p = project_onto_simplex(b)
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1, abs=1e-12)
    # one multiplier for all that are positive, and no other entry would gain by becoming so
    mu = (b - p)[p > 0]
    assert mu.max() - mu.min() <= 1e-10
    assert (b[p == 0] <= mu.max() + 1e-10).all()


def test_agrees_with_a_general_solver(generator):
    for seed in range(5):
        b = torch.randn(9, dtype=torch.float64, generator=generator(seed))
        wanted = b.numpy()
        solved = minimize(
            lambda p, wanted=wanted: ((p - wanted) ** 2).sum(),
            [1 / 9] * 9,
            bounds=[(0, 1)] * 9,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-14},
        )
        assert project_onto_simplex(b).tolist() == pytest.approx(solved.x.tolist(), abs=1e-5)


def test_hand_computations():
    def projected(*values):
        return project_onto_simplex(torch.tensor(values, dtype=torch.float64)).tolist()

    assert projected(0.65, 0.25, 0.25, 0.25) == pytest.approx([0.55, 0.15, 0.15, 0.15])
    assert projected(2.0, 0.5, -3.0) == pytest.approx([1, 0, 0])
    assert projected(0.9, 0.5, -0.6) == pytest.approx([0.7, 0.3, 0])
    assert projected(-7.0) == [1]


@given(TABLES)
def test_projecting_twice_is_projecting_once(values):
    once = project_onto_simplex(torch.tensor(values, dtype=torch.float64))
    torch.testing.assert_close(project_onto_simplex(once), once, rtol=0, atol=1e-12)


@pytest.mark.parametrize("largest", [1e6, 1e12, 1e17, 1e300])
def test_huge_entries_give_valid_probabilities(largest):
    found = project_onto_simplex(torch.tensor([[largest, 0.0], [largest, -largest]], dtype=torch.float64))
    assert found.tolist() == [[0.5, 0], [0.5, 0]]


LOSSES = torch.tensor([[1.0, 0.0], [0.0, 0.0]])


def test_step_matches_a_hand_computation():
    p = torch.full((2, 2), 0.25)
    stepped = ascend(p, LOSSES, prior=p, gamma=0.0, step=0.4)
    # b = [.65, .25, .25, .25]; it sums to 1.4, so mu = 0.1
    torch.testing.assert_close(stepped, torch.tensor([[0.55, 0.15], [0.15, 0.15]]))


def test_prior_pulls_back_as_computed_by_hand():
    p = torch.tensor([[0.7, 0.1], [0.1, 0.1]])
    prior = torch.full((2, 2), 0.25)
    stepped = ascend(p, LOSSES, prior=prior, gamma=2.0, step=0.1)
    # gradient = [1 - .9, .3, .3, .3]; b = [.71, .13, .13, .13]; it sums to 1.1, so mu = 0.025
    torch.testing.assert_close(stepped, torch.tensor([[0.685, 0.105], [0.105, 0.105]]))


def test_gradient_is_that_of_psi(generator):
    p, losses, prior = torch.rand(3, 4, 4, dtype=torch.float64, generator=generator()).unbind()
    p, prior = p / p.sum(), prior / prior.sum()
    p.requires_grad_()
    psi = (p * losses).sum() - 0.3 / 2 * (p - prior).square().sum()
    (gradient,) = torch.autograd.grad(psi, p)
    step = 1e-3  # so short that nothing becomes negative: projection only takes off the mean
    moved = ascend(p.detach(), losses, prior=prior, gamma=0.3, step=step)
    torch.testing.assert_close((moved - p.detach()) / step, gradient - gradient.mean())


def test_updates_accumulate(generator):
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


@pytest.mark.parametrize(("gamma", "step"), [(2.0, 1.0), (4.0, 0.5), (10.0, 1.0), (0.1, 30.0)])
def test_steps_from_two_over_gamma_on_reach_the_maximiser(gamma, step, generator):
    prior = laws(generator(9), 3, 3)
    policy, exact = MinMax("abc", gamma, step, prior), Maximiser("abc", gamma, prior)
    for seed in range(4):
        losses = torch.rand(3, 3, dtype=torch.float64, generator=generator(seed))
        for each in (policy, exact):
            each.update(losses)
        assert torch.equal(policy.probabilities, exact.probabilities)


def test_shorter_steps_than_two_over_gamma_are_steps():
    policy = MinMax("ab", gamma=4.0, step=0.375)
    # 1.5 times the way to the maximiser [7/16, 3/16, 3/16, 3/16], then back beyond it
    policy.update(LOSSES)
    expected = torch.tensor([[17 / 32, 5 / 32], [5 / 32, 5 / 32]], dtype=torch.float64)
    torch.testing.assert_close(policy.probabilities, expected)
    policy.update(LOSSES)
    expected = torch.tensor([[25 / 64, 13 / 64], [13 / 64, 13 / 64]], dtype=torch.float64)
    torch.testing.assert_close(policy.probabilities, expected)


@pytest.mark.parametrize("make", [MinMax, Maximiser])
def test_large_gamma_keeps_the_prior(make, generator):
    distances = []
    for gamma in (1e3, 1e6, 1e9, 1e99):
        policy = make("abc", gamma)
        for seed in range(4):
            policy.update(torch.rand(3, 3, dtype=torch.float64, generator=generator(seed)))
        distances.append((policy.probabilities - 1 / 9).abs().max().item())
    assert all(0 < distance < 1 / gamma for distance, gamma in zip(distances, (1e3, 1e6, 1e9), strict=False))
    assert distances[-1] < 1e-15


def test_small_gamma_approaches_the_step_without_prior(generator):
    losses = torch.rand(3, 3, dtype=torch.float64, generator=generator())
    start = laws(generator(1), 3, 3)
    limit = ascend(start, losses, prior=torch.full((3, 3), 1 / 9), gamma=0.0, step=0.3)
    for gamma in (1e-2, 1e-5, 1e-8):
        near = ascend(start, losses, prior=torch.full((3, 3), 1 / 9), gamma=gamma, step=0.3)
        assert 0 < (near - limit).abs().max() < gamma


def test_small_gamma_puts_the_maximiser_on_the_hardest_pairs():
    policy = Maximiser("ab", gamma=1e-9)
    policy.update(torch.tensor([[0.1, 0.3], [0.3, 0.25]], dtype=torch.float64))
    assert policy.probabilities.tolist() == [[0, 0.5], [0.5, 0]]


def test_without_prior_probabilities_collapse_on_the_worst_pair():
    policy = MinMax("ab", gamma=0.0)
    for _ in range(20):
        policy.update(torch.tensor([[0.1, 0.3], [0.2, 0.25]]))
    assert policy.probabilities.tolist() == [[0, 1], [0, 0]]


def test_probabilities_start_at_the_prior_and_return_to_it():
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
def test_invalid_prior_is_rejected(prior, values):
    with refused("policy", "prior", *values):
        MinMax("ab", prior=prior)


def test_prior_may_sum_to_one_up_to_rounding():
    prior = [[0.5, 0.5 + 0.5e-6], [0.0, 0.0]]
    assert MinMax("ab", prior=prior).probabilities.tolist() == prior


def test_default_step_and_gamma_of_min_max():
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
def test_impossible_settings_are_rejected(gamma, step):
    with refused("min_max", "gamma", "step", gamma, step):
        MinMax("ab", gamma=gamma, step=step)


def psi(p, losses, gamma, prior):
    return (p * losses).sum(dim=(-2, -1)) - gamma / 2 * (p - prior).square().sum(dim=(-2, -1))


def laws(generator, *shape):
    draws = torch.empty(*shape, dtype=torch.float64).exponential_(generator=generator)
    return draws / draws.sum(dim=(-2, -1), keepdim=True)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_no_feasible_table_is_better(gamma, generator):
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
def test_step_of_one_over_gamma_reaches_the_maximiser(gamma, generator):
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


def test_default_gamma_of_maximiser():
    policy = Maximiser("ab")
    policy.update(torch.tensor([[0.02, 0.0], [0.0, 0.0]], dtype=torch.float64))
    # u + l / .1 = [.45, .25, .25, .25]; it sums to 1.2, so mu = .05
    torch.testing.assert_close(policy.probabilities, torch.tensor([[0.4, 0.2], [0.2, 0.2]], dtype=torch.float64))


@pytest.mark.parametrize("gamma", [0, -1, float("nan"), float("inf")])
def test_impossible_gamma_is_rejected(gamma):
    with refused("maximiser", "gamma", gamma, "min_max"):
        Maximiser("ab", gamma)


def test_invalid_prior_of_maximiser_is_rejected():
    with refused("prior", 2):
        Maximiser("ab", prior=[[0.5, 0.5], [0.5, 0.5]])
