"""What estimators show and keep while they train: progress, logging, Ctrl-C; and the seeds that they accept."""

import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import joao
from joao.augmentations import Augmentation, Identity
from joao.core import progress
from joao.data.synthetic import random_graphs
from joao.runs import pretraining
from tests.messages import assert_mentions, notice, refused

GRAPHS = random_graphs(40, mean_nodes=6, num_classes=2, seed=0)
OPTIONS = {"epochs": 3, "batch_size": 8, "device": "cpu"}  # five steps per epoch
CALLS = []


@dataclass(frozen=True)
class PressCtrlC(Augmentation):
    """Leaves graphs as they are, and sends this process SIGINT in ``presses`` calls from number ``first`` on."""

    first: int = 1
    presses: int = 1

    def __call__(self, batch, generator):
        CALLS.append(1)
        if self.first <= len(CALLS) < self.first + self.presses:
            os.kill(os.getpid(), signal.SIGINT)
        return batch


@pytest.fixture(autouse=True)
def python_handles_signals():
    CALLS.clear()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressed(**options):
    return joao.JOAO("uniform", augmentations=[PressCtrlC(**options)], **OPTIONS)


@pytest.mark.parametrize(("call", "epoch", "graphs"), [(2, 1, 8), (3, 1, 16), (13, 2, 16)])  # two calls per step
def test_ctrl_c_keeps_the_weights_so_far(call, epoch, graphs):
    with notice(f"epoch {epoch} of 3"):
        model = pressed(first=call).fit(GRAPHS)
    assert len(model.history_) == epoch
    assert sum(map(sum, model.history_[-1].drawn)) == graphs
    other = joao.JOAO("uniform", augmentations=[Identity()], **OPTIONS)
    assert not np.allclose(model.transform(GRAPHS), other.fit(GRAPHS).transform(GRAPHS))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_stops_at_once():
    with pytest.raises(KeyboardInterrupt):
        pressed(presses=2).fit(GRAPHS)
    assert len(CALLS) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_are_left_alone():
    caught = []
    signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    model = pressed(first=29, presses=2).fit(GRAPHS)
    assert len(model.history_) == 3
    assert caught == [1, 1]  # calls 29 and 30


@pytest.mark.parametrize("estimator", [joao.JOAOClassifier, joao.JOAORegressor])
def test_ctrl_c_in_fine_tuning_keeps_the_best_epoch(estimator, monkeypatch):
    train = torch.nn.Linear.train
    calls = []

    def press(module, mode=True):
        calls.append(mode)
        if len(calls) == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return train(module, mode)

    monkeypatch.setattr(torch.nn.Linear, "train", press)
    with notice("of 100"):
        model = estimator(device="cpu").fit(GRAPHS, np.arange(40) % 2)
    assert 1 <= model.chosen_epoch_ <= len(model.history_) < 100
    assert len(model.predict(GRAPHS)) == 40


def test_verbose_changes_no_bit(capsys, monkeypatch):
    plain = joao.JOAO(**OPTIONS).fit(GRAPHS)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(pretraining, "REPORT_SECONDS", 0.0)
    verbose = joao.JOAO(**OPTIONS, verbose=1).fit(GRAPHS)
    assert all(torch.equal(value, verbose.trained_.weights[name]) for name, value in plain.trained_.weights.items())
    assert [epoch.loss for epoch in plain.history_] == [epoch.loss for epoch in verbose.history_]
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    # four of five batches of each epoch, and the first two epochs; the last one ends the fit
    assert [line.partition(":")[2].split(":")[0] for line in lines] == [
        f" epoch {epoch}/3{f', batch {batch}/5' if batch < 5 else ''}"
        for epoch in (1, 2, 3)
        for batch in range(1, 6)
        if (epoch, batch) != (3, 5)
    ]
    assert_mentions(lines[4], f"{plain.history_[0].loss:.3f}", "graphs/s", "left")


def stop_after(steps):
    calls = iter(range(steps + 1))  # the first call is before the first step
    return lambda: next(calls) == steps


def test_batches_report_the_mean_loss_so_far(monkeypatch):
    seen = []
    monkeypatch.setattr(pretraining, "REPORT_SECONDS", 0.0)
    model = joao.JOAO(**OPTIONS)
    recipe = model._recipe()
    trained = pretraining.pretrain(recipe, GRAPHS, device="cpu", on_batch=seen.append)
    assert [(each.epoch, each.batch, each.batches) for each in seen] == [
        (e, b, 5) for e in (1, 2, 3) for b in range(1, 5)
    ]
    assert all(each.graphs_per_second > 0 and each.seconds_left > 0 for each in seen)
    stopped = pretraining.pretrain(recipe, GRAPHS, device="cpu", should_stop=stop_after(4))
    assert stopped.metrics[0].loss == pytest.approx(seen[3].loss)
    assert trained.metrics[0].loss != pytest.approx(seen[3].loss)


def test_logging_gets_every_epoch(caplog, capsys):
    caplog.set_level("INFO", "joao")
    joao.JOAO(**OPTIONS).fit(GRAPHS)
    joao.JOAOClassifier(epochs=2, device="cpu").fit(GRAPHS)
    assert [message.split(":")[0] for message in caplog.messages[:3]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("estimator", [joao.JOAO, joao.JOAOClassifier, joao.JOAORegressor])
def test_verbose_is_checked(estimator):
    with refused("verbose", "'loud'"):
        estimator(verbose="loud").fit(GRAPHS)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_random_state_of_numpy(make):
    def weights(state):
        return joao.JOAO(**{**OPTIONS, "epochs": 1}, random_state=state).fit(GRAPHS).transform(GRAPHS)

    first, again, state = weights(make(3)), weights(make(3)), make(3)
    assert np.array_equal(first, again)
    assert np.array_equal(first, weights(state))
    assert not np.array_equal(first, weights(state))  # the next number of the same state
    fitted = joao.JOAOClassifier(random_state=make(3), epochs=1, device="cpu").fit(GRAPHS)
    assert isinstance(fitted.finetuned_.info.seed, int)


def test_random_state_of_another_type_is_refused():
    with refused("seed", "'three'"):
        joao.JOAO(random_state="three").fit(GRAPHS)
