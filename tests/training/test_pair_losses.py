import pytest
import torch

from joao.heads import HEADS
from joao.objectives import NtXent
from joao.training.model import ContrastiveModel
from joao.training.steps import BatchViews, pair_losses


@pytest.fixture(params=HEADS)
def model(request, make_method):
    method = make_method(request.param)
    return ContrastiveModel(method.encoder, method.heads)


@pytest.fixture
def batch_views(store):
    return BatchViews(store, torch.arange(2, 14))


@pytest.fixture
def batch(batch_views):
    return batch_views.sections[0]


def test_pair_losses_equal_those_computed_one_by_one(model, batch_views, batch, pool, generator):
    pool = list(pool.values())
    source = generator(5)
    first = [augmentation(batch, source) for augmentation in pool]
    second = [augmentation(batch, source) for augmentation in pool]
    expected = torch.empty(len(pool), len(pool))
    with torch.no_grad():
        for i in range(len(pool)):
            for j in range(len(pool)):
                z = model.heads(model.encoder(first[i]), i)
                other = model.heads(model.encoder(second[j]), j)
                expected[i, j] = NtXent()(z, other)
    torch.testing.assert_close(pair_losses(model, batch_views, pool, NtXent(), generator(5)), expected)


def test_each_augmentation_is_encoded_at_most_twice(model, batch_views, batch, pool, generator):
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    pair_losses(model, batch_views, list(pool.values()), NtXent(), generator())
    unchanged = sum(augmentation(batch, generator()) is batch for augmentation in pool.values())
    assert len(calls) == 2 * len(pool) - unchanged


@pytest.mark.parametrize("training", [True, False])
def test_pair_losses_change_neither_statistics_nor_mode_nor_gradients(model, batch_views, pool, generator, training):
    model.train(training)
    before = [buffer.clone() for buffer in model.buffers()]
    losses = pair_losses(model, batch_views, list(pool.values()), NtXent(), generator())
    assert not losses.requires_grad
    assert all(torch.equal(buffer, value) for buffer, value in zip(model.buffers(), before, strict=True))
    assert {module.training for module in model.modules()} == {training}
    assert all(parameter.grad is None for parameter in model.parameters())


def test_statistics_are_restored_after_an_error(model, batch_views, pool, generator):
    def fails(batch, generator):
        raise KeyError

    before = [buffer.clone() for buffer in model.buffers()]
    with pytest.raises(KeyError):
        pair_losses(model, batch_views, [*pool.values(), fails], NtXent(), generator())
    assert all(torch.equal(buffer, value) for buffer, value in zip(model.buffers(), before, strict=True))
