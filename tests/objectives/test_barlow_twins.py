import numpy as np
import pytest
import torch

from joao.objectives import BarlowTwins
from tests.messages import refused


def naive(first, second, redundancy):
    """The equation, correlation by correlation."""
    first, second = first.detach().numpy(), second.detach().numpy()
    width, total = first.shape[1], 0.0
    for i in range(width):
        for j in range(width):
            correlation = np.corrcoef(first[:, i], second[:, j])[0, 1]
            total += (1 - correlation) ** 2 if i == j else redundancy * correlation**2
    return total / width


def views(size, width, generator):
    # Large enough that what keeps the division from 0 does not show.
    return (1000 * torch.randn(2, size, width, dtype=torch.float64, generator=generator)).unbind()


@pytest.mark.parametrize("redundancy", [0.0, 0.0051, 1.0])
@pytest.mark.parametrize("size", [3, 20])
@pytest.mark.parametrize("width", [1, 5])
def test_matches_the_equation(redundancy, size, width, generator):
    first, second = views(size, width, generator(size))
    assert BarlowTwins(redundancy)(first, second).item() == pytest.approx(naive(first, second, redundancy), rel=1e-6)


def test_hand_computation():
    first = torch.tensor([[9.0, 0.0], [9.0, 4.0], [-9.0, 0.0], [-9.0, 4.0]])
    second = torch.tensor([[5.0, 8.0], [5.0, 8.0], [-5.0, 2.0], [-5.0, 2.0]])
    # The first column of the one is each of the other's, and the second none: C = [[1, 1], [0, 0]].
    assert BarlowTwins(0.1)(first, second).item() == pytest.approx((1 + 0.1) / 2, rel=1e-5)


def test_columns_may_be_scaled_and_shifted(generator):
    first, second = views(7, 4, generator())
    scale, shift = 10 ** torch.randn(2, 4, dtype=torch.float64, generator=generator()).clamp(-1, 1)
    torch.testing.assert_close(BarlowTwins()(scale * first + shift, second), BarlowTwins()(first, second))


def test_loss_is_symmetric_in_the_views(generator):
    first, second = views(7, 4, generator())
    torch.testing.assert_close(BarlowTwins()(first, second), BarlowTwins()(second, first))


def test_equal_views_with_uncorrelated_columns_cost_nothing():
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert BarlowTwins(1.0)(z, z).item() == pytest.approx(0, abs=1e-8)
    # Columns that say the same, and rows in another order.
    assert BarlowTwins(1.0)(z[:, [0, 0]], z[:, [0, 0]]).item() == pytest.approx(1, rel=1e-4)
    assert BarlowTwins(1.0)(z, z.flip(0)).item() == pytest.approx(4, rel=1e-4)


def test_constant_column_has_constant_loss_and_no_gradient(generator):
    first, second = views(6, 4, generator())
    first[:, 1] = 1e4
    first.requires_grad_()
    loss = BarlowTwins()(first, second)
    others = [0, 2, 3]
    rest = naive(first[:, others], second[:, others], 0.0) * 3 / 4
    across = BarlowTwins(1.0)(first, second) - BarlowTwins(0.0)(first, second)
    assert loss.item() == pytest.approx(rest + 1 / 4 + 0.0051 * across.item(), rel=1e-6)
    loss.backward()
    assert first.grad.isfinite().all()


@pytest.mark.parametrize("size", [2, 3])
def test_few_graphs_give_a_finite_gradient(size, generator):
    first, second = torch.randn(2, size, 96, generator=generator()).unbind()
    first.requires_grad_()
    BarlowTwins()(first, second).backward()
    assert first.grad.isfinite().all()


def test_gradient_is_that_of_the_equation(generator):
    first, second = views(5, 3, generator())
    first.requires_grad_()
    BarlowTwins(0.3)(first, second).backward()
    step = 1e-2
    for n in range(5):
        for k in range(3):
            shift = torch.zeros(5, 3, dtype=torch.float64)
            shift[n, k] = step
            ahead, behind = (naive(first + sign * shift, second, 0.3) for sign in (1, -1))
            assert first.grad[n, k].item() == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-9)


def test_epsilon_is_that_of_batch_normalisation():
    z = torch.tensor([[1e-3], [-1e-3]], dtype=torch.float64)  # of variance 1e-6
    correlation = 1e-6 / (1e-6 + 1e-5)
    assert BarlowTwins()(z, z).item() == pytest.approx((1 - correlation) ** 2)


def test_one_graph_has_no_correlations():
    with refused("BarlowTwins", "correlations"):
        BarlowTwins()(torch.ones(3, 1, 4), torch.ones(3, 1, 4))


@pytest.mark.parametrize("redundancy", [-0.1, float("nan")])
def test_impossible_weight_is_rejected(redundancy):
    with refused("BarlowTwins", "redundancy", redundancy):
        BarlowTwins(redundancy)
