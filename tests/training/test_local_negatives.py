"""Several processes with local negatives against their mean, computed by hand in one process."""

import json

import pytest
import torch

from joao.config.recipe import Schedule, make_recipe
from joao.core.errors import Interrupted
from joao.data.synthetic import random_graphs
from joao.objectives import InfoGraph, NtXent
from joao.runs.pretraining import pretrain
from joao.training.distributed.launch import find_process_layout, run_in_processes
from joao.training.pretrain import choose_negatives
from tests.messages import refused
from tests.training.local_processes import IN_FLOAT64, by_hand, together

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def told(request, quick_start):
    """What each process sent."""
    answers = dict(run_in_processes(together, (request.param,), find_process_layout(request.param)))
    return [answers[rank] for rank in range(request.param)]


@pytest.mark.parametrize("name", [*IN_FLOAT64, "compiled"])
def test_processes_descend_the_mean_of_their_losses(told, name):
    if name not in told[0]:
        pytest.skip("the compiled core is not built")
    precise = {"rtol": 1e-7, "atol": 1e-9} if name != "compiled" else {"rtol": 1e-3, "atol": 1e-4}
    torch.set_default_dtype(torch.float64 if name != "compiled" else torch.float32)
    try:
        steps, epochs = by_hand(name, len(told))
    finally:
        torch.set_default_dtype(torch.float32)
    found, found_epochs = told[0][name]
    assert len(found) == len(steps) == 2 * (3 if len(told) == 2 else 2)
    for one, other in zip(steps, found, strict=True):
        for kind in ("gradients", "state"):
            for key, value in one[kind].items():
                assert (other[kind][key] is None) == (value is None)
                if value is not None:
                    torch.testing.assert_close(torch.tensor(other[kind][key]), torch.tensor(value), **precise)
        torch.testing.assert_close(torch.tensor(other["table"]), torch.tensor(one["table"]), rtol=1e-5, atol=1e-7)
    for expected, other in zip(epochs, found_epochs, strict=True):
        for value, seen in zip(expected, other, strict=True):
            torch.testing.assert_close(torch.tensor(seen), torch.tensor(value), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*IN_FLOAT64, "compiled"])
def test_all_processes_have_the_same_weights_and_tables(told, name):
    for other in told[1:]:
        assert other.get(name) == told[0].get(name)


def test_a_checkpoint_resumes_all_processes_exactly(told):
    for answer in told:
        assert {"plain", "padded"} <= answer["resumes"].keys()
        assert all(answer == [True, True] for answer in answer["resumes"].values())


@pytest.mark.parametrize("fast", [False, True])
def test_one_process_ignores_the_setting(make_method, make_training, fast):
    trainings = [make_training(make_method(), fast=fast, negatives=each) for each in ("auto", "local", "global")]
    losses = [[(each.loss, each.probabilities) for each in training.run()] for training in trainings]
    assert losses[0] == losses[1] == losses[2]
    assert [training.is_fast for training in trainings] == [fast] * 3


def test_the_default_is_local_on_gpus_only():
    few = Schedule(batch_size=8)
    assert choose_negatives(NtXent(), few, 100, GPU, 4, None) == "local"
    assert choose_negatives(NtXent(), few, 100, CPU, 4, None) == "global"
    assert choose_negatives(NtXent(), Schedule(negatives="global"), 100, GPU, 4, None) == "global"
    assert "negatives" not in make_recipe({}).table()["training"]
    assert make_recipe({"training": {"negatives": "local"}}).table()["training"]["negatives"] == "local"


def test_impossible_settings_are_refused():
    local = Schedule(batch_size=8, negatives="local")
    with refused("two", "5", "9", "8", "negatives=global"):
        choose_negatives(NtXent(), local, 9, CPU, 5, None)
    with refused("two", "4", "7", "8", "negatives=global"):
        choose_negatives(NtXent(), local, 7, CPU, 4, None)
    with refused("fast", "negatives=local"):
        choose_negatives(NtXent(), Schedule(), 100, CPU, 2, True)
    with refused("InfoGraph", "devices"):
        choose_negatives(InfoGraph(), local, 100, CPU, 2, None)
    with refused("negatives", "near"):
        Schedule(negatives="near")


def test_a_run_resumes_in_as_many_processes(tmp_path):
    recipe, dataset = make_recipe({"training": {"epochs": 2, "negatives": "local"}}), random_graphs(21, 8, 2.5, seed=3)
    stopped = iter([False, True])
    with pytest.raises(Interrupted):
        pretrain(recipe, dataset, folder=tmp_path / "run", device="cpu", should_stop=lambda: next(stopped))
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": 3, "negatives": "local"}))
    with refused("3", "2", "--devices 3"):
        pretrain(recipe, dataset, folder=tmp_path / "run", device="cpu", resume=True, devices=2)
