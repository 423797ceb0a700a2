import math
from itertools import product

import pytest
import torch

from joao.objectives import NtXent
from tests.messages import refused


def naive(first, second, temperature, positive_in_denominator, symmetric):
    """Eq. 1, summand by summand."""
    first, second = first.tolist(), second.tolist()

    def similarity(a, b):
        lengths = math.hypot(*a) * math.hypot(*b)
        return sum(x * y for x, y in zip(a, b, strict=True)) / lengths / temperature if lengths else 0.0

    def one_way(ours, theirs):
        total = 0.0
        for n, anchor in enumerate(ours):
            others = [m for m in range(len(theirs)) if m != n or positive_in_denominator]
            negatives = sum(math.exp(similarity(anchor, theirs[m])) for m in others)
            total += -similarity(anchor, theirs[n]) + math.log(negatives)
        return total / len(ours)

    loss = one_way(first, second)
    return (loss + one_way(second, first)) / 2 if symmetric else loss


@pytest.mark.parametrize("positive_in_denominator", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_matches_the_equation(positive_in_denominator, symmetric, generator):
    for temperature, size in product((0.1, 0.2, 0.5, 1.0), (2, 3, 9)):
        first, second = torch.randn(2, size, 5, generator=generator(size)).unbind()
        second[-1] = 0
        options = (temperature, positive_in_denominator, symmetric)
        assert NtXent(*options)(first, second).item() == pytest.approx(naive(first, second, *options), rel=1e-5)


def test_hand_computation():
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[2.0, 0.0], [3.0, 3.0]])
    root = math.sqrt(0.5)
    # cosines: [[1, root], [0, root]]; rows: -1 + root and -root + 0
    assert NtXent(temperature=1)(first, second).item() == pytest.approx(-0.5)
    assert NtXent(temperature=0.5)(first, second).item() == pytest.approx(-1.0)
    # columns: -1 + 0 and -root + root
    assert NtXent(temperature=1, symmetric=True)(first, second).item() == pytest.approx((-0.5 - 0.5) / 2)
    textbook = (math.log(math.e + math.exp(root)) - 1 + math.log(1 + math.exp(root)) - root) / 2
    assert NtXent(temperature=1, positive_in_denominator=True)(first, second).item() == pytest.approx(textbook)


def test_default_temperature_is_one_fifth():
    assert NtXent()(torch.eye(2), torch.eye(2)).item() == pytest.approx(-5)


def test_only_directions_matter(generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).unbind()
    lengths = torch.logspace(-5, 5, 6)[:, None]
    torch.testing.assert_close(NtXent()(first * lengths, second / lengths), NtXent()(first, second))


def test_symmetric_form_treats_both_views_alike(generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).unbind()
    torch.testing.assert_close(NtXent(symmetric=True)(first, second), NtXent(symmetric=True)(second, first))
    assert NtXent()(first, second) != NtXent()(second, first)


def test_small_temperatures_do_not_overflow():
    loss = NtXent(temperature=1e-3)(torch.eye(4), torch.eye(4))
    assert loss.item() == pytest.approx(math.log(3) - 1000)


def test_gradient_is_that_of_the_equation(generator):
    first, second = torch.randn(2, 4, 3, generator=generator()).unbind()
    first.requires_grad_()
    NtXent(0.5)(first, second).backward()
    step = 1e-4
    for n in range(4):
        for k in range(3):
            shift = torch.zeros(4, 3, dtype=torch.float64)
            shift[n, k] = step
            ahead, behind = (naive(first.double() + sign * shift, second, 0.5, False, False) for sign in (1, -1))
            assert first.grad[n, k].item() == pytest.approx((ahead - behind) / (2 * step), abs=1e-4)


def test_one_graph_has_no_negatives():
    with refused("NtXent", "negatives"):
        NtXent()(torch.ones(3, 1, 4), torch.ones(3, 1, 4))


@pytest.mark.parametrize("temperature", [0, -0.2, float("nan")])
def test_impossible_temperature_is_rejected(temperature):
    with refused("NtXent", "temperature", temperature):
        NtXent(temperature)
