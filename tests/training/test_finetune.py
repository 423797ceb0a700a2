import copy
from dataclasses import dataclass, field, replace
from statistics import mean

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from lightning_fabric import Fabric
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn import functional as F

from joao.augmentations import NodeDrop
from joao.augmentations.base import PaddedAugmentation
from joao.core.randomness import temporary_seed, torch_generator
from joao.data import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import Convolutions, Gin, ResGcn
from joao.encoders.base import Encoder
from joao.evaluation.targets import ClassTargets
from joao.training.fast import batches
from joao.training.finetune import Finetune, Finetuning
from joao.training.metrics import FitEpoch
from joao.training.model import calibrate
from tests.messages import refused

TRAIN, VALIDATION, TEST = torch.arange(0, 23), torch.arange(23, 35), torch.arange(35, 45)
NONE = torch.arange(0)
ENCODERS = {
    "gin": lambda width: Gin(width, width=5, layers=2),
    "res_gcn": lambda width: ResGcn(width, width=6, layers=2),
    "residual": lambda width: ResGcn(width, width=6, layers=2, residual=True),
}


@pytest.fixture(scope="module")
def dataset():
    return random_graphs(45, 8, 2.5, seed=3, num_classes=3)


@pytest.fixture(scope="module")
def store(dataset):
    return make_store(dataset, Features.from_dataset(dataset))


@pytest.fixture(scope="module")
def classes(dataset):
    """Of three classes, the second of which is rare among the training graphs."""
    classes = torch.from_numpy(dataset.classes).clone()
    classes[:18][classes[:18] == 1] = 2
    return classes


@pytest.fixture
def make(store, classes):
    pre_trained_on = store

    def make(encoder="res_gcn", store=store, classes=classes, fabric=None, pool=(), fast=None, seed=0, **how):
        with temporary_seed(1, "weights"):
            made = ENCODERS[encoder](store.num_features) if isinstance(encoder, str) else encoder
        calibrate(made, pre_trained_on, 45, torch.Generator().manual_seed(0))  # as pre-training leaves it
        settings = {"epochs": 4, "batch_size": 6, "learning_rate": 0.01, **how}
        return Finetuning(store, ClassTargets(classes, 3), made, Finetune(**settings), fabric, pool, fast, seed)

    return make


