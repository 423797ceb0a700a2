import pytest
import torch

from joao.heads import HEADS, HeadPerAugmentation, NoHead, SharedHead

NUMBERS = torch.tensor([2, 0, 2, 1, 0, 2])


@pytest.fixture(params=HEADS)
def heads(request):
    return HEADS[request.param](num_dimensions=5, num_augmentations=4)


@pytest.fixture
def embeddings(generator):
    return torch.randn(6, 5, generator=generator())


def by_hand(head, embedding):
    first, second = head[0], head[2]
    return second.weight @ torch.clamp(first.weight @ embedding + first.bias, min=0) + second.bias


def test_projections_have_the_shape_of_embeddings(heads, embeddings):
    assert heads(embeddings, 1).shape == heads(embeddings, NUMBERS).shape == embeddings.shape


def test_one_augmentation_equals_that_augmentation_for_each_row(heads, embeddings):
    for number in range(4):
        torch.testing.assert_close(heads(embeddings, number), heads(embeddings, torch.full((6,), number)))


def test_rows_do_not_influence_each_other(heads, embeddings):
    together = heads(embeddings, NUMBERS)
    for row, number in enumerate(NUMBERS.tolist()):
        torch.testing.assert_close(together[row : row + 1], heads(embeddings[row : row + 1], number))


def test_layers_start_xavier_uniform_with_zero_bias(heads):
    wide = type(heads)(num_dimensions=200, num_augmentations=2)
    for name, parameter in wide.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            bound = (6 / 400) ** 0.5
            assert 0.99 * bound < parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_a_shared_head_is_a_two_layer_perceptron_for_every_augmentation(embeddings):
    heads = SharedHead(5, 4)
    expected = torch.stack([by_hand(heads.head, row) for row in embeddings])
    for augmentation in (0, 3, NUMBERS):
        torch.testing.assert_close(heads(embeddings, augmentation), expected)


def test_each_view_goes_through_the_head_of_its_augmentation(embeddings):
    heads = HeadPerAugmentation(5, 4)
    expected = torch.stack([by_hand(heads.heads[n], row) for n, row in zip(NUMBERS.tolist(), embeddings, strict=True)])
    torch.testing.assert_close(heads(embeddings, NUMBERS), expected)
    for number in range(4):
        expected = torch.stack([by_hand(heads.heads[number], row) for row in embeddings])
        torch.testing.assert_close(heads(embeddings, number), expected)


@pytest.mark.parametrize("augmentation", [0, 3, NUMBERS], ids=["first", "last", "each its own"])
def test_no_head_returns_embeddings_and_has_no_parameters(embeddings, augmentation):
    heads = NoHead(5, 4)
    assert torch.equal(heads(embeddings, augmentation), embeddings)
    assert heads.shared
    assert not [*heads.parameters(), *heads.buffers()]
    found = embeddings.clone().requires_grad_()
    heads(found, augmentation).sum().backward()
    assert torch.equal(found.grad, torch.ones_like(found))


def test_gradients_reach_the_embeddings_through_their_own_head(embeddings):
    heads = HeadPerAugmentation(5, 4)
    weights = torch.arange(30.0).view(6, 5)
    found, expected = (embeddings.clone().requires_grad_() for _ in range(2))
    (heads(found, NUMBERS) * weights).sum().backward()
    for row, number in enumerate(NUMBERS.tolist()):
        (by_hand(heads.heads[number], expected[row]) * weights[row]).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)


def step(heads, optimiser, embeddings, first, second):
    optimiser.zero_grad()
    (heads(embeddings, first).square().sum() + heads(embeddings, second).square().sum()).backward()
    optimiser.step()


@pytest.mark.parametrize("as_tensors", [False, True])
def test_only_the_heads_of_the_drawn_pair_learn(embeddings, as_tensors):
    heads = HeadPerAugmentation(5, 4)
    optimiser = torch.optim.Adam(heads.parameters(), lr=0.1)

    def snapshot():
        return [torch.cat([p.detach().flatten() for p in head.parameters()]) for head in heads.heads]

    before = snapshot()
    for pair in [(0, 3), (1, 0), (2, 2)]:
        drawn = [torch.full((6,), number) for number in pair] if as_tensors else pair
        step(heads, optimiser, embeddings, *drawn)
        after = snapshot()
        changed = {number for number in range(4) if not torch.equal(before[number], after[number])}
        assert changed == set(pair)
        before = after


@pytest.mark.parametrize("name", [name for name, kind in HEADS.items() if kind.shared])
def test_shared_heads_project_stacked_views_as_single_ones(name):
    # What a GPU does: both views in one product.
    heads = HEADS[name](4, 3).double()
    views = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(heads(views, 0), torch.stack([heads(each, 0) for each in views]))
