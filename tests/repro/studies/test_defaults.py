"""Candidates for the defaults: what the study has of its own, its records and its page."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest
import torch

from joao import JOAO
from joao.config.builder import build_method
from joao.data import Features, make_store, read
from joao.encoders import Gin
from joao.evaluation.embeddings import evaluate_embeddings
from joao.runs.pretraining import pretrain
from joao.runs.trained import make_untrained
from joao.training.pretrain import Pretraining
from repro.protocols.unsupervised.run import record_file
from repro.studies import defaults, readouts
from tests.messages import refused


@pytest.fixture
def data(made_data, monkeypatch):
    root = made_data("MSRC_9", num_graphs=30)
    monkeypatch.setenv("JOAO_DATA", str(root))
    defaults.dataset_of.cache_clear()
    yield read("MSRC_9", root)
    defaults.dataset_of.cache_clear()


def test_signed_log_matches_a_hand_computation():
    x = torch.tensor([-(math.e**2) + 1, -1.0, 0.0, math.e - 1])
    torch.testing.assert_close(readouts.signed_log(x), torch.tensor([-2.0, -math.log(2), 0.0, 1.0]))


def test_log_of_the_degree_adds_one_column(data):
    plain = make_store(data, Features.from_dataset(data, "labels"))
    store = readouts.with_log_degree(plain)
    assert torch.equal(store.x[:, :-1], plain.x.float())
    number = 0
    for first, after, edge, last in zip(
        data.first_node, data.first_node[1:], data.first_edge, data.first_edge[1:], strict=False
    ):
        for node in range(after - first):
            degree = sum(int(end) == node for end in data.source[edge:last])
            assert store.x[number, -1] == pytest.approx(math.log(1 + degree))
            number += 1
    assert number == len(store.x)


def test_readouts_match_a_loop_over_graphs(data):
    store = make_store(data, Features.from_dataset(data, "labels"))
    encoder = Gin(store.num_features, width=4, layers=2)
    found = readouts.read_out(encoder, readouts.whole(store), ("sum", "input", "mean", "max"))
    for graph in range(len(store)):
        batch = store.batch(torch.tensor([graph]))
        with torch.no_grad():
            nodes = encoder.eval().encode_nodes(batch)
        expected = [nodes.sum(0), batch.x.sum(0), nodes.mean(0), nodes.max(0).values]
        torch.testing.assert_close(found[graph], torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_log_in_the_encoder_trains_equally_on_both_paths(data, certain_pool):
    store = make_store(data, Features.from_dataset(data, "labels"))
    recipe = defaults.recipe_of(defaults.Training(width=4, inside=("sum",)), "labels", 3, seed=0)
    losses = []
    for fast in (False, True):
        method = defaults.method_of(recipe, store, defaults.Training(width=4, inside=("sum",)))
        given = build_method(dataclasses.replace(recipe, augmentations=recipe.augmentations[:3]), store)
        method = dataclasses.replace(method, augmentations=certain_pool, policy=given.policy)
        losses.append([epoch.loss for epoch in Pretraining(store, method, recipe.training, fast=fast).run()])
    assert isinstance(method.encoder, readouts.Logged)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    batch = store.batch(torch.arange(len(store)))
    with torch.no_grad():
        embedded, inside = method.encoder.eval()(batch), method.encoder.inside(batch)
    torch.testing.assert_close(embedded, inside.sign() * torch.log(1 + inside.abs()))


def test_readouts_in_the_encoder_are_the_log_of_those_outside_and_trained(data):
    store = make_store(data, Features.from_dataset(data, "labels"))
    training = defaults.Training(width=4, inside=readouts.READOUTS)
    recipe = defaults.recipe_of(training, "labels", 1, seed=0)
    ((run, _, _),) = defaults.trained(training, recipe, store, {1}, "cpu")
    encoder = run.method.encoder.eval()
    with torch.no_grad():
        embedded = encoder(store.batch(torch.arange(len(store))))
    outside = readouts.read_out(encoder.inside, readouts.whole(store), readouts.READOUTS)
    torch.testing.assert_close(embedded, outside.sign() * torch.log(1 + outside.abs()), atol=1e-5, rtol=1e-5)
    assert run.method.heads.head[0].weight.shape == (3 * 12 + store.num_features,) * 2
    before = defaults.method_of(recipe, store, training)
    for now, then in zip(encoder.parameters(), before.encoder.parameters(), strict=True):
        assert not torch.equal(now, then)


def test_criteria_match_a_hand_computation():
    # Scaled by column these are the corners of a square: at length 1 two neighbours are sqrt(2) apart, opposites 2.
    rows = torch.tensor([[3.0, 50.0, 7.0], [1.0, 50.0, 7.0], [3.0, 10.0, 7.0], [1.0, 10.0, 7.0]])
    found = readouts.criteria(rows, [rows, rows.flip(0)])
    assert found["alignment"] == pytest.approx((0 + 4) / 2)
    assert found["uniformity"] == pytest.approx(math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6))
    assert found["effective rank"] == pytest.approx(2)
    assert readouts.criteria(rows[:, [0, 0, 2]], [rows[:, [0, 0, 2]]])["effective rank"] == pytest.approx(1)


@pytest.mark.parametrize("features", ["labels", "degree", "constant"])
def test_default_candidate_equals_the_estimator(features):
    candidate = defaults.CANDIDATES["default"]
    recipe = defaults.recipe_of(candidate.training, features, candidate.epochs, seed=2)
    older = {"name": "gin", "readout": "sum"}  # the default readout at the time of the study
    assert recipe == JOAO(features=features, encoder=older, random_state=2)._recipe()


def test_candidates_are_distinct_and_have_the_stated_number_of_changes():
    def settings(candidate):
        table = dataclasses.asdict(candidate)
        return {**table.pop("training"), **{key: value for key, value in table.items() if key != "words"}}

    base = settings(defaults.CANDIDATES["default"])
    changed = {}
    for name, candidate in defaults.CANDIDATES.items():
        changed[name] = {key for key, value in settings(candidate).items() if value != base[key]}
        assert bool(changed[name]) == (name != "default"), name
    assert len({json.dumps(settings(each)) for each in defaults.CANDIDATES.values()}) == len(defaults.CANDIDATES)
    assert changed["log_degree"] == {"log_degree"}
    assert changed["wide_log_inside"] == {"width", "inside"}


def test_seeds_do_not_share_a_pre_training():
    candidate = defaults.CANDIDATES["three_seeds"]
    used = [seed for first in range(defaults.SEEDS) for seed in candidate.training_seeds(first)]
    assert len(set(used)) == 9
    assert defaults.CANDIDATES["another_seed"].training_seeds(0) == [3]


def test_stopped_training_equals_a_shorter_one(data):
    store = make_store(data, Features.from_dataset(data, "degree"))
    training = defaults.Training(width=4)
    long = defaults.trained(training, defaults.recipe_of(training, "degree", 4, 1), store, {2, 4}, "cpu")
    (run, epoch, seconds) = next(long)
    stopped = {name: value.clone() for name, value in run.method.encoder.state_dict().items()}
    short = pretrain(defaults.recipe_of(training, "degree", 2, 1), data, device="cpu").encoder.state_dict()
    assert epoch == 2
    assert all(torch.equal(value, short[name]) for name, value in stopped.items())
    started = time.process_time()
    while time.process_time() < started + 0.5:
        pass  # what happens between the epochs is no part of the training
    ((_, epoch, total),) = long
    assert epoch == 4
    assert seconds < total < seconds + time.process_time() - started - 0.5


def test_held_out_graphs_are_not_trained_on(data, monkeypatch):
    seen, unseen, real = [], [], defaults.Pretraining

    def losses(model, share, pool, objective, generator):
        unseen.append(share.store)
        return torch.full((5, 5), math.log(5) + 0.25)

    def pretraining(store, *others):
        seen.append(store)
        return real(store, *others)

    monkeypatch.setattr(defaults, "pair_losses", losses)
    monkeypatch.setattr(defaults, "Pretraining", pretraining)
    work = defaults.Work("MSRC_9", "labels", 0, defaults.Training(width=4), ("default",))
    found = defaults.held_out_losses(work, data, {1, 2}, "cpu")
    assert found == pytest.approx({1: 0.25, 2: 0.25}, abs=1e-5)  # less log 5, for there are 6 graphs
    parts = [graph for store in (seen[0], unseen[0]) for graph in graphs(store)]
    assert len(unseen[0]) == 6
    assert sorted(parts) == sorted(graphs(make_store(data, Features.from_dataset(data, "labels"))))


def graphs(store):
    """Every graph as text."""
    for number in range(len(store)):
        batch = store.batch(torch.tensor([number]))
        yield str((batch.x.tolist(), batch.source.tolist(), batch.target.tolist()))


NAMES = ("default", "log", "two_seeds", "untrained")


@pytest.mark.slow
def test_records_match_the_estimator_and_are_written_once(data, tmp_path, monkeypatch):
    records = record_file(tmp_path, "defaults")
    (work,) = defaults.works(records, ["MSRC_9"], ["constant"], 1, NAMES)
    assert work.names == NAMES
    defaults.compute(work, records, "cpu")
    assert defaults.works(records, ["MSRC_9"], ["constant"], 1, NAMES) == []
    found = {name: records[f"MSRC_9-constant/{name}-0"] for name in NAMES}
    older = {"features": "constant", "encoder": {"name": "gin", "readout": "sum"}}
    one, other = (JOAO(**older, random_state=seed, device="cpu").fit_transform(data) for seed in (0, 3))
    recipe = JOAO(**older, random_state=0)._recipe()
    by_hand = {
        "default": one,
        "log": np.sign(one) * np.log(1 + np.abs(one)),
        "two_seeds": np.hstack([one, other]),
        "untrained": make_untrained(recipe, data, Features.from_dataset(data, "constant"), device="cpu")
        .embed(data)
        .numpy(),
    }
    for name, rows in by_hand.items():
        scores = evaluate_embeddings(rows, data.classes, partitions=[0]).to_json()
        assert found[name]["scores"]["partitions"] == scores["partitions"], name
        assert found[name]["criteria"]["dimensions"] == rows.shape[1]
    losses = {name: each["criteria"].get("held-out loss") for name, each in found.items()}
    assert losses["default"] is not None
    assert losses == {**dict.fromkeys(NAMES, losses["default"]), "untrained": None}
    assert found["untrained"]["seconds of pre-training"] == 0
    assert found["log"]["chance"] == max(np.mean(data.classes == each) for each in set(data.classes))
    changed = dataclasses.replace(defaults.CANDIDATES["log"], epochs=21)
    monkeypatch.setitem(defaults.CANDIDATES, "log", changed)
    with refused(records.path, "MSRC_9-constant/log-0"):
        defaults.works(records, ["MSRC_9"], ["constant"], 1, NAMES)
