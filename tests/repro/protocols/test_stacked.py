"""Fits side by side are fits one after another."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from joao.augmentations import AttributeMask, EdgePerturb, Identity, NodeDrop, Subgraph
from joao.augmentations.base import PaddedAugmentation
from joao.core.padded import keep_nodes
from joao.core.randomness import temporary_seed
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import Gin, MoleculeGin, ResGcn
from joao.encoders.base import StackableEncoder
from joao.evaluation.targets import KINDS, BinaryTargets, ClassTargets, NumberTargets
from joao.training.finetune import Finetune, Finetuning
from repro.protocols import stacked_fits as stacked_module
from repro.protocols.stacked_fits import Part, StackedFits, fit_all, stack_parameters
from tests.messages import refused

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


def targets_of(classes):
    """Classes, and made of them tasks of yes or no and of numbers, of which some are not measured."""
    tasks = (classes.unsqueeze(1) == torch.arange(4)).float()  # the last of them is no for all
    tasks[::4, 0] = tasks[5:40, 1] = torch.nan
    tasks[7] = torch.nan
    noise = torch.randn(tasks.shape, generator=torch.Generator().manual_seed(1))
    return {
        "classes": ClassTargets(classes, 3),
        "binary": BinaryTargets(tasks),
        "numbers": NumberTargets(torch.tensor([1.0, 200.0, 0.01, 5.0]) * (tasks + 0.3 * noise) + 40),
    }


@pytest.fixture
def make(dataset):
    store = make_store(dataset, Features.from_dataset(dataset))

    def make(fast=True, encoder=None, pool=(), kind="classes", **how):
        with temporary_seed(1, "weights"):
            made = encoder(store.num_features) if encoder else ResGcn(store.num_features, width=6, layers=2)
        settings = {"epochs": 5, "batch_size": 8, "learning_rate": 1e-4, **how}
        targets = targets_of(torch.from_numpy(dataset.classes))[kind]
        return Finetuning(store, targets, made, Finetune(**settings), pool=pool, fast=fast, seed=2)

    return make


def results(finetuning):
    """Every fit, with the outputs at its chosen epoch and at its last."""
    found = []
    for fit in fit_all(finetuning, PARTS):
        chosen = finetuning.logits(NUMBERS)
        finetuning.restore_last_epoch()
        found.append((fit, torch.stack([chosen, finetuning.logits(NUMBERS)])))
    return found


@pytest.mark.parametrize(("kind", "residual"), [("classes", True), *((kind, False) for kind in KINDS)])
@pytest.mark.parametrize("how", [{}, {"choose_by": "loss", "balanced": True}, {"standardise": True}], ids=str)
def test_stacked_fits_equal_single_fits(make, kind, residual, how, monkeypatch):
    def encoder(num_features):
        return ResGcn(num_features, width=6, layers=2, residual=residual)

    together = make(encoder=encoder, kind=kind, **how)
    monkeypatch.setattr(together, "fit", None)  # nobody may fall back to it
    # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
    for (fit, logits), (alone, logits_alone) in zip(
        results(together), results(make(encoder=encoder, kind=kind, fast=False, **how)), strict=True
    ):
        assert fit.chosen == alone.chosen
        torch.testing.assert_close(logits, logits_alone, rtol=1e-3, atol=1e-3)
        for epoch, epoch_alone in zip(fit.epochs, alone.epochs, strict=True):
            assert vars(epoch) == pytest.approx(vars(epoch_alone), rel=1e-3)


@dataclass(frozen=True)
class Thin(PaddedAugmentation):
    """Removes every second node and halves all features: it draws nothing, so that batches can be compared."""

    def __call__(self, batch, generator):
        return replace(batch, x=batch.x / 2).keep_nodes(self._kept(batch))

    def padded(self, batch, generator):
        return keep_nodes(replace(batch, x=batch.x / 2), self._kept(batch))

    def _kept(self, batch):
        first = torch.cat([torch.zeros(1, dtype=torch.long), batch.nodes_per_graph.cumsum(0)])
        return (torch.arange(batch.x.shape[0]) - first[batch.graph_of_node]) % 2 == 0


def test_every_fit_draws_its_own_augmentations(make, monkeypatch):
    pool = [Thin(), Identity(), AttributeMask(0.0)]
    together = make(pool=pool)
    monkeypatch.setattr(together, "fit", None)  # nobody may fall back to it
    alone = results(make(pool=pool, fast=False))
    for (fit, logits), (fit_alone, logits_alone) in zip(results(together), alone, strict=True):
        assert fit.chosen == fit_alone.chosen
        torch.testing.assert_close(logits, logits_alone, rtol=1e-3, atol=1e-3)
        for epoch, epoch_alone in zip(fit.epochs, fit_alone.epochs, strict=True):
            assert vars(epoch) == pytest.approx(vars(epoch_alone), rel=1e-3)
    for (fit, _), (plain, _) in zip(alone, results(make(fast=False)), strict=True):
        distances = [abs(one.loss - other.loss) for one, other in zip(fit.epochs, plain.epochs, strict=True)]
        assert max(distances) > 1e-2  # augmentations matter


@pytest.mark.parametrize("kind", [NodeDrop, Subgraph, EdgePerturb, AttributeMask])
def test_augmentations_depend_on_the_seeds_of_the_fits(make, kind):
    """With a graph without nodes in the last batch of two parts; the draws differ by epoch, seed and augmentation."""
    first, again, plain = (list(fit_all(make(pool=pool), PARTS)) for pool in ([kind(0.5)], [kind(0.5)], []))
    assert first == again
    assert first != plain
    other = list(fit_all(make(pool=[kind(0.5)]), [replace(PARTS[0], seed=99), *PARTS[1:]]))
    assert other[0] != first[0]


def test_edge_attributes_are_stacked(dataset):
    """An encoder of atoms and bonds gets in stacked batches what it gets alone."""
    atoms = np.stack([dataset.node_labels[:, 0] + 5, dataset.node_labels[:, 0] % 3], axis=1).astype(np.uint8)
    bonds = np.stack([(dataset.source + dataset.target) % 4, (dataset.source * dataset.target) % 3], axis=1)
    molecules = replace(dataset, kind="molecules", node_labels=atoms, edge_attr=bonds.astype(np.uint8))
    targets = targets_of(torch.from_numpy(dataset.classes))["binary"]
    found = []
    for fast, store in ((True, molecules), (False, molecules), (True, replace(molecules, edge_attr=0 * bonds))):
        with temporary_seed(1, "weights"):
            encoder = MoleculeGin(2, 2, width=6, layers=2)
        made = make_store(store, Features.from_dataset(molecules))
        how = Finetune(epochs=3, batch_size=8, learning_rate=1e-4)
        found.append([shown for _, shown in results(Finetuning(made, targets, encoder, how, fast=fast, seed=2))])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)
    assert not torch.allclose(found[0][0], found[2][0], atol=1e-2)  # bonds matter


def test_fits_do_not_influence_each_other(make):
    first = results(make())[0]
    other = [PARTS[0], Part(NUMBERS[5:27], NUMBERS[27:], 99), PARTS[2]]
    finetuning = make()
    fit = next(fit_all(finetuning, other))
    assert [each.loss for each in fit.epochs] == pytest.approx([each.loss for each in first[0].epochs], rel=1e-6)
    torch.testing.assert_close(finetuning.logits(NUMBERS), first[1][0])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_fit_is_scored_at_the_selected_and_last_epoch(make, fast, kind):
    finetuning = make(fast=fast, kind=kind, learning_rate=0.03, epochs=7, balanced=True)
    differ = 0
    for part, fit in zip(PARTS, fit_all(finetuning, PARTS), strict=True):
        found = []
        for move in (lambda: None, finetuning.restore_last_epoch):
            move()
            found.append(finetuning.score(part.validation))
        expected = [fit.epochs[number - 1].validation_score for number in (fit.chosen, 7)]
        assert found == pytest.approx(expected, rel=1e-4)
        differ += found[0] != found[1]
    assert differ  # or nothing would be shown


@pytest.mark.parametrize("fast", [True, False])
def test_loss_selects_the_epoch_if_no_score_is_defined(make, fast):
    finetuning = make(fast=fast, kind="binary", learning_rate=0.03, epochs=7)
    values = finetuning.targets.values
    values[22:30] = torch.where(values[22:30].isnan(), torch.nan, 0)  # all validation graphs of the first part say no
    fits = list(fit_all(finetuning, PARTS))
    assert all(epoch.validation_score is None for epoch in fits[0].epochs)
    losses = [epoch.validation_loss for epoch in fits[0].epochs]
    assert fits[0].chosen == 1 + losses.index(min(losses))
    assert all(epoch.validation_score is not None for epoch in fits[1].epochs)


@pytest.mark.parametrize("fast", [True, False])
def test_fits_can_start_from_different_weights(make, fast):
    finetuning = make(fast=fast)
    with temporary_seed(8, "weights"):
        other = ResGcn(finetuning.store.num_features, width=6, layers=2)
    starts = [None, finetuning.initial_weights(2), finetuning.initial_weights(9), finetuning.initial_weights(9, other)]
    parts = [replace(PARTS[0], start=start) for start in starts]
    losses = [fit.epochs[0].loss for fit in fit_all(finetuning, parts)]
    by_hand = []
    for number, (seed, encoder) in enumerate([(2, None), (2, None), (9, None), (9, other)]):
        fresh = make(fast=False, encoder=None if encoder is None else lambda _: other)
        alone = Finetuning(fresh.store, fresh.targets, fresh.classifier.encoder, fresh.settings, fast=False, seed=seed)
        by_hand.append(alone.fit(PARTS[0].train, PARTS[0].validation, PARTS[0].seed).epochs[0].loss)
        assert losses[number] == pytest.approx(by_hand[number], rel=1e-4)
    assert len({round(loss, 4) for loss in losses}) == 3


class Dropping(StackableEncoder):
    """Sums of features, of which half are left out in training."""

    def __init__(self, num_features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features))
        self.num_dimensions = self.num_node_dimensions = num_features

    def forward(self, batch):
        return torch.zeros(batch.num_graphs, batch.x.shape[1]).index_add(0, batch.graph_of_node, batch.x) * self.weight

    def encode_nodes(self, batch):
        return batch.x

    def encode_padded(self, views):
        x = views.x * views.keep.unsqueeze(-1)
        ends = F.pad(x.cumsum(1), (0, 0, 1, 0)).gather(1, views.first_node.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return F.dropout(ends.diff(dim=1) * self.weight.unsqueeze(-2), 0.5, self.training)


def test_dropout_depends_on_the_seed_and_not_on_the_global_generator(make, monkeypatch):
    finetuning = make(encoder=Dropping)
    monkeypatch.setattr(finetuning, "fit", None)  # side by side indeed
    before = torch.get_rng_state()
    first = list(fit_all(finetuning, PARTS))
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    assert list(fit_all(finetuning, PARTS)) == first
    other = list(fit_all(finetuning, [replace(part, seed=part.seed + 9) for part in PARTS]))
    assert other != first


def test_padding_uses_the_empty_graph(make):
    """A part that is a graph short in its last batch gets a graph without nodes, which has no say in anything."""
    fits = StackedFits(make(), PARTS)
    last = fits._plan()[-1]
    assert last.shape == (5, 3, 7)  # 22 = 8 + 8 + 6 and 23 = 8 + 8 + 7 graphs
    assert (last[:, 0, -1] == 45).all()
    assert (last[:, 1] < 45).all()
    room = fits._make_batch(last, [last], augments=False)
    assert room.views.first_node.diff()[0, -1] == 0


@pytest.mark.parametrize(
    "kind",
    [
        {"encoder": lambda num_features: Gin(num_features, width=4, layers=2)},
        {"patience": 2},
        {"fast": False},
        {"batch_size": 7},  # of 22 graphs, 7 + 7 + 8: a last batch of one joined its neighbour
    ],
    ids=["another encoder", "patience", "plain path", "last batch of one"],
)
def test_fits_that_cannot_be_stacked_run_sequentially(make, kind, monkeypatch):
    monkeypatch.setattr(stacked_module, "StackedFits", None)
    assert len(results(make(**kind))) == 3


def test_non_finite_loss_is_rejected(make):
    with refused("learning rate", "1e+300"):
        results(make(learning_rate=1e300))


def test_stacked_weights_are_repeated():
    module = ResGcn(4, width=3, layers=2)
    copied = stack_parameters(module, 5)
    for name, value in copied.state_dict().items():
        assert value.shape == (5, *module.state_dict()[name].shape)
        assert (value == module.state_dict()[name]).all()
    assert [name for name, _ in copied.named_parameters()] == [name for name, _ in module.named_parameters()]
    copied.first.weight.data[0] += 1
    assert (copied.first.weight[1] == module.first.weight).all()
