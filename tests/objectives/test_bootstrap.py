import math

import pytest
import torch

from joao.objectives import Bootstrap
from tests.messages import refused


def naive(first, second):
    """The equation, summand by summand: half the squared distances of unit vectors, both ways."""
    first, second = first.tolist(), second.tolist()
    half = len(first[0]) // 2

    def unit(vector):
        length = math.hypot(*vector)
        return [value / length for value in vector]

    def distance(a, b):
        return sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True))

    ways = [distance(a[:half], b[half:]) + distance(b[:half], a[half:]) for a, b in zip(first, second, strict=True)]
    return sum(ways) / 2 / len(first)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_matches_the_equation(size, generator):
    first, second = torch.randn(2, size, 6, dtype=torch.float64, generator=generator(size)).unbind()
    assert Bootstrap()(first, second).item() == pytest.approx(naive(first, second), rel=1e-9)


def test_hand_computation():
    # predictions | projections of the copy; the cosines are 1 and 0.6, and for the second graph -1 and 0.
    first = torch.tensor([[2.0, 0.0, 3.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    second = torch.tensor([[3.0, 4.0, 5.0, 0.0], [7.0, 0.0, 0.0, -2.0]])
    assert Bootstrap()(first, second).item() == pytest.approx((2 - 1.6 + 2 + 1) / 2)


def test_loss_is_symmetric_and_scale_invariant(generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).unbind()
    lengths = torch.logspace(-5, 5, 6)[:, None]
    torch.testing.assert_close(Bootstrap()(first * lengths, second / lengths), Bootstrap()(second, first))


def test_other_graphs_do_not_matter(generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).unbind()
    one_by_one = [Bootstrap()(first[[n]], second[[n]]) for n in range(6)]
    torch.testing.assert_close(Bootstrap()(first, second), torch.stack(one_by_one).mean())


def test_momentum_rises_by_a_cosine_or_stays():
    rising, constant = Bootstrap(0.9), Bootstrap(0.9, rising=False)
    assert [rising.momentum_at(share) for share in (0, 0.5, 1)] == pytest.approx([0.9, 0.95, 1])
    assert rising.momentum_at(1 / 3) == pytest.approx(1 - 0.1 * 0.75)  # the cosine of 60 degrees is a half
    assert {constant.momentum_at(share) for share in (0, 0.5, 1)} == {0.9}


def test_predictor_is_a_linear_layer_normalisation_relu_and_a_linear_layer(generator):
    z = torch.randn(5, 8, generator=generator())
    predictor = Bootstrap().predictor(8)
    weights = [value for name, value in predictor.state_dict().items() if value.shape == (8, 8)]
    assert len(weights) == 2
    assert not torch.equal(*weights)
    hidden = z @ weights[0].T
    normal = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(predictor(z), normal.clamp(min=0) @ weights[1].T)  # no bias at first
    names = [name for name, _ in predictor.named_parameters()]
    assert names == ["0.weight", "1.weight", "1.bias", "3.weight", "3.bias"]  # none that normalisation would take away


def test_predictors_weights_are_uniform_up_to_xaviers_bound():
    layers = [value for value in Bootstrap().predictor(64).parameters() if value.dim() == 2]
    bound = math.sqrt(6 / (64 + 64))
    assert [layer.abs().max().item() for layer in layers] == pytest.approx([bound] * 2, rel=0.01)


@pytest.mark.parametrize("momentum", [0, 1])
def test_momentum_zero_and_one_are_allowed(momentum):
    assert Bootstrap(momentum, rising=False).momentum_at(0.5) == momentum


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_impossible_momentum_is_rejected(momentum):
    with refused("Bootstrap", "momentum", momentum):
        Bootstrap(momentum)


def test_odd_number_of_columns_is_rejected():
    with refused("Bootstrap", 5):
        Bootstrap()(torch.ones(3, 5), torch.ones(3, 5))
