"""What estimators show, keep and say: progress, logging, Ctrl-C, ignored edge attributes; seeds and devices."""

import os
import signal
import warnings
from dataclasses import dataclass
from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch_geometric.nn import ChebConv, EdgeConv, GATConv, GINEConv, global_add_pool
from torch_geometric.transforms import NormalizeFeatures

import joao
from joao.augmentations import Augmentation, Identity
from joao.core import progress
from joao.data.synthetic import random_graphs
from joao.runs import pretraining
from joao.training.device import make_fabric, pick_device
from joao.training.distributed.launch import ProcessLayout
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


def weighted(factor):
    graphs = [nx.cycle_graph(size) for size in range(4, 16)]
    for graph in graphs:
        nx.set_edge_attributes(graph, {edge: factor * (1 + sum(edge) % 3) for edge in graph.edges}, "weight")
    return graphs


def test_ignored_edge_attributes_are_mentioned_and_gine_uses_them():
    with notice("gin", "1 column", "gine"):
        ignoring = joao.JOAO(**OPTIONS).fit(weighted(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", joao.JoaoNotice)
        using = joao.JOAO(encoder="gine", **OPTIONS).fit(weighted(1))
        joao.JOAO(**OPTIONS).fit([nx.path_graph(3), nx.cycle_graph(4)])  # nothing to ignore
    change = [np.abs(each.transform(weighted(1)) - each.transform(weighted(100))).max() for each in (ignoring, using)]
    assert change[0] == 0
    assert change[1] > 1


def test_gine_on_padded_batches_has_the_loss_of_plain_ones():
    options = {"encoder": "gine", "augmentations": ["identity"], "epochs": 1, "batch_size": 12, "device": "cpu"}
    plain, padded = (joao.JOAO("uniform", **options, fast=fast).fit(weighted(1)) for fast in (False, True))
    assert padded.trained_.info.fast
    assert padded.history_[0].loss == pytest.approx(plain.history_[0].loss, rel=1e-5, abs=1e-5)


class SumOfColumns(nn.Module):
    """Needs the number of features, which is not known before fit."""

    def __init__(self, num_features, num_edge_features, width=4):
        super().__init__()
        self.sizes = num_features, num_edge_features
        self.linear = nn.Linear(num_features, width)

    def forward(self, x, batch, batch_size):
        return global_add_pool(self.linear(x), batch, batch_size)


@pytest.mark.parametrize(
    ("encoder", "columns"),
    [
        (SumOfColumns, 4),
        (partial(SumOfColumns, width=3), 3),
        (GINEConv, 96),
        ({"convolution": GINEConv, "width": 8}, 24),
        ({"convolution": "GINEConv", "layers": 2}, 64),
        ({"convolution": EdgeConv, "width": 8}, 24),
        ({"convolution": lambda before, after: GATConv(before, after, edge_dim=1), "width": 8}, 24),
    ],
)
def test_sizes_of_encoders_are_inferred(encoder, columns, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", joao.JoaoNotice)
        model = joao.JOAO(encoder=encoder, **OPTIONS).fit(weighted(1))
    rows = model.transform(weighted(1))
    assert rows.shape == (12, columns)
    model.save(tmp_path / "run")
    is_custom = "encoder" in model.trained_.info.own
    again = joao.JOAO.load(tmp_path / "run", encoder=encoder if is_custom else None)
    assert np.array_equal(again.transform(weighted(1)), rows)
    assert repr(clone(model).encoder) == repr(encoder)


@pytest.mark.parametrize(
    ("encoder", "values"),
    [
        (lambda size: None, ["features", "2"]),
        (lambda nodes, edges: 3, ["3", "module"]),
        ({"convolution": "GINConv", "width": "wide"}, ["width", "'wide'"]),
        ({"convolution": ChebConv}, ["ChebConv", "'K'"]),
        (3, ["encoder", "3"]),
    ],
)
def test_wrong_encoders(encoder, values):
    with refused(*values):
        joao.JOAO(encoder=encoder, **OPTIONS).fit(GRAPHS)


@pytest.mark.parametrize(
    ("augmentations", "values"),
    [
        ([NormalizeFeatures()], ["augmentations[0]", "joao.Augmentation", "NormalizeFeatures", "custom-augmentations"]),
        ([Identity(), 3], ["augmentations[1]", "joao.Augmentation", "3"]),
        (["identity", Identity()], ["'identity'"]),
        (7, ["augmentations", "7"]),
        (Identity(), ["augmentations", "Identity"]),
    ],
)
def test_objects_that_are_no_augmentations(augmentations, values):
    with refused(*values):
        joao.JOAO(augmentations=augmentations, **OPTIONS).fit(GRAPHS)


def test_devices(monkeypatch):
    with refused("mps", "cpu"):
        pick_device("mps")
    for name in ("cuda:x", "cuda:", "cpu:1", "gpu", 3):
        with refused("auto", "cpu", "cuda:1", name):
            pick_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    assert pick_device("auto") == pick_device("cuda") == torch.device("cuda")
    with refused("cuda:2", "2 GPUs"):
        pick_device("cuda:2")
    with refused("cuda:1", "2 processes"):
        make_fabric("cuda:1", "32-true", ProcessLayout(devices=2))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("cuda:1", "GPU"):
        pick_device("cuda:1")
