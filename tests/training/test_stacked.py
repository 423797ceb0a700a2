"""Fits side by side are fits one after another."""

import pytest
import torch

from joao.augmentations import NodeDrop
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import Gin, ResGcn
from joao.encoders.base import stacked
from joao.errors import UserError
from joao.randomness import seeded
from joao.training import stacked as stacked_module
from joao.training.finetune import Finetune, Finetuning
from joao.training.stacked import Part, StackedFits, fit_all

NUMBERS = torch.arange(45)
# of different sizes, one with a graph more in its last batch
PARTS = [
    Part(NUMBERS[:22], NUMBERS[22:30], 5),
    Part(NUMBERS[20:43], NUMBERS[:9], 6),
    Part(NUMBERS[10:32:1], NUMBERS[40:], 7),
]


@pytest.fixture(scope="module")
def dataset():
    return random_graphs(45, 8, 2.5, seed=3, num_classes=3)


@pytest.fixture
def make(dataset):
    store = make_store(dataset, Features.fixed_on(dataset))

    def make(fast=True, encoder=None, pool=(), **how):
        with seeded(1, "weights"):
            made = encoder(store.num_features) if encoder else ResGcn(store.num_features, width=6, layers=2)
        settings = {"epochs": 5, "batch_size": 8, "learning_rate": 1e-4, **how}
        return Finetuning(
            store, torch.from_numpy(dataset.classes), 3, made, Finetune(**settings), pool=pool, fast=fast, seed=2
        )

    return make


def results(finetuning):
    return [(fit, finetuning.logits(NUMBERS)) for fit in fit_all(finetuning, PARTS)]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("how", [{}, {"choose_by": "loss", "balanced": True}, {"standardise": True}], ids=str)
def test_every_part_gets_what_it_gets_alone(make, residual, how, monkeypatch):
    def encoder(num_features):
        return ResGcn(num_features, width=6, layers=2, residual=residual)

    together = make(encoder=encoder, **how)
    monkeypatch.setattr(together, "fit", None)  # nobody may fall back to it
    # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
    for (fit, logits), (alone, logits_alone) in zip(
        results(together), results(make(encoder=encoder, fast=False, **how)), strict=True
    ):
        assert fit.chosen == alone.chosen
        torch.testing.assert_close(logits, logits_alone, rtol=1e-3, atol=1e-3)
        for epoch, epoch_alone in zip(fit.epochs, alone.epochs, strict=True):
            assert vars(epoch) == pytest.approx(vars(epoch_alone), rel=1e-3)


def test_nothing_passes_from_part_to_part(make):
    first = results(make())[0]
    other = [PARTS[0], Part(NUMBERS[5:27], NUMBERS[27:], 99), PARTS[2]]
    finetuning = make()
    fit = next(fit_all(finetuning, other))
    assert [each.loss for each in fit.epochs] == pytest.approx([each.loss for each in first[0].epochs], rel=1e-6)
    torch.testing.assert_close(finetuning.logits(NUMBERS), first[1])


def test_room_left_over_is_nobody(make):
    """A part that is a graph short in its last batch gets a graph without nodes, which has no say in anything."""
    rooms = StackedFits(make(), PARTS)
    last = rooms._plan()[-1]
    assert last.shape == (5, 3, 7)  # 22 = 8 + 8 + 6 and 23 = 8 + 8 + 7 graphs
    assert (last[:, 0, -1] == 45).all()
    assert (last[:, 1] < 45).all()
    room = rooms._room(last, [last])
    assert room.views.first_node.diff()[0, -1] == 0


@pytest.mark.parametrize(
    "kind",
    [
        {"encoder": lambda num_features: Gin(num_features, width=4, layers=2)},
        {"pool": [NodeDrop(0.2)]},
        {"patience": 2},
        {"fast": False},
        {"batch_size": 7},  # of 22 graphs, 7 + 7 + 8: a last batch of one joined its neighbour
    ],
    ids=["another encoder", "augmented", "patience", "plain path", "last batch of one"],
)
def test_what_cannot_be_stacked_is_done_one_after_another(make, kind, monkeypatch):
    monkeypatch.setattr(stacked_module, "StackedFits", None)
    assert len(results(make(**kind))) == 3


def test_a_loss_that_is_no_number_is_told(make):
    with pytest.raises(UserError, match=r"the loss became .* Lower the learning rate"):
        results(make(learning_rate=1e300))


def test_stacked_weights_are_the_same_several_times():
    module = ResGcn(4, width=3, layers=2)
    copied = stacked(module, 5)
    for name, value in copied.state_dict().items():
        assert value.shape == (5, *module.state_dict()[name].shape)
        assert (value == module.state_dict()[name]).all()
    assert [name for name, _ in copied.named_parameters()] == [name for name, _ in module.named_parameters()]
    copied.first.weight.data[0] += 1
    assert (copied.first.weight[1] == module.first.weight).all()
