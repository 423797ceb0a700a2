import itertools

import pytest
import torch

from joao.heads import HEADS
from joao.objectives import OBJECTIVES
from joao.policies import Uniform
from joao.training.checkpoint import capture_state, restore_state
from tests.messages import assert_mentions, refused

try:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import MixedPrecision
except ImportError:
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.precision import MixedPrecision

CASES = itertools.product(HEADS, ("batch", "graph"), ("nt_xent",))


@pytest.fixture(params=[*CASES, ("shared_head", "batch", "bootstrap")], ids="-".join)
def make(request, make_method, make_training):
    heads, pair_per, objective = request.param

    def training(seed=0):
        method = make_method(heads, seed=seed, objective=OBJECTIVES[objective]())
        return make_training(method, epochs=3, pair_per=pair_per, update_every=3)

    return training


@pytest.fixture(scope="module")
def finished():
    """What undisturbed trainings showed and their final states, by case."""
    return {}


@pytest.fixture
def undisturbed(request, make, finished):
    """What an undisturbed training showed, and its final state."""
    case = request.node.callspec.params["make"]
    if case not in finished:
        training = make()
        finished[case] = comparable(training.run()), capture_state(training)
    return finished[case]


def comparable(metrics):
    return [(each.epoch, each.loss, each.probabilities, each.pair_losses, each.drawn) for each in metrics]


@pytest.mark.parametrize("epochs_before", [1, 2])
def test_resuming_from_a_checkpoint_is_exact(make, undisturbed, epochs_before):
    expected, expected_final = undisturbed

    interrupted = make()
    shown = comparable(itertools.islice(interrupted.run(), epochs_before))
    tensors = capture_state(interrupted)
    next(interrupted.run())  # what goes on afterwards does not reach into the checkpoint

    resumed = make(seed=17)
    restore_state(resumed, tensors)
    assert resumed.epoch == epochs_before
    shown += comparable(resumed.run())
    assert shown == expected
    final = capture_state(resumed)
    assert final.keys() == expected_final.keys()
    for name, value in final.items():
        assert torch.equal(value, expected_final[name]), name
        assert value.dtype == expected_final[name].dtype, name


class Stopped(Exception):
    pass


def stopped_after(training, step):
    """The state of a training after a step inside an epoch."""

    def stop():
        if training.step == step:
            raise Stopped

    with pytest.raises(Stopped):
        list(training.run(stop))
    return capture_state(training)


@pytest.mark.parametrize("step", [1, 2, 5, 10])  # 21 graphs in batches of six: four steps an epoch
def test_resuming_inside_an_epoch_is_exact(make, undisturbed, step):
    expected, expected_final = undisturbed
    tensors = stopped_after(make(), step)
    resumed = make(seed=17)
    restore_state(resumed, tensors)
    assert comparable(resumed.run()) == expected[step // 4 :]
    final = capture_state(resumed)
    assert final.keys() == expected_final.keys()
    assert all(torch.equal(value, expected_final[name]) for name, value in final.items())


def test_after_step_is_called_after_every_step_but_the_last(make):
    training, steps = make(), []
    list(training.run(lambda: steps.append(training.step)))
    assert steps == [step for step in range(1, 13) if step % 4]


def test_restoring_inside_an_epoch_restores_every_tensor(make):
    tensors = stopped_after(make(), 6)
    other = make(seed=17)
    restore_state(other, tensors)
    again = capture_state(other)
    assert again.keys() == tensors.keys()
    for name, value in tensors.items():
        # Outside of a training, torch's own generators are where the program left them.
        if name != "epoch/seconds" and "/global/" not in name:
            assert torch.equal(again[name], value), name
    assert tensors["epoch/seconds"] <= again["epoch/seconds"] < tensors["epoch/seconds"] + 60


def test_the_gradient_scaler_of_16_mixed_is_restored(make_method, make_training):
    def make(seed=0):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=3)
        precision = MixedPrecision("16-mixed", "cpu", scaler)
        return make_training(make_method(seed=seed), Fabric(accelerator="cpu", devices=1, plugins=[precision]))

    training = make()
    tensors = stopped_after(training, 6)
    scale = training.fabric.strategy.precision.scaler
    assert scale.get_scale() != 2.0**40  # which was too large for float16 at first
    resumed = make(seed=17)
    restore_state(resumed, tensors)
    assert resumed.fabric.strategy.precision.scaler.state_dict() == scale.state_dict()
    undisturbed = make()
    list(undisturbed.run())
    list(resumed.run())
    final, expected = capture_state(resumed), capture_state(undisturbed)
    assert all(torch.equal(value, expected[name]) for name, value in final.items())
    with refused("checkpoint", "'scaler/scale'"):
        restore_state(make(), {name: value for name, value in tensors.items() if not name.startswith("scaler")})


