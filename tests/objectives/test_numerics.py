"""Every objective of pairs in low precision and at the edges, beside the same numbers in float64.

That the float64 values are right is what the tests of each objective show.
"""

import math
from itertools import product

import pytest
import torch

from joao.objectives import OBJECTIVES, PairObjective

KINDS = {name: kind for name, kind in OBJECTIVES.items() if issubclass(kind, PairObjective)}
WITH_TEMPERATURE = [name for name, kind in KINDS.items() if "temperature" in kind.__dataclass_fields__]
EPSILON = torch.finfo(torch.float32).eps


def views(size, lengths=1.0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(size)
    first = torch.randn(size, 8, generator=draw)
    return (first * lengths).to(dtype), ((first + 0.5 * torch.randn(size, 8, generator=draw)) * lengths).to(dtype)


def with_zeros(size, **options):
    first, second = views(size, **options)
    return torch.cat([torch.zeros_like(first[:1]), first[1:]]), second


def identical(size, **options):
    return tuple(view[:1].expand(size, -1).clone() for view in views(size, **options))


def all_zero(size, **options):
    return tuple(torch.zeros_like(view) for view in views(size, **options))


def loss_and_gradients(objective, first, second):
    leaves = [view.detach().clone().requires_grad_() for view in (first, second)]
    loss = objective(*leaves)
    loss.backward()
    return loss.detach(), [leaf.grad for leaf in leaves]


def assert_like_double(objective, first, second, slack=50.0):
    """The loss up to rounding of numbers as large as those that it is computed from, and finite gradients."""
    loss, gradients = loss_and_gradients(objective, first, second)
    expected, expected_gradients = loss_and_gradients(objective, first.double(), second.double())
    largest = max(1.0, abs(expected.item()), 1 / getattr(objective, "temperature", 1.0))
    assert loss.dtype == torch.float32
    assert expected.dtype == torch.float64
    assert abs(loss.item() - expected.item()) <= slack * EPSILON * largest
    for found, exact in zip(gradients, expected_gradients, strict=True):
        assert found.isfinite().all()
        # Rounding moves a gradient by about the same share of the largest one, and each to its own precision.
        rounding = max(2000 * EPSILON * largest, torch.finfo(found.dtype).eps)
        torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=rounding * exact.abs().max().item())


@pytest.fixture(params=KINDS)
def objective(request):
    return KINDS[request.param]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_low_precision_is_close_to_float64(objective, dtype):
    for make, size in product((views, with_zeros), (2, 3, 64)):
        assert_like_double(objective, *make(size, dtype=dtype))


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("make", [identical, all_zero])
def test_identical_and_zero_views(objective, make, size):
    first, second = make(size)
    loss, gradients = loss_and_gradients(objective, first, second)
    expected = loss_and_gradients(objective, first.double(), second.double())[0]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("size", [2, 7])
def test_identical_graphs_by_hand(size):
    # Every similarity is that of the positive pair: log (B - 1), whatever the temperature.
    for temperature in (0.05, 0.2, 1e3):
        loss = KINDS["nt_xent"](temperature=temperature)(*identical(size))
        assert loss.item() == pytest.approx(math.log(size - 1), abs=50 * EPSILON / temperature + 1e-6)


@pytest.mark.parametrize("length", [1e-10, 1e10, 1e17])
def test_short_and_long_vectors(objective, length):
    loss, gradients = loss_and_gradients(objective, *views(6, lengths=length))
    expected = loss_and_gradients(objective, *views(6, lengths=length, dtype=torch.float64))[0]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("length", [1e20, 1e30, 1e37])
def test_overflow_gives_nan_not_a_wrong_number(objective, length):
    loss = objective(*views(6, lengths=length))
    assert loss.isnan()
    assert objective(*views(6, lengths=length, dtype=torch.float64)).isfinite()


@pytest.mark.parametrize("name", WITH_TEMPERATURE)
@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 0.05, 10.0, 1e6])
@pytest.mark.parametrize("size", [2, 16])
def test_extreme_temperatures(name, temperature, size):
    objective = KINDS[name](temperature=temperature)
    first, second = views(size)
    loss, gradients = loss_and_gradients(objective, first, second)
    expected = loss_and_gradients(objective, first.double(), second.double())[0]
    assert abs(loss.item() - expected.item()) <= 50 * EPSILON * max(1.0, 1 / temperature)
    assert all(gradient.isfinite().all() for gradient in gradients)