def state(fitting):
    return {name: value.clone() for name, value in fitting.classifier.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def losses(fit):
    return torch.tensor([[each.loss, each.validation_loss, each.validation_score] for each in fit.epochs])


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("how", [{}, {"balanced": True, "standardise": True}], ids=["plain", "balanced"])
def test_a_fast_step_has_the_gradients_and_statistics_of_a_plain_step(make, encoder, how):
    found = []
    for fast in (False, True):
        fitting = make(encoder, fast=fast, epochs=1, batch_size=23, **how)
        fitting.fit(TRAIN, VALIDATION)
        assert fitting.is_fast == fast
        gradients = {name: value.grad for name, value in fitting.classifier.named_parameters()}
        assert all(value is not None for value in gradients.values())
        found.append((gradients, dict(fitting.classifier.named_buffers())))
    for plain, fast in zip(*found, strict=True):
        for name, value in plain.items():
            torch.testing.assert_close(fast[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("how", [{}, {"batch_size": 23}, {"balanced": True, "standardise": True}], ids=str)
def test_fast_fits_match_plain_fits(make, encoder, how):
    # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
    fits = [make(encoder, fast=fast, learning_rate=1e-5, **how).fit(TRAIN, VALIDATION) for fast in (False, True)]
    torch.testing.assert_close(losses(fits[1]), losses(fits[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_fast_steps_use_the_same_augmentations(make, encoder, certain_pool):
    pool = [*certain_pool.values()]
    fits = [
        make(encoder, fast=fast, learning_rate=1e-5, pool=pool).fit(TRAIN, VALIDATION, seed=5) for fast in (False, True)
    ]
    torch.testing.assert_close(losses(fits[1]), losses(fits[0]), rtol=1e-4, atol=1e-5)


def test_batches_that_do_not_fit_take_eager_steps(make, monkeypatch):
    expected = make(fast=False, learning_rate=1e-5).fit(TRAIN, VALIDATION)
    monkeypatch.setattr(batches, "buffer_capacity", lambda sizes, count: int(mean(sizes.elements()) * count))
    fitting, eager = make(fast=True, learning_rate=1e-5), []
    monkeypatch.setattr(fitting, "train", lambda *each: eager.append(each) or Finetuning.train(fitting, *each))
    found = fitting.fit(TRAIN, VALIDATION)
    assert 0 < len(eager) < 4 * 4
    torch.testing.assert_close(losses(found), losses(expected), rtol=1e-4, atol=1e-5)


def test_on_a_cpu_the_plain_path_is_the_default(make):
    assert not make().is_fast


def test_requesting_an_impossible_fast_path_is_rejected(make, store):
    with refused("fine-tuning", "fast", "Convolutions"):
        make(Convolutions(store.num_features, width=4, layers=1), fast=True)
    with refused("fine-tuning", "fast", "frozen"):
        make(frozen=True, fast=True)


@pytest.mark.parametrize("fast", [False, True])
def test_mixed_precision_stays_near_full_precision(make, fast):
    found = []
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        found.append(losses(make(fabric=fabric, fast=fast, epochs=2, learning_rate=1e-5).fit(TRAIN, VALIDATION)))
    assert not torch.equal(*found)
    torch.testing.assert_close(found[1][:, :2], found[0][:, :2], rtol=0.05, atol=0)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("how", [{}, {"balanced": True, "standardise": True, "patience": 2}], ids=str)
def test_fits_are_independent_of_earlier_fits(make, fast, how):
    fitting, fresh = (make(fast=fast, pool=[NodeDrop(0.3), NodeDrop(0.1)], **how) for _ in range(2))
    first = fitting.fit(TRAIN, VALIDATION, seed=2)
    kept, logits = state(fitting), fitting.logits(TEST)
    other = fitting.fit(TEST, TRAIN[:5], seed=7)
    assert not same(state(fitting), kept)
    assert fitting.fit(TRAIN, VALIDATION, seed=2) == first != other
    assert same(state(fitting), kept)
    assert torch.equal(fitting.logits(TEST), logits)
    fresh.fit(TEST, TRAIN[:5], seed=7)
    assert fresh.fit(TRAIN, VALIDATION, seed=2) == first
    assert same(state(fresh), kept)


class WithDropout(Encoder):
    """A user's own, that draws from torch's global generator."""

    num_dimensions = 4

    def __init__(self, num_features):
        super().__init__()
        self.linear = nn.Linear(num_features, 4)

    def forward(self, batch):
        summed = batch.x.new_zeros(batch.num_graphs, batch.x.shape[1]).index_add(0, batch.graph_of_node, batch.x)
        return F.dropout(self.linear(summed), 0.5, self.training)


def test_dropout_draws_from_the_seed_and_leaves_the_global_generator_alone(make, store):
    fitting = make(WithDropout(store.num_features))
    before = torch.get_rng_state()
    first = fitting.fit(TRAIN, VALIDATION, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    assert fitting.fit(TRAIN, VALIDATION, seed=2) == first
    assert fitting.fit(TRAIN, VALIDATION, seed=3) != first


def test_a_fit_is_plain_adam(make, store, classes):
    fitting = make(epochs=3, batch_size=23)
    fitting.fit(TRAIN, NONE)
    with temporary_seed(1, "weights"):
        encoder = ENCODERS["res_gcn"](store.num_features)
    with temporary_seed(0, "classifier"):
        linear = nn.Linear(6, 3)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    optimiser = torch.optim.Adam([*encoder.parameters(), *linear.parameters()], lr=0.01)
    for _ in range(3):
        loss = F.cross_entropy(linear(encoder(store.batch(TRAIN))), classes[TRAIN])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # Graphs come in another order: sums are rounded otherwise, and Adam makes whole steps of what is nearly 0.
    torch.testing.assert_close(fitting.classifier.linear.weight, linear.weight, rtol=0, atol=1e-3)


@pytest.mark.parametrize("argument", ["seed of the layer", "seed of the batches"])
def test_another_seed_gives_another_fit(make, argument):
    one = make(seed=1 if argument == "seed of the layer" else 0)
    one.fit(TRAIN, VALIDATION, seed=1 if argument == "seed of the batches" else 0)
    other = make()
    other.fit(TRAIN, VALIDATION)
    assert not same(state(one), state(other))


class Scripted(Finetuning):
    """Learns nothing: after epoch n the first bias is n, and validation says what ``script`` says."""

    script: list[FitEpoch]

    def _train_epoch(self, *_):
        self.classifier.linear.bias.data[0] += 1
        return 0.5

    def _validate(self, loss, batches, graphs):
        return self.script[int(self.classifier.linear.bias[0]) - 1]


def oracle(script, choose_by, patience):
    """The number of epochs and of the one that is kept, from the words of :class:`Finetune`."""
    scores = [-e.validation_loss if choose_by == "loss" else e.validation_score for e in script]
    last = len(scores)
    for number in range(1, len(scores) + 1):
        since_better = 0
        while since_better < number and scores[number - 1 - since_better] <= max(
            scores[: number - 1 - since_better], default=-float("inf")
        ):
            since_better += 1
        if patience and since_better >= patience:
            last = number
            break
    best = max(scores[:last])
    return last, max(number for number in range(1, last + 1) if scores[number - 1] == best)


few = st.sampled_from([0.25, 0.5, 0.75, 1.0])
scripts = st.lists(st.builds(FitEpoch, st.just(0.5), few, few), min_size=1, max_size=12)


@drawn(scripts, st.sampled_from(["score", "accuracy", "loss"]), st.integers(0, 5))
def test_choice_of_the_epoch_and_early_stopping(script, choose_by, patience):
    dataset = random_graphs(4, 4, 2, seed=0)
    store = make_store(dataset, Features.from_dataset(dataset))
    how = Finetune(epochs=len(script), patience=patience, choose_by=choose_by)
    targets = ClassTargets(torch.tensor([0, 1, 0, 1]), 2)
    fitting = Scripted(store, targets, Gin(store.num_features, width=2, layers=1), how)
    fitting.script = script
    seen = []
    fit = fitting.fit(torch.arange(2), torch.arange(2, 4), on_epoch=seen.append)
    last, best = oracle(script, choose_by, patience)
    assert fit.epochs == tuple(seen) == tuple(script[:last])
    assert fit.chosen == best
    assert int(fitting.classifier.linear.bias[0]) == best


@pytest.mark.parametrize("choose_by", ["score", "loss"])
@pytest.mark.parametrize("fast", [False, True])
def test_the_best_epoch_on_validation_is_kept(make, classes, choose_by, fast):
    wrong = classes.clone()
    wrong[VALIDATION] = (wrong[VALIDATION] + 2) % 3  # the more is learned of the others, the worse
    fitting = make(classes=wrong, choose_by=choose_by, fast=fast, epochs=12, learning_rate=0.05)
    logits, states = [], []

    def remember(epoch):
        logits.append(fitting.logits(TEST))
        states.append(state(fitting))

    fit = fitting.fit(TRAIN, VALIDATION, on_epoch=remember)
    _, best = oracle(fit.epochs, choose_by, 0)
    assert fit.chosen == best < 12  # or the last epoch would do as well
    assert torch.equal(fitting.logits(TEST), logits[best - 1])
    assert not torch.equal(fitting.logits(TEST), logits[-1])
    assert same(state(fitting), states[best - 1])


def test_scoring_between_fits_changes_nothing(make):
    fitting, other = make(), make()
    assert fitting.fit(TRAIN, VALIDATION, on_epoch=lambda _: fitting.logits(TEST)) == other.fit(TRAIN, VALIDATION)
    assert same(state(fitting), state(other))


def test_without_validation_graphs_the_last_epoch_is_kept(make):
    fitting, states = make(epochs=5, patience=1), []
    fit = fitting.fit(TRAIN, NONE, on_epoch=lambda _: states.append(state(fitting)))
    assert fit.chosen == len(fit.epochs) == 5
    assert all(each.validation_loss is each.validation_score is None for each in fit.epochs)
    assert same(state(fitting), states[-1])


@pytest.mark.parametrize("balanced", [False, True])
def test_validation_metrics_are_weighted_as_in_training(make, store, classes, balanced):
    fitting, expected = make(balanced=balanced), []
    counts = [classes[TRAIN].tolist().count(number) for number in range(3)]
    weights = [23 / 3 / count if balanced else 1.0 for count in counts]
    labels = classes[VALIDATION].tolist()
    total = sum(weights[label] for label in labels)

    def look(_):
        encoder = copy.deepcopy(fitting.classifier.encoder).eval()
        alone = torch.stack([encoder(store.batch(VALIDATION[k : k + 1]))[0] for k in range(12)])
        values = fitting.classifier.linear(alone).log_softmax(1).detach()
        loss = sum(-weights[label] * float(row[label]) for row, label in zip(values, labels, strict=True))
        right = sum(weights[label] for row, label in zip(values, labels, strict=True) if int(row.argmax()) == label)
        expected.append([loss / total, right / total])

    fit = fitting.fit(TRAIN, VALIDATION, on_epoch=look)
    torch.testing.assert_close(losses(fit)[:, 1:], torch.tensor(expected))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("how", [{}, {"balanced": True, "standardise": True}, {"frozen": True}], ids=str)
def test_other_graphs_do_not_change_class_weights(make, store, classes, fast, how):
    others = torch.cat([VALIDATION, TEST])
    wrong = classes.clone()
    wrong[others] = (wrong[others] + 1) % 3
    x = store.x.clone()
    x[store.first_node[23] :] = x[store.first_node[23] :].flip(1)
    fast = fast and "frozen" not in how
    runs = []
    for given in ({}, {"classes": wrong, "store": replace(store, x=x)}):
        fitting, states = make(fast=fast, epochs=3, pool=[NodeDrop(0.3)], **given, **how), []
        fit = fitting.fit(TRAIN, VALIDATION, on_epoch=lambda _, f=fitting, s=states: s.append(state(f)))
        runs.append((states, [each.loss for each in fit.epochs], losses(fit)[:, 1]))
    for one, other in zip(runs[0][0], runs[1][0], strict=True):
        assert same(one, other)
    assert runs[0][1] == runs[1][1]
    assert not torch.equal(runs[0][2], runs[1][2])  # what they are was changed indeed


def test_training_classes_change_class_weights(make, classes):
    wrong = classes.clone()
    wrong[0] = (wrong[0] + 1) % 3
    one, other = make(epochs=1), make(epochs=1, classes=wrong)
    one.fit(TRAIN, NONE)
    other.fit(TRAIN, NONE)
    assert not same(state(one), state(other))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_frozen_encoder_stays_bit_for_bit_and_the_linear_layer_learns(make, store, classes, encoder):
    fitting = make(encoder, frozen=True, epochs=2, batch_size=23)
    before = state(fitting)
    fitting.fit(TRAIN, NONE)
    after = state(fitting)
    for name, value in before.items():
        assert torch.equal(after[name], value) == (not name.startswith("linear.")), name
    assert all(value.grad is None for value in fitting.classifier.encoder.parameters())
    # The embeddings are those of evaluation mode, and Adam's two steps those of a linear model alone.
    weight, bias = (before[name].requires_grad_() for name in ("linear.weight", "linear.bias"))
    optimiser = torch.optim.Adam([weight, bias], lr=0.01)
    with torch.no_grad():
        embeddings = copy.deepcopy(fitting.classifier.encoder).eval()(store.batch(TRAIN))
    for _ in range(2):
        optimiser.zero_grad()
        F.cross_entropy(embeddings @ weight.T + bias, classes[TRAIN]).backward()
        optimiser.step()
    torch.testing.assert_close(after["linear.weight"], weight.detach(), rtol=1e-4, atol=1e-5)


def test_an_encoder_that_is_not_frozen_is_trained(make):
    fitting = make(epochs=1)
    before = state(fitting)
    fitting.fit(TRAIN, NONE)
    assert {name for name, value in state(fitting).items() if torch.equal(value, before[name])} == {"shift", "scale"}


@pytest.mark.parametrize("train", [TRAIN, TRAIN[[0, 2, 3, 5, 8]]], ids=["all classes", "two classes"])
def test_balanced_weights_are_those_of_scikit_learn(make, classes, train):
    fitting = make(balanced=True, epochs=1)
    fitting.fit(train, NONE)
    labels = classes[train].numpy()
    present = np.unique(labels)
    assert len(present) == (3 if len(train) == 23 else 2)
    expected = compute_class_weight("balanced", classes=present, y=labels)
    torch.testing.assert_close(fitting.statistics[0, present], torch.from_numpy(expected).float())


def test_unbalanced_graphs_weigh_the_same(make):
    fitting = make(epochs=1)
    fitting.fit(TRAIN, NONE)
    assert fitting.statistics.tolist() == [[1, 1, 1]]


def test_the_loss_of_an_epoch_is_the_mean_over_its_graphs(make, store, classes):
    fitting = make(epochs=1, learning_rate=1e-12, batch_size=8)
    fit = fitting.fit(TRAIN, NONE, seed=4)
    order = TRAIN[torch.randperm(23, generator=torch_generator(4, "fine-tuning batches"))]
    encoder, linear, total = fitting.classifier.encoder.train(), fitting.classifier.linear, 0.0
    for graphs in (order[:8], order[8:16], order[16:]):
        total += F.cross_entropy(linear(encoder(store.batch(graphs))), classes[graphs], reduction="sum").item()
    assert fit.epochs[0].loss == pytest.approx(total / 23, rel=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("frozen", [False, True])
def test_standardised_embeddings_have_mean_0_and_deviation_1(make, store, encoder, frozen):
    fitting = make(encoder, standardise=True, frozen=frozen, epochs=1, learning_rate=1e-9)
    begun = copy.deepcopy(fitting.classifier.encoder)
    for graphs in (TRAIN, TEST):  # anew for every fit
        fitting.fit(graphs, VALIDATION)
        if not frozen:
            calibrate(begun, store, 6, torch_generator(0, "fine-tuning calibration"), graphs)
        begun.eval()
        with torch.no_grad():
            embeddings = (begun(store.batch(graphs)) - fitting.classifier.shift) / fitting.classifier.scale
        torch.testing.assert_close(embeddings.mean(0), torch.zeros(embeddings.shape[1]), rtol=0, atol=1e-5)
        deviation = embeddings.std(0, correction=0)
        spread = deviation > 0.01
        assert spread.any()
        torch.testing.assert_close(deviation[spread], torch.ones(int(spread.sum())), rtol=0, atol=1e-4)
        assert not deviation[~spread].any()  # a column without spread is shifted, not divided by 0


def test_standardisation_calibrates_batch_norm_first(make):
    fitting = make("gin", standardise=True, epochs=1, learning_rate=1e-9)
    for norm in fitting.classifier.encoder.norms:  # as a pre-training of a few steps may leave it
        norm.running_mean.fill_(3)
        norm.running_var.fill_(1e4)
    fitting.start = fitting.state()
    assert fitting.fit(TRAIN, VALIDATION).epochs[0].loss < 3


def test_without_standardisation_embeddings_are_unchanged(make):
    fitting = make(epochs=1)
    fitting.fit(TRAIN, VALIDATION)
    assert not fitting.classifier.shift.any()
    assert (fitting.classifier.scale == 1).all()


@dataclass(frozen=True)
class Counted(PaddedAugmentation):
    """Changes nothing, and keeps a list of the numbers of graphs it was shown."""

    seen: list = field(default_factory=list)

    def __call__(self, batch, generator):
        self.seen.append(batch.num_graphs)
        return batch

    def padded(self, batch, generator):
        self.seen.append(batch.num_graphs)
        return batch


@pytest.mark.parametrize("fast", [False, True])
def test_training_batches_are_augmented_uniformly(make, fast, assert_law):
    pool = [Counted() for _ in range(3)]
    fitting = make("gin", pool=pool, fast=fast, epochs=30, batch_size=6)
    fitting.fit(TRAIN, VALIDATION)
    fitting.logits(TEST)
    assert sorted(count for each in pool for count in each.seen) == sorted([6, 6, 6, 5] * 30)  # and nothing else
    assert_law([number for number, each in enumerate(pool) for _ in each.seen], dict.fromkeys(range(3), 1 / 3))


@dataclass(frozen=True)
class Blank(PaddedAugmentation):
    """Nodes without features."""

    def __call__(self, batch, generator):
        return replace(batch, x=torch.zeros_like(batch.x))

    def padded(self, batch, generator):
        return replace(batch, x=torch.zeros_like(batch.x))


@pytest.mark.parametrize("fast", [False, True])
def test_validation_graphs_are_not_augmented(make, store, classes, fast):
    blank, epochs = replace(store, x=torch.zeros_like(store.x)), []
    fitting = make(pool=[Blank()], fast=fast, epochs=1, learning_rate=1e-9)
    for other in (fitting, make(fast=fast, epochs=1, learning_rate=1e-9, store=blank)):
        epochs.append(other.fit(TRAIN, VALIDATION).epochs[0])
    assert epochs[0].loss == epochs[1].loss  # as if there had never been features
    assert epochs[0].validation_loss != epochs[1].validation_loss
    expected = F.cross_entropy(fitting.logits(VALIDATION), classes[VALIDATION]).item()
    assert epochs[0].validation_loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("where", [TRAIN, VALIDATION], ids=["training", "validation"])
def test_a_loss_that_is_not_finite_raises(make, store, where):
    x = store.x.float()
    x[store.first_node[where[0]] : store.first_node[where[-1] + 1]] *= 1e38
    with refused("fine-tuning", "nan", "learning rate", 0.01):
        make("gin", store=replace(store, x=x)).fit(TRAIN, VALIDATION)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_training_graphs_are_refused(make, count):
    with refused("fine-tuning", "graphs", count):
        make().fit(TRAIN[:count], VALIDATION)


def test_two_training_graphs_are_enough(make):
    assert len(make().fit(TRAIN[:2], VALIDATION).epochs) == 4


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"epochs": 0}, ["epochs", 1, 0]),
        ({"batch_size": 1}, ["batch_size", 2, 1]),
        ({"patience": -1}, ["patience", 0, -1]),
        ({"learning_rate": 0.0}, ["learning_rate", 0.0]),
        ({"learning_rate": -1.0}, ["learning_rate", -1.0]),
        ({"learning_rate": float("inf")}, ["learning_rate", "inf"]),
        ({"learning_rate": float("nan")}, ["learning_rate", "nan"]),
        ({"choose_by": "f1"}, ["choose_by", "'score'", "'accuracy'", "'loss'", "'f1'"]),
    ],
)
def test_invalid_settings_are_rejected(settings, values):
    with refused("fine-tuning", *values):
        Finetune(**settings)