def test_restoring_restores_every_tensor(make):
    training = make()
    next(training.run())
    tensors = capture_state(training)
    assert all(value.device.type == "cpu" and value.is_contiguous() for value in tensors.values())
    assert torch.equal(tensors["pair_losses"], training.last_pair_losses)
    other = make(seed=17)
    restore_state(other, tensors)
    again = capture_state(other)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


def test_before_the_first_epoch_there_are_no_pair_losses(make_method, make_training):
    training = make_training(make_method(policy=Uniform))
    list(training.run())
    assert "pair_losses" not in capture_state(training)
    restore_state(training, capture_state(training))
    assert training.last_pair_losses is None


def test_a_checkpoint_of_another_recipe_is_refused(make_method, make_training, pool):
    shared = make_training(make_method("shared_head"))
    per_augmentation = make_training(make_method("head_per_augmentation"))
    with refused("checkpoint", "'model/heads.head.0.weight'"):
        restore_state(shared, capture_state(per_augmentation))
    tensors = capture_state(shared)
    tensors["model/encoder.mlps.0.0.weight"] = torch.zeros(9, 9)
    with refused("checkpoint", "recipe"):
        restore_state(shared, tensors)


def test_missing_and_misshapen_tensors_are_rejected(make_method, make_training):
    """A checksum says that a file is whole, not that it is right: its writer can write that, too."""
    tensors = stopped_after(make_training(make_method(), epochs=4), 6)
    may_be_missing = {"pair_losses", "epoch/steps"}
    resumed = make_training(make_method(), epochs=4)
    for name, value in tensors.items():
        longer = torch.cat([value.flatten(), value.flatten()[:1]])
        for wrong in (longer, value.flatten()[:0], value.flatten()[:0].to(torch.complex64)):
            with refused("checkpoint", "recipe") as told:
                restore_state(resumed, {**tensors, name: wrong})
            if not name.startswith(("model/", "generator/")):  # of these, torch itself tells
                forms = [f"{list(each.shape)} of {each.dtype}" for each in (wrong, value)]
                assert_mentions(told.value, f"'{name}'", *forms)
        if name not in may_be_missing:
            with refused("checkpoint", f"'{name}'"):
                restore_state(resumed, {key: tensors[key] for key in tensors if key != name})
    restore_state(resumed, tensors)
    assert torch.equal(capture_state(resumed)["position"], tensors["position"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("policy", lambda value: value * torch.nan),
        ("policy", lambda value: value * 2),
        ("policy", lambda value: value - 0.3),
        ("epoch/steps", lambda value: -value),
        ("generator/views", lambda value: value | 255),
        ("process/0/global/0", lambda value: value | 255),
    ],
)
def test_invalid_values_are_rejected(make_method, make_training, name, change):
    tensors = stopped_after(make_training(make_method(), epochs=4), 6)
    value = "mt19937" if name.startswith(("generator/", "process/")) else f"'{name}'"  # of these, torch itself tells
    with refused("checkpoint", "recipe", value):
        restore_state(make_training(make_method(), epochs=4), {**tensors, name: change(tensors[name])})
