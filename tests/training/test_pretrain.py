import itertools

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from joao.augmentations import AUGMENTATIONS, Augmentation, Identity, NodeDrop
from joao.config.recipe import Schedule
from joao.core.randomness import torch_generator
from joao.heads import HEADS
from joao.policies import POLICIES, Fixed, MinMax, Uniform
from joao.training import pretrain
from joao.training.device import make_fabric
from joao.training.model import ContrastiveModel
from joao.training.pretrain import Pretraining
from joao.training.steps import BatchViews, pair_losses
from tests.messages import refused


@pytest.fixture(params=itertools.product(HEADS, ("batch", "graph")), ids=lambda param: "-".join(param))
def variant(request):
    return dict(zip(("heads", "pair_per"), request.param, strict=True))


def run(training):
    """All that is not a time."""
    shown = [(each.epoch, each.loss, each.probabilities, each.pair_losses, each.drawn) for each in training.run()]
    return shown, {name: value.clone() for name, value in training.model.state_dict().items()}


def same_weights(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_seed_determines_the_result_bit_for_bit(make_method, make_training, variant):
    def trained(seed):
        method = make_method(variant["heads"])
        return run(make_training(method, pair_per=variant["pair_per"], seed=seed))

    (shown, weights), (again, same), (others, different) = trained(4), trained(4), trained(5)
    assert shown == again
    assert same_weights(weights, same)
    assert shown != others
    assert not same_weights(weights, different)


def test_the_global_generator_has_no_effect(make_method, make_training, variant):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(run(make_training(make_method(variant["heads"]), pair_per=variant["pair_per"])))
    assert results[0][0] == results[1][0]


@pytest.mark.parametrize("heads", HEADS)
def test_an_epoch_is_a_plain_loop_of_algorithm_1(make_method, make_training, store, pool, heads):
    training = make_training(make_method(heads), epochs=2, seed=9, update_batches=2)
    shown, weights = run(training)

    method = make_method(heads)
    parameters = [*method.encoder.parameters(), *method.heads.parameters()]
    adam = torch.optim.Adam(parameters, lr=0.01, fused=True)
    draw = {
        name: torch_generator(9, name)
        for name in ("batches", "pairs", "views", "evaluation batches", "evaluation views")
    }
    augmentations = list(pool.values())
    for epoch in range(2):
        total = 0.0
        for graphs in torch.split(torch.randperm(21, generator=draw["batches"]), 6):
            i, j = method.policy.sample(1, draw["pairs"])[0].tolist()
            batch = store.batch(graphs)
            first = augmentations[i](batch, draw["views"])
            second = augmentations[j](batch, draw["views"])
            z = method.heads(method.encoder(first), i)
            other = method.heads(method.encoder(second), j)
            loss = method.objective(z, other)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.item() * len(graphs)
        measured = []
        for graphs in torch.split(torch.randperm(21, generator=draw["evaluation batches"]), 6)[:2]:
            model = ContrastiveModel(method.encoder, method.heads)
            batch_views = BatchViews(store, graphs)
            measured.append(pair_losses(model, batch_views, augmentations, method.objective, draw["evaluation views"]))
        losses = torch.stack(measured).mean(0)
        method.policy.update(losses)
        assert shown[epoch][1] == pytest.approx(total / 21, rel=1e-5)
        torch.testing.assert_close(torch.tensor(shown[epoch][2]), method.policy.probabilities.float())
        torch.testing.assert_close(torch.tensor(shown[epoch][3]), losses)
    for name, value in method.encoder.state_dict().items():
        torch.testing.assert_close(weights[f"encoder.{name}"], value)
    for name, value in method.heads.state_dict().items():
        torch.testing.assert_close(weights[f"heads.{name}"], value)


def test_the_drawn_pairs_count_every_graph_once_an_epoch(make_method, make_training, variant):
    prior = torch.zeros(len(AUGMENTATIONS), len(AUGMENTATIONS))
    prior[0, 1], prior[2, 2], prior[-1, 0] = 0.5, 0.3, 0.2
    method = make_method(variant["heads"], MinMax, prior=prior.tolist(), step=1e-9)
    for metrics in make_training(method, epochs=6, pair_per=variant["pair_per"]).run():
        drawn = torch.tensor(metrics.drawn)
        assert drawn.sum() == 21
        assert not drawn[prior == 0].any()
        if variant["pair_per"] == "batch":
            assert all(count in (0, 3, 6, 9, 12, 15, 18, 21) for count in drawn.flatten().tolist())


def test_graphs_are_drawn_under_pairs_by_their_probabilities(make_method, make_training, assert_law):
    method = make_method(
        policy=MinMax, prior=[[0.5, 0.3], [0.2, 0.0]], step=1e-12, pool={"a": Identity(), "b": NodeDrop()}
    )
    total = sum(torch.tensor(each.drawn) for each in make_training(method, epochs=40, pair_per="graph").run())
    outcomes = [pair for pair in itertools.product(range(2), repeat=2) for _ in range(int(total[pair]))]
    assert_law(outcomes, {(0, 0): 0.5, (0, 1): 0.3, (1, 0): 0.2})


class Counting(Augmentation):
    """Changes nothing, and counts how many graphs it was shown."""

    shown = 0

    def __call__(self, batch, generator):
        Counting.shown += batch.num_graphs
        return batch


@pytest.mark.parametrize("policy", POLICIES)
def test_pair_losses_are_measured_only_for_a_policy_that_learns(make_method, make_training, policy):
    method = make_method(policy=POLICIES[policy], pool=dict.fromkeys(AUGMENTATIONS, Counting()))
    Counting.shown = 0
    metrics = list(make_training(method, epochs=2, batch_size=7).run())
    in_training = 2 * 2 * 21
    if method.policy.learns:
        assert Counting.shown == in_training + 2 * 2 * len(AUGMENTATIONS) * 7
        assert all(each.pair_losses is not None for each in metrics)
    else:
        assert Counting.shown == in_training
        assert all(each.pair_losses is None for each in metrics)


@pytest.mark.parametrize(
    ("schedule", "updates"),
    [
        ({}, [1, 2, 3]),
        ({"update_every": 1}, [4, 8, 12]),
        ({"update_every": 3}, [1, 2, 4]),  # after steps 3; 6; 9, 12
        ({"update_every": 100}, [0, 0, 0]),
    ],
)
def test_the_policy_is_updated_when_the_schedule_says(make_method, make_training, monkeypatch, schedule, updates):
    method, calls, counts = make_method(), [], []
    monkeypatch.setattr(method.policy, "update", calls.append)
    for _ in make_training(method, **schedule).run():
        counts.append(len(calls))
    assert counts == updates
    assert all(losses.shape == (len(AUGMENTATIONS),) * 2 and losses.dtype == torch.float64 for losses in calls)


@pytest.mark.parametrize(("update_batches", "batch_size", "measured"), [(0, 6, 1), (2, 6, 2), (0, 2, 1), (9, 6, 4)])
def test_pair_losses_are_measured_on_the_batches_that_the_schedule_says(
    make_method, make_training, update_batches, batch_size, measured
):
    method = make_method(pool={"a": Counting()})
    Counting.shown = 0
    list(make_training(method, epochs=1, batch_size=batch_size, update_batches=update_batches).run())
    graphs = {1: batch_size, 2: 12, 4: 21}[measured]
    assert Counting.shown == 2 * 21 + 2 * graphs


@pytest.mark.parametrize(
    ("least", "schedule", "measured"),
    [
        (4, {"batch_size": 6}, 4),  # a part of one batch of four
        (1, {"batch_size": 21}, 3),  # a tenth of the graphs, rounded up
        (7, {"batch_size": 6}, 6),  # a batch that is small already
        (4, {"batch_size": 6, "update_batches": 2}, 12),  # what the schedule says
        (1, {"batch_size": 2}, 2),  # ten batches: one of them
    ],
)
def test_pair_losses_of_few_batches_are_measured_on_a_part_of_one(
    make_method, make_training, monkeypatch, least, schedule, measured
):
    monkeypatch.setattr(pretrain, "LEAST_MEASURED", least)
    training, seen = make_training(epochs=1, seed=9, **schedule), []
    measure = training.steps.measure
    monkeypatch.setattr(training.steps, "measure", lambda batches: measure(seen.extend(each := [*batches]) or each))
    list(training.run())
    order = torch.randperm(21, generator=torch_generator(9, "evaluation batches"))
    assert torch.cat(seen).tolist() == order[:measured].tolist()


def test_only_the_heads_of_drawn_pairs_learn(make_method, make_training):
    method = make_method("head_per_augmentation", Fixed, pair=["node_drop", "subgraph"])
    names = list(method.augmentations)
    before = [torch.nn.utils.parameters_to_vector(head.parameters()).clone() for head in method.heads.heads]
    list(make_training(method, epochs=2).run())
    after = [torch.nn.utils.parameters_to_vector(head.parameters()) for head in method.heads.heads]
    changed = {name for name, one, other in zip(names, before, after, strict=True) if not torch.equal(one, other)}
    assert changed == {"node_drop", "subgraph"}


def test_training_merges_a_last_batch_of_one_graph(make_method, make_training):
    sizes = []
    method = make_method(policy=Uniform)
    method.encoder.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    list(make_training(method, epochs=1, batch_size=5).run())
    assert sizes == [5, 5] * 3 + [6, 6]


@pytest.mark.parametrize("update_every", [0, 1])
def test_a_loss_that_is_not_finite_stops_the_training(make_method, make_training, update_every):
    method = make_method()
    training = make_training(method, learning_rate=1e30, update_every=update_every)
    with refused("nan", "step", "epoch 1", "learning rate", "1e+30"):
        list(training.run())
    assert method.policy.probabilities.isfinite().all()


def test_one_graph_is_refused(make_method, store):
    one = type(store)(store.x[:1], store.source[:0], store.target[:0], torch.tensor([0, 1]), torch.tensor([0, 0]))
    with refused("graphs"):
        Pretraining(one, make_method(), Schedule())


def test_two_graphs_are_enough(make_method, store):
    sizes = store.first_node[:3], store.first_edge[:3]
    two = type(store)(store.x[: sizes[0][2]], store.source[:0], store.target[:0], sizes[0], torch.zeros(3).long())
    metrics = list(Pretraining(two, make_method(), Schedule(epochs=1)).run())
    assert [each.epoch for each in metrics] == [1]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("pair_per", ["batch", "graph"])
def test_mixed_precision_trains_weights_that_stay_in_single_precision(make_method, make_training, heads, pair_per):
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    method = make_method(heads)
    before = [parameter.clone() for parameter in method.encoder.parameters()]
    mixed = list(make_training(method, fabric, epochs=1, pair_per=pair_per, batch_size=21).run())
    assert {parameter.dtype for parameter in method.encoder.parameters()} == {torch.float32}
    assert all(not torch.equal(*pair) for pair in zip(method.encoder.parameters(), before, strict=True))
    # The first and only batch sees the same weights and draws: the losses differ by the precision alone.
    full = list(make_training(make_method(heads), epochs=1, pair_per=pair_per, batch_size=21).run())
    assert mixed[0].drawn == full[0].drawn
    assert mixed[0].loss != full[0].loss
    assert mixed[0].loss == pytest.approx(full[0].loss, abs=0.1)


def test_mixed_precision_keeps_the_numbers_of_categories():
    seen = []
    network = nn.Linear(1, 1)
    network.register_forward_pre_hook(lambda network, given: seen.append(given[0]))
    network, _ = make_fabric("cpu", "bf16-mixed").setup(network, torch.optim.Adam(network.parameters()))
    codes = torch.tensor([[257.0], [4097.0], [10_029.0]])  # bfloat16 has numbers from 8,192 in steps of 64
    network(codes)
    assert torch.equal(seen[0], codes)


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        ({"pair_per": "node"}, ["pair_per", "'batch'", "'graph'", "'node'"]),
        ({"epochs": 0}, ["epochs", 1, 0]),
        ({"batch_size": 1}, ["batch_size", 2, 1]),
        ({"update_every": -1}, ["update_every", 0, -1]),
        ({"update_batches": -1}, ["update_batches", 0, -1]),
        ({"seed": -1}, ["seed", 0, -1]),
        ({"learning_rate": 0}, ["learning_rate", 0]),
        ({"learning_rate": float("nan")}, ["learning_rate", "nan"]),
    ],
)
def test_impossible_schedules_are_refused(wrong, values):
    with refused("training", *values):
        Schedule(**wrong)


def test_rates_are_graphs_over_seconds(make_training):
    for metrics in make_training(epochs=1).run():
        assert metrics.seconds > 0
        assert metrics.graphs_per_second == pytest.approx(21 / metrics.seconds)
