"""An objective that has a copy of the network: the copy follows, has no gradient, and nothing collapses."""

import copy

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from joao.config.builder import build_method
from joao.config.recipe import make_recipe
from joao.heads import HEADS
from joao.objectives import Bootstrap
from joao.training.pretrain import Pretraining
from joao.training.steps import BatchViews, View, pair_losses, project


def weights(module):
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@pytest.fixture(params=HEADS)
def make(request, make_method, make_training):
    def training(objective=None, fabric=None, **schedule):
        method = make_method(request.param, objective=objective or Bootstrap())
        return make_training(method, fabric, **schedule)

    return training


def test_the_copy_starts_equal_to_the_network(make):
    model = make().model
    assert all(torch.equal(weights(model.copy)[name], value) for name, value in weights(model.network).items())
    assert not {id(each) for each in model.copy.parameters()} & {id(each) for each in model.network.parameters()}
    assert not any(each.requires_grad for each in model.copy.parameters())


@pytest.mark.parametrize("objective", [Bootstrap(0.7), Bootstrap(0.4, rising=False), Bootstrap(0.0, rising=False)])
def test_the_copy_is_the_moving_average_of_the_networks_weights(make, objective, monkeypatch):
    training = make(objective, epochs=3, batch_size=6)
    seen, train = [weights(training.model.network)], training.steps.train

    def remember(batch, pairs):
        train(batch, pairs)
        seen.append(weights(training.model.network))

    monkeypatch.setattr(training.steps, "train", remember)
    list(training.run())
    assert len(seen) == 1 + 3 * 4
    for name, found in weights(training.model.copy).items():
        expected = seen[0][name].double()
        for step, own in enumerate(each[name] for each in seen[1:]):
            momentum = objective.momentum_at(step / 12)
            expected = momentum * expected + (1 - momentum) * own.double()
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)


def test_only_predictions_have_gradients(make, store):
    training = make(batch_size=21)
    model, objective = training.model, training.method.objective
    with torch.no_grad():  # otherwise the copy would be the network, and its gradient could hide
        for parameter in model.copy.parameters():
            parameter += 0.1
    views = [View(store.batch(torch.arange(12)), 0), View(store.batch(torch.arange(12)), 1)]
    objective(*(project(model, view) for view in views)).backward()
    found = {name: each.grad for name, each in model.named_parameters()}
    assert all(value is None for name, value in found.items() if name.startswith("copy."))

    # The same put together by hand.
    own = copy.deepcopy(model)
    own.zero_grad()
    predictions, targets = [], []
    for number, view in enumerate(views):
        predictions.append(own.predictor(own.network.heads(own.network.encoder(view.batch), number)))
        targets.append(own.copy.heads(own.copy.encoder(view.batch), number).detach())
    cosines = [nn.functional.cosine_similarity(predictions[a], targets[1 - a]) for a in (0, 1)]
    (2 - sum(cosines)).mean().backward()
    for name, each in own.named_parameters():
        if each.grad is not None:  # a head that was not drawn has none
            torch.testing.assert_close(found[name], each.grad, rtol=1e-4, atol=1e-6)
    learned = {name for name, each in found.items() if each is not None}
    assert learned == {name for name, each in own.named_parameters() if each.grad is not None}
    assert {name.partition(".")[0] for name in learned} == {"network", "predictor"}


def test_pair_losses_equal_those_computed_one_by_one(make, store, pool, generator):
    model, pool = make().model, list(pool.values())
    with torch.no_grad():
        for parameter in model.copy.parameters():
            parameter *= 1.3
    batch, source = store.batch(torch.arange(2, 14)), generator(5)
    draws = [[augmentation(batch, source) for augmentation in pool] for _ in range(2)]
    expected = torch.empty(len(pool), len(pool))
    with torch.no_grad():
        for i in range(len(pool)):
            for j in range(len(pool)):
                sides = (draws[0][i], i), (draws[1][j], j)
                predicted = [model.predictor(model.network.heads(model.network.encoder(b), k)) for b, k in sides]
                target = [model.copy.heads(model.copy.encoder(b), k) for b, k in sides]
                cosines = [nn.functional.cosine_similarity(predicted[a], target[1 - a]) for a in (0, 1)]
                expected[i, j] = (2 - sum(cosines)).mean()
    before = [buffer.clone() for buffer in model.buffers()]
    torch.testing.assert_close(
        pair_losses(model, BatchViews(store, torch.arange(2, 14)), pool, Bootstrap(), generator(5)), expected
    )
    assert all(torch.equal(buffer, value) for buffer, value in zip(model.buffers(), before, strict=True))


def test_each_network_encodes_each_draw_once(make, store, pool, generator):
    model, calls = make().model, []
    for encoder in (model.network.encoder, model.copy.encoder):
        encoder.register_forward_hook(lambda module, *_: calls.append(module))
    pair_losses(model, BatchViews(store, torch.arange(6)), list(pool.values()), Bootstrap(), generator())
    times = 2 * len(pool) - 1  # graphs left as they are need not be encoded again
    assert [sum(call is each for call in calls) for each in (model.network.encoder, model.copy.encoder)] == [times] * 2


def test_the_predictor_is_seeded(make):
    one, same, other = (weights(make(seed=seed).model.predictor) for seed in (4, 4, 5))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


@pytest.mark.parametrize("pair_per", ["batch", "graph"])
def test_mixed_precision_stays_near_full_precision(make, pair_per):
    losses = []
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        training = make(fabric=fabric, epochs=2, pair_per=pair_per)
        losses.append([each.loss for each in training.run()])
        assert {each.dtype for each in training.model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], abs=0.1)


def spread(vectors):
    """0 if all directions are the same, 1 if they are as different as those of independent normal vectors."""
    unit = nn.functional.normalize(vectors, dim=1)
    return float(unit.var(dim=0, correction=0).sum().sqrt())


@pytest.mark.slow
def test_bootstrap_does_not_collapse_on_molecules(mutag):
    """Embeddings, predictions and projections keep apart, which they do not without predictor and momentum."""

    def spreads(objective, without_predictor=False):
        recipe = make_recipe({"method": "uniform", "objective": objective, "training": {"epochs": 20}})
        made = build_method(recipe, mutag)
        training = Pretraining(mutag, made, recipe.training)
        if without_predictor:
            training.model.predictor = nn.Identity()
        list(training.run())
        graphs = View(mutag.batch(torch.arange(len(mutag))), 0)
        with torch.no_grad():
            return [spread(made.encoder(graphs.batch)), *map(spread, project(training.model, graphs).chunk(2, dim=1))]

    assert min(spreads("bootstrap")) > 0.4
    collapsing = {"name": "bootstrap", "momentum": 0.0, "rising": False}
    assert min(spreads(collapsing)) > 0.4
    assert max(spreads(collapsing, without_predictor=True)[1:]) < 0.1
