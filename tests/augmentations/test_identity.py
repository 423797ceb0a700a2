import torch

from joao.augmentations import Identity


def test_nothing_changes_at_any_strength(mutag, generator, assert_same):
    batch = mutag.batch(torch.arange(10))
    assert_same(Identity(0.9)(batch, generator()), mutag.batch(torch.arange(10)))
