"""Learning policies with extreme losses, compared with exact or 60-digit arithmetic."""

import inspect
from decimal import Decimal, getcontext
from fractions import Fraction

import pytest
import torch

from joao.policies import POLICIES

LEARNING = [name for name, kind in POLICIES.items() if kind.learns]
WITH_GAMMA = [name for name in LEARNING if "gamma" in inspect.signature(POLICIES[name]).parameters]
EXACT = ("min_max", "maximiser", "kullback_leibler")  # whose update exact_update writes out
GAMMA = Fraction(1, 8)


def nearest_law(numbers):
    """The projection onto the simplex, in fractions: the r largest stay, for the largest r that fits."""
    ordered = sorted(numbers, reverse=True)
    for count in range(len(ordered), 0, -1):
        shift = (sum(ordered[:count]) - 1) / count
        if ordered[count - 1] > shift:
            return [max(number - shift, Fraction(0)) for number in numbers]
    raise AssertionError


def exact_update(name, losses, prior):
    """One update from the prior: projected ascent, its maximiser, or the tilted prior."""
    if name == "min_max":
        return nearest_law([share + loss for share, loss in zip(prior, losses, strict=True)])
    if name == "maximiser":
        return nearest_law([share + loss / GAMMA for share, loss in zip(prior, losses, strict=True)])
    getcontext().prec = 60
    top = max(losses)
    exponents = [(loss - top) / GAMMA for loss in losses]
    tilted = [(Decimal(each.numerator) / Decimal(each.denominator)).exp() for each in exponents]
    return [each / sum(tilted) for each in tilted]


def table(size, kind):
    draw = torch.Generator().manual_seed(size)
    losses = torch.rand(size, size, generator=draw, dtype=torch.float64)
    return {
        "usual": losses,
        "zero": torch.zeros_like(losses),
        "equal": torch.full_like(losses, 1e9),
        "tiny": losses * 1e-12,
        "huge": losses * 1e12,
        "one outlier": losses + 1e15 * torch.nn.functional.one_hot(torch.tensor(0), size**2).view(size, size),
        "nearly equal": 1e6 + losses * 1e-9,
    }[kind]


KINDS = ("usual", "zero", "equal", "tiny", "huge", "one outlier", "nearly equal")


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_update_matches_exact_arithmetic(name, size):
    prior = [Fraction(1, size**2)] * size**2
    for losses in (table(size, kind) for kind in KINDS):
        policy = POLICIES[name]([str(number) for number in range(size)], gamma=float(GAMMA))
        policy.update(losses)
        expected = exact_update(name, [Fraction(value) for value in losses.flatten().tolist()], prior)
        expected = torch.tensor([float(each) for each in expected], dtype=torch.float64).view(size, size)
        found = policy.probabilities
        assert found.sum().item() == pytest.approx(1, abs=1e-12)
        assert (found >= 0).all()
        # What is added to a law of about 1 / K² is rounded to the digits of the loss.
        rounding = 100 * torch.finfo(torch.float64).eps * max(1.0, losses.abs().max().item() / float(GAMMA))
        torch.testing.assert_close(found, expected, rtol=0, atol=min(rounding, 1e-3))


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_low_precision_losses_are_converted_exactly(name, dtype):
    losses = table(5, "usual").to(dtype)
    one, other = (POLICIES[name](list("abcde")) for _ in range(2))
    one.update(losses)
    other.update(losses.double())
    assert torch.equal(one.probabilities, other.probabilities)
    assert one.probabilities.dtype == torch.float64


@pytest.mark.parametrize("name", WITH_GAMMA)
@pytest.mark.parametrize("gamma", [1e-9, 1e9])
def test_extreme_gammas_give_valid_probabilities(name, gamma):
    policy = POLICIES[name](list("abc"), gamma=gamma)
    for kind in KINDS:
        policy.update(table(3, kind))
        assert policy.probabilities.isfinite().all()
        assert policy.probabilities.sum().item() == pytest.approx(1, abs=1e-9)
        assert policy.sample(10, torch.Generator().manual_seed(0)).shape == (10, 2)
