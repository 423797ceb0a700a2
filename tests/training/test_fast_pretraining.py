from dataclasses import replace
from statistics import mean

import pytest
import torch
from lightning_fabric import Fabric

from joao.augmentations import Augmentation, Identity
from joao.encoders import Convolutions
from joao.heads import HEADS
from joao.objectives import OBJECTIVES, Bootstrap, NtXent, PairObjective
from joao.training import pretrain
from joao.training.checkpoint import capture_state, restore_state
from joao.training.fast import batches
from joao.training.fast.batches import CudaGraphRunner
from tests.messages import refused


def shown(training):
    epochs = list(training.run())
    return (
        torch.tensor([each.loss for each in epochs]),
        torch.tensor([each.pair_losses for each in epochs]),
        torch.tensor([each.probabilities for each in epochs]),
        [each.drawn for each in epochs],
        training.model.state_dict(),
    )


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("schedule", [{}, {"update_every": 2, "update_batches": 2}, {"batch_size": 21}], ids=str)
def test_the_fast_path_matches_the_plain_path(make_method, make_training, certain_pool, heads, schedule, monkeypatch):
    monkeypatch.setattr(pretrain, "LEAST_MEASURED", 8)  # a part of the batch of 21
    # Small steps: Adam makes steps of full length even of gradients that are nothing but rounding.
    settings = {"epochs": 5, "learning_rate": 1e-5, **schedule}
    plain, fast = (
        shown(make_training(make_method(heads, pool=certain_pool), fast=fast, **settings)) for fast in (False, True)
    )
    assert plain[3] == fast[3]
    for one, other in zip(plain[:3], fast[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if getattr(kind, "static", False)])
def test_static_objectives_match_on_both_paths(make_method, make_training, certain_pool, name):
    settings = {"epochs": 3, "learning_rate": 1e-5, "update_batches": 2}
    plain, fast = (
        shown(make_training(make_method(pool=certain_pool, objective=OBJECTIVES[name]()), fast=fast, **settings))
        for fast in (False, True)
    )
    for one, other in zip(plain[:3], fast[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 2)])
def test_a_fast_step_has_the_gradients_of_a_plain_step(make_method, make_training, certain_pool, heads, pair):
    gradients, buffers = [], []
    for fast in (False, True):
        training = make_training(make_method(heads, pool=certain_pool), fast=fast)
        training.model.train()
        training.steps.train(next(training._batches("batches"))[1], torch.tensor([pair]))
        gradients.append({name: each.grad for name, each in training.model.named_parameters()})
        buffers.append([*training.model.buffers()])
    plain, fast = gradients
    assert {name for name, each in plain.items() if each is None} == {n for n, each in fast.items() if each is None}
    for name, value in plain.items():
        if value is not None:
            torch.testing.assert_close(fast[name], value, rtol=1e-4, atol=5e-5)
    for one, other in zip(*buffers, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("heads", HEADS)
def test_the_fast_path_learns_with_random_augmentations(make_method, make_training, heads):
    training = make_training(make_method(heads), fast=True, epochs=30)
    losses = [each.loss for each in training.run()]
    assert sum(losses[-5:]) < sum(losses[:5]) - 0.5


def test_a_seed_determines_the_result_bit_for_bit(make_method, make_training):
    one, other = (shown(make_training(make_method(), fast=True, seed=4)) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert all(torch.equal(one[4][name], other[4][name]) for name in one[4])


def test_the_fast_path_resumes_exactly(make_method, make_training):
    undisturbed = make_training(make_method(), fast=True, epochs=4)
    losses = [each.loss for each in undisturbed.run()]
    first = make_training(make_method(), fast=True, epochs=4)
    steps = first.run()
    next(steps), next(steps)
    second = make_training(make_method(), fast=True, epochs=4)
    restore_state(second, capture_state(first))
    assert [each.loss for each in second.run()] == losses[2:]


@pytest.mark.parametrize("heads", HEADS)
def test_batches_that_do_not_fit_take_eager_steps(make_method, make_training, certain_pool, heads, monkeypatch):
    monkeypatch.setattr(batches, "buffer_capacity", lambda sizes, count: int(mean(sizes.elements()) * count))
    settings = {"epochs": 4, "learning_rate": 1e-5, "update_batches": 3}
    plain, fast = (
        make_training(make_method(heads, pool=certain_pool), fast=fast, **settings) for fast in (False, True)
    )
    fits = [batch.fits for _, batch in fast._batches("batches")]
    assert 0 < sum(fits) < len(fits)
    fast.generators["batches"].set_state(plain.generators["batches"].get_state())
    one, other = shown(plain), shown(fast)
    assert one[3] == other[3]
    for expected, found in zip(one[:3], other[:3], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_draws_do_not_depend_on_the_number_of_epochs(make_method, make_training):
    short, long = (shown(make_training(make_method(), fast=True, epochs=epochs)) for epochs in (2, 9))
    assert torch.equal(short[0], long[0][:2])


class Unpadded(Augmentation):
    def __call__(self, batch, generator):
        return batch


class Unstatic(PairObjective):
    def __call__(self, first, second):
        return NtXent()(first, second)


def test_parts_without_a_padded_form_train_on_the_plain_path(make_method, make_training, store):
    method = make_method()
    cases = {
        "Convolutions": replace(method, encoder=Convolutions(store.num_features, width=4, layers=2)),
        "Unpadded": make_method(pool={"own": Unpadded(), "identity": Identity()}),
        "Bootstrap": replace(method, objective=Bootstrap()),
        "Unstatic": replace(method, objective=Unstatic()),
    }
    for name, case in cases.items():
        assert not make_training(case).is_fast
        with refused("fast", name):
            make_training(case, fast=True)
    with refused("fast", "pair_per = 'graph'"):
        make_training(method, fast=True, pair_per="graph")
    with refused("fast", "64-true", "32-true", "tf32", "bf16-mixed"):
        make_training(method, Fabric(accelerator="cpu", devices=1, precision="64-true"), fast=True)


def test_on_a_cpu_the_plain_path_is_the_default(make_training):
    assert not make_training().is_fast


def test_mixed_precision_stays_near_full_precision(make_method, make_training, certain_pool):
    losses = []
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        training = make_training(make_method(pool=certain_pool), fabric, fast=True)
        losses.append([each.loss for each in training.run()])
    assert losses[0] != losses[1]
    assert losses[1][0] == pytest.approx(losses[0][0], abs=0.2)


def test_the_cuda_graph_runner_calls_functions_on_a_cpu():
    seen = []
    runner = CudaGraphRunner(torch.device("cpu"), [])
    for number in range(3):
        runner.run("key", lambda number=number: seen.append(number))
    assert seen == [0, 1, 2]
