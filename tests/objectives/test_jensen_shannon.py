import math

import pytest
import torch

from joao.objectives import JensenShannon
from tests.messages import refused


def naive(first, second, temperature):
    """The equation, summand by summand, by probabilities."""
    first, second = first.tolist(), second.tolist()

    def probability(a, b):
        lengths = math.hypot(*a) * math.hypot(*b)
        cosine = sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0
        return 1 / (1 + math.exp(-cosine / temperature))

    size = len(first)
    positive = sum(-math.log(probability(a, b)) for a, b in zip(first, second, strict=True)) / size
    others = [(n, m) for n in range(size) for m in range(size) if m != n]
    return positive + sum(-math.log(1 - probability(first[n], second[m])) for n, m in others) / len(others)


@pytest.mark.parametrize("temperature", [0.1, 0.2, 1.0])
@pytest.mark.parametrize("size", [2, 3, 9])
def test_matches_the_equation(temperature, size, generator):
    first, second = torch.randn(2, size, 5, dtype=torch.float64, generator=generator(size)).unbind()
    second[-1] = 0
    loss = JensenShannon(temperature)(first, second)
    assert loss.item() == pytest.approx(naive(first, second, temperature), rel=1e-9)


def test_hand_computation():
    first = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    second = torch.tensor([[2.0, 0.0], [3.0, 0.0]])
    # cosines: [[1, 1], [0, 0]]
    expected = (math.log1p(math.exp(-2)) + math.log(2)) / 2 + (math.log1p(math.exp(2)) + math.log(2)) / 2
    assert JensenShannon(0.5)(first, second).item() == pytest.approx(expected)


def test_default_temperature_is_one_fifth():
    loss = JensenShannon()(torch.eye(2, 4), torch.eye(2, 4))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-5)) + math.log(2))


def test_unrelated_views_cost_two_log_two():
    first, second = torch.eye(8).split(4)
    assert JensenShannon()(first, second).item() == pytest.approx(2 * math.log(2))


def test_loss_is_symmetric_and_scale_invariant(generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).unbind()
    lengths = torch.logspace(-5, 5, 6)[:, None]
    torch.testing.assert_close(JensenShannon()(first * lengths, second / lengths), JensenShannon()(second, first))


def test_small_temperatures_do_not_overflow():
    loss = JensenShannon(1e-3)(torch.eye(4), torch.eye(4).roll(1, dims=0))
    # Of twelve negatives four are the shifted ones, with a score of 1000; all other scores are 0.
    assert loss.item() == pytest.approx(math.log(2) + (4 * 1000 + 8 * math.log(2)) / 12)


def test_gradient_is_that_of_the_equation(generator):
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, generator=generator()).unbind()
    first.requires_grad_()
    JensenShannon(0.5)(first, second).backward()
    step = 1e-6
    for n in range(4):
        for k in range(3):
            shift = torch.zeros(4, 3, dtype=torch.float64)
            shift[n, k] = step
            ahead, behind = (naive(first + sign * shift, second, 0.5) for sign in (1, -1))
            assert first.grad[n, k].item() == pytest.approx((ahead - behind) / (2 * step), abs=1e-7)


def test_one_graph_has_no_negatives():
    with refused("JensenShannon", "negatives"):
        JensenShannon()(torch.ones(3, 1, 4), torch.ones(3, 1, 4))


@pytest.mark.parametrize("temperature", [0, -0.2, float("nan")])
def test_impossible_temperature_is_rejected(temperature):
    with refused("JensenShannon", "temperature", temperature):
        JensenShannon(temperature)
