"""The floor does the work of a step's encoder, all of it and nothing else."""

import copy
from dataclasses import replace

import pytest
import torch

from joao.augmentations import AUGMENTATIONS
from joao.config.builder import build_method
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.randomness import torch_generator
from joao.training.steps import project
from repro.benchmarks.floor import Floor, ViewsOf, sample_of, scattered
from repro.benchmarks.steps import epoch_task, make_training, recipe_of
from repro.benchmarks.workloads import Workload, part

CPU = torch.device("cpu")


@pytest.fixture
def workload(mutag):
    return Workload("MUTAG", mutag, "bundled", width=8, layers=2, batch_size=16)


@pytest.fixture
def views(workload):
    made = ViewsOf(make_training(workload, "graphcl", CPU, 0), 4, torch_generator(0, "views"))
    made.remake()
    return made


def floor_of(workload, *, scatter=False):
    method = build_method(recipe_of(workload, "graphcl", 0), workload.store)
    return Floor(scattered(method) if scatter else method, 0.01, CPU)


def test_scatter_aggregation_gives_equal_loss_and_gradients(workload, views):
    own, plain = floor_of(workload), floor_of(workload, scatter=True)
    first, second = views.views[0]
    for floor in (own, plain):
        floor.loss = floor.step(first, second)
    torch.testing.assert_close(own.loss, plain.loss)
    ours, theirs = (dict(floor.model.named_parameters()) for floor in (own, plain))
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert parameter.grad.abs().sum() > 0
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-5)


def test_floor_step_equals_a_training_step(workload):
    """Oracle: the loss of the first epoch of a training whose only augmentation leaves graphs as they are."""
    store = workload.store
    whole = Workload("MUTAG", store, "bundled", width=8, layers=2, batch_size=len(store))
    training = make_training(whole, "graphcl", CPU, 0)
    identity = torch.zeros(5, 5, dtype=torch.float64)
    identity[4, 4] = 1
    training.method.policy.probabilities = identity
    floor = Floor(copy.deepcopy(training.method), training.schedule.learning_rate, CPU)
    views = ViewsOf(training, 1, torch_generator(0, "views"))
    first, second = views.remake()[0]
    assert sorted(views.drawn[4]) == [0, 0, 0, 0, 10**6]
    loss = floor.step(first, second)
    assert next(training.run()).loss == pytest.approx(float(loss), rel=1e-5)
    trained = dict(training.method.encoder.named_parameters())
    for name, parameter in floor.model.encoder.named_parameters():  # in another order of graphs: rounding differs
        torch.testing.assert_close(parameter.grad, trained[name].grad, rtol=1e-3, atol=1e-3)


def test_gradients_do_not_accumulate(workload, views):
    method = build_method(recipe_of(workload, "graphcl", 0), workload.store)
    floor = Floor(method, 1e-12, CPU)  # so small a rate leaves the weights where they are
    gradients = []
    for _ in range(2):
        floor.step(*views.views[0])
        gradients.append([parameter.grad.clone() for parameter in floor.model.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_floor_neither_gathers_nor_augments(workload, views, monkeypatch):
    task = floor_of(workload).task(lambda: views.views)

    def forbidden(*arguments, **named):
        raise AssertionError("this is no part of the floor")

    for each in AUGMENTATIONS.values():
        monkeypatch.setattr(each, "__call__", forbidden)
    monkeypatch.setattr(GraphStore, "batch", forbidden)
    monkeypatch.setattr(GraphBatch, "keep_nodes", forbidden)
    losses = task()()
    assert len(losses) == 4


def test_cached_properties_of_views_are_not_used(workload, views, monkeypatch):
    seen = []
    floor, view = floor_of(workload), views.views[0][0]
    assert view.batch.first_edge is view.batch.first_edge
    monkeypatch.setattr(
        floor.model.encoder,
        "forward",
        lambda batch: seen.append(dict(vars(batch))) or torch.zeros(1, floor.model.encoder.num_dimensions),
    )
    project(floor.model, view)
    assert "first_edge" in vars(view.batch)
    assert "first_edge" not in seen[0]


@pytest.mark.parametrize("count", [1, 7, 25, 40])
def test_sample_has_the_proportions_of_the_drawn_pairs(count, generator):
    drawn = torch.randint(0, 50, (5, 5), generator=generator())
    drawn[2, 3] = 0
    pairs = sample_of(drawn.tolist(), count)
    assert len(pairs) == count
    assert (2, 3) not in pairs
    for row in range(5):
        for column in range(5):
            expected = count * drawn[row, column] / drawn.sum()
            assert abs(pairs.count((row, column)) - expected) < 1


def test_views_of_an_epoch_contain_every_graph_once(workload):
    store = part(workload.store, torch.arange(160))
    store.x[:, 0] = torch.arange(160).repeat_interleave(store.first_node.diff()) % 256
    training = make_training(replace(workload, store=store), "graphcl", CPU, 0)
    views = ViewsOf(training, 10, torch_generator(0, "views")).remake()
    shown = [view.batch.x[view.batch.first_node[:-1], 0] for view, _ in views]
    assert torch.cat(shown).sort().values.tolist() == list(range(160))


def test_views_use_the_pairs_drawn_in_training(workload):
    training = make_training(workload, "joao", CPU, 0)
    views = ViewsOf(training, 3, torch_generator(0, "views"))
    only = torch.zeros(5, 5, dtype=torch.float64)
    only[4, 0] = 1
    training.method.policy.probabilities = only
    epoch_task(training, views)()()
    for first, second in views.remake():
        assert (first.augmentation, second.augmentation) == (4, 0)
        sizes = first.batch.nodes_per_graph
        assert first.batch.num_graphs == 16
        assert second.batch.nodes_per_graph.tolist() == [size - size // 5 for size in sizes.tolist()]
