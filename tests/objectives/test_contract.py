"""What every objective promises: one finite loss per pair of views, whatever leading dimensions they have."""

import pytest
import torch

from joao.objectives import OBJECTIVES


@pytest.fixture(params=OBJECTIVES)
def objective(request):
    return OBJECTIVES[request.param]()


def test_leading_dimensions_are_broadcast_one_loss_each(objective, generator):
    first = torch.randn(3, 1, 6, 4, generator=generator(0))
    second = torch.randn(2, 6, 4, generator=generator(1))
    losses = objective(first, second)
    assert losses.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(losses[i, j], objective(first[i, 0], second[j]))


def test_the_order_of_the_graphs_does_not_matter(objective, generator):
    first, second = torch.randn(2, 7, 4, generator=generator()).unbind()
    order = torch.randperm(7, generator=generator())
    torch.testing.assert_close(objective(first[order], second[order]), objective(first, second))


def test_views_that_agree_cost_less_than_the_same_views_shifted(objective):
    z = torch.eye(5)
    assert objective(z, z) < objective(z, z.roll(1, dims=0))


@pytest.mark.parametrize("zeros", [[0], [0, 3], [0, 1, 2, 3, 4]])
def test_zero_embeddings_give_a_finite_loss_and_gradient(objective, zeros, generator):
    first, second = torch.randn(2, 5, 4, generator=generator()).unbind()
    first[zeros] = 0
    second[zeros[:1]] = 0
    first.requires_grad_()
    second.requires_grad_()
    loss = objective(first, second)
    loss.backward()
    assert loss.isfinite()
    assert first.grad.isfinite().all()
    assert second.grad.isfinite().all()


def test_low_precision_views_are_compared_in_full_precision(objective, generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).bfloat16().unbind()
    torch.testing.assert_close(objective(first, second), objective(first.float(), second.float()), rtol=0, atol=0)
