import math

import pytest
import torch

from joao.kernels.relu_norm import masked_norm, relu_norm

EPS = 0.01


@pytest.fixture
def given(generator):
    """z, bias, keep, scale and shift of three views with five columns; the second column is never above 0."""
    draw = generator()
    keep = torch.rand(3, 9, generator=draw) < 0.6
    z = torch.randn(3, 9, 5, dtype=torch.float64, generator=draw)
    bias, scale, shift = torch.randn(3, 5, dtype=torch.float64, generator=draw)
    bias[1] = -100
    return z, bias, keep, scale, shift


def by_loops(h, keep, scale, shift):
    """Number by number: y, means and variances."""
    (num_views, num_rows), width = keep.shape, h.shape[2]
    y = torch.zeros(h.shape, dtype=torch.float64)
    means, variances = torch.zeros(2, num_views, width, dtype=torch.float64)
    for view in range(num_views):
        rows = [row for row in range(num_rows) if keep[view, row]]
        for column in range(width):
            values = [float(h[view, row, column]) for row in rows]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
            means[view, column], variances[view, column] = mean, variance
            for row, value in zip(rows, values, strict=True):
                normal = (value - mean) / math.sqrt(variance + EPS)
                y[view, row, column] = float(scale[column]) * normal + float(shift[column])
    return y, means, variances


def test_relu_and_normalisation_are_those_of_loops(given):
    z, bias, keep, scale, shift = given
    h = torch.tensor([[[max(float(v), 0.0) for v in row] for row in view] for view in (z + bias).tolist()])
    for found, expected in zip(relu_norm(*given, EPS), by_loops(h, keep, scale, shift), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_the_normalisation_alone_takes_numbers_of_any_sign(given):
    z, _, keep, scale, shift = given
    for found, expected in zip(masked_norm(z, keep, scale, shift, EPS), by_loops(z, keep, scale, shift), strict=True):
        torch.testing.assert_close(found, expected)


def test_gradients_are_those_of_finite_differences(given):
    z, bias, keep, scale, shift = (each.requires_grad_(each.is_floating_point()) for each in given)
    wanted = z, bias, scale, shift
    assert torch.autograd.gradcheck(lambda z, bias, *rest: relu_norm(z, bias, keep, *rest, EPS)[0], wanted)
    assert torch.autograd.gradcheck(lambda z, *rest: masked_norm(z, keep, *rest, EPS)[0], (z, scale, shift))


def test_rows_that_are_not_kept_are_zero_have_no_say_and_get_no_gradient(given):
    z, bias, keep, scale, shift = given
    other = torch.where(keep.unsqueeze(-1), z, 1e6).requires_grad_()
    for one, found in zip(relu_norm(*given, EPS), relu_norm(other, bias, keep, scale, shift, EPS), strict=True):
        assert torch.equal(one, found)
    y = relu_norm(other, bias, keep, scale, shift, EPS)[0]
    assert not y[~keep].any()
    y.square().sum().backward()
    assert not other.grad[~keep].any()
    assert other.grad[keep].any()


def test_means_and_variances_come_without_gradient(given):
    z, bias, keep, scale, shift = given
    _, means, variances = relu_norm(z.requires_grad_(), bias, keep, scale, shift, EPS)
    assert not means.requires_grad
    assert not variances.requires_grad


def test_low_precision_is_normalised_in_the_precision_of_the_scale(given):
    z, _, keep, scale, shift = (each.float() if each.is_floating_point() else each for each in given)
    low = masked_norm(z.bfloat16(), keep, scale, shift, EPS)
    for found, expected in zip(low, masked_norm(z.bfloat16().float(), keep, scale, shift, EPS), strict=True):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
