"""JOAO with one thing changed at a time: the parts that the study has of its own, and its page."""

import copy
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from joao.config.recipe import make_recipe
from joao.core.graphs import GraphBatch
from joao.data import read
from joao.data.features import Features, make_store
from joao.heads import Heads
from joao.policies import Given
from joao.runs.pretraining import pretrain
from repro.protocols.unsupervised.run import Cell, cell_recipe, record_file
from repro.studies import factors
from tests.messages import refused


@pytest.fixture
def dataset(made_data):
    return read("MUTAG", made_data("MUTAG", num_graphs=40))


def tiny(**parts):
    training = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01}
    return make_recipe({"encoder": {"width": 4, "layers": 2}, "features": "labels", "training": training, **parts})


def copies(count, num_nodes, edges):
    """Copies of one graph, side by side, with the nodes' numbers as features."""
    both = sorted([*edges, *((v, u) for u, v in edges)], key=lambda edge: edge[::-1])
    shift = num_nodes * torch.arange(count)[:, None]
    source, target = ((shift + torch.tensor(side)).flatten() for side in zip(*both, strict=True))
    x = torch.arange(num_nodes).repeat(count)[:, None].float()
    return GraphBatch(x, source, target, torch.arange(count).repeat_interleave(num_nodes), count)


def neighbourhood_law(num_nodes, edges, most):
    """Which nodes are kept how often, by going through every start and every row of draws."""
    law = Counter()
    for start in range(num_nodes):
        next_to = [v for edge in edges for u, v in (edge, edge[::-1]) if u == start]
        for draws in product(next_to, repeat=num_nodes):
            taken = {start}
            for node in draws:
                if len(taken) == most:
                    break
                taken.add(node)
            law[frozenset(taken)] += 1 / (num_nodes * len(next_to) ** num_nodes)
    return law


def test_published_subgraph_has_its_distribution():
    edges, count = [(0, 1), (0, 2), (0, 3), (1, 2)], 20_000
    law = neighbourhood_law(4, edges, most=3)
    drawn = factors.OwnNeighbourhood(0.5)(copies(count, 4, edges), torch.Generator().manual_seed(0))
    kept = torch.split(drawn.x[:, 0].long(), drawn.nodes_per_graph.tolist())
    shares = Counter(frozenset(nodes.tolist()) for nodes in kept)
    assert set(shares) == set(law)
    for nodes, probability in law.items():
        assert abs(shares[nodes] / count - probability) < 5 * (probability * (1 - probability) / count) ** 0.5
    # {1, 2} has an edge between its nodes, and keeps it.
    assert drawn.num_edges == sum(2 * sum({*edge} <= nodes for edge in edges) * n for nodes, n in shares.items())


def test_isolated_start_stays_alone_and_strength_0_changes_nothing():
    batch = GraphBatch(torch.ones(5, 1), *[torch.zeros(0, dtype=torch.long)] * 2, torch.tensor([0, 0, 0, 1, 1]), 2)
    generator = torch.Generator().manual_seed(0)
    assert factors.OwnNeighbourhood(0.2)(batch, generator).nodes_per_graph.tolist() == [1, 1]
    assert factors.OwnNeighbourhood(0.0)(batch, generator) is batch


class Told(Heads):
    """Remembers through which head it was asked to go, and whether that was in training."""

    def __init__(self):
        super().__init__()
        self.told = []
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, embeddings, augmentation):
        self.told.append((torch.is_grad_enabled(), augmentation))
        return self.layer(embeddings)


def one_pair(first, second):
    table = np.zeros((5, 5))
    table[first, second] = 1
    return torch.tensor(table)


def test_published_heads_are_drawn_once_per_epoch_from_the_policy():
    inside, policy = Told(), Given(list("abcde"))
    heads = factors.HeadPerEpoch(inside, policy, torch.Generator())
    policy.probabilities = one_pair(2, 4)
    for _ in range(2):
        heads(torch.ones(1, 8), 0)
    policy.probabilities = one_pair(1, 3)
    for _ in range(2):
        heads(torch.ones(1, 8), 0)
    with torch.no_grad():
        heads(torch.ones(1, 8), 0)
    for _ in range(2):
        heads(torch.ones(1, 8), 0)
    assert [number for _, number in inside.told] == [2, 4, 2, 4, 0, 1, 3]


def test_training_with_published_heads_uses_one_pair_per_epoch(dataset):
    inside = Told()

    def put_in(method, recipe):
        heads = factors.published_heads(method, recipe).heads
        return factors.replace(method, heads=factors.HeadPerEpoch(inside, heads.policy, heads.generator))

    factors.embeddings(tiny(method="joaov2"), dataset, "cpu", put_in)
    epochs, told = [], list(inside.told)
    while told:
        epoch = [told.pop(0)[1] for _ in range(2 * 5)]
        measured = [told.pop(0) for _ in range(9)]  # two draws of five augmentations, but one of the graph itself
        assert not any(with_gradient for with_gradient, _ in measured)
        assert [number for _, number in measured] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
        assert epoch == epoch[:2] * 5
        epochs.append(tuple(epoch[:2]))
    assert len(epochs) == 3
    assert len(set(epochs)) > 1


def test_one_sided_policy_matches_a_hand_computation():
    policy = factors.OneSided(["drop", "identity", "mask"], gamma=1.0, step=1.0)
    losses = torch.full((3, 3), 100.0)
    losses[1] = torch.tensor([0.3, 0.0, -0.3])
    policy.update(losses)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[1] = torch.tensor([1 / 3 + 0.3, 1 / 3, 1 / 3 - 0.3])  # sums to 1: nothing is cut off
    torch.testing.assert_close(policy.probabilities, expected, atol=1e-7, rtol=0)
    policy.update(torch.zeros(3, 3))  # with gamma = 1 and a step of 1, back to the prior
    torch.testing.assert_close(policy.probabilities[1], torch.full((3,), 1 / 3, dtype=torch.float64))


def test_unchanged_method_equals_the_pre_training_of_the_package(dataset):
    recipe = tiny()
    assert torch.equal(
        factors.embeddings(recipe, dataset, "cpu"), pretrain(recipe, dataset, device="cpu").embed(dataset)
    )


def test_every_replaced_part_is_used(dataset):
    recipe = tiny(method="joaov2")
    method = factors.build_method(recipe, make_store(dataset, Features.from_dataset(dataset, "labels")))
    kinds = {
        "own_neighbourhood": lambda method: method.augmentations["subgraph"],
        "head_per_epoch": lambda method: method.heads,
        "one_sided": lambda method: method.policy,
    }
    shown = {name: type(part(factors.LEVELS[name].put_in(method, recipe))).__name__ for name, part in kinds.items()}
    assert shown == {"own_neighbourhood": "OwnNeighbourhood", "head_per_epoch": "HeadPerEpoch", "one_sided": "OneSided"}
    assert list(factors.published_subgraph(method, recipe).augmentations) == list(method.augmentations)


def leaves(table, path=()):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def test_every_level_changes_only_its_factor():
    changed = {}
    for name in factors.COMPUTED:
        cell = Cell("PROTEINS", name, 2)
        base = dict(leaves(cell_recipe(Cell("PROTEINS", factors.LEVELS[name].base, 2)).table()))
        ours = dict(leaves(factors.level_recipe(cell).table()))
        changed[name] = {".".join(key) for key in base.keys() | ours.keys() if base.get(key) != ours.get(key)}
    nothing = {"one_sided", "own_neighbourhood", "head_per_epoch", "unscaled"}
    assert {name for name, keys in changed.items() if not keys} == nothing
    assert changed["maximiser"] == {"policy.name", "policy.step"}
    single = {name: keys for name, keys in changed.items() if name not in {*nothing, "maximiser"}}
    for name, keys in single.items():
        (key,) = keys
        assert key.split(".")[-1].split("_")[0] in name or key in ("policy.gamma", "features"), (name, key)


def test_record_is_written_once_and_another_recipe_is_rejected(made_data, tmp_path, monkeypatch):
    monkeypatch.setenv("JOAO_DATA", str(made_data("MUTAG", num_graphs=40)))
    factors.dataset_of.cache_clear()
    cell = Cell("MUTAG", "epochs_5", 0)
    assert not factors.is_done(cell, tmp_path)
    factors.compute(cell, tmp_path, "cpu")
    factors.dataset_of.cache_clear()
    assert factors.is_done(cell, tmp_path)
    written = copy.deepcopy(record_file(tmp_path, "factors")[cell.key])
    assert len(written["scores"]["partitions"][0]["accuracies"]) == 10
    written["recipe"]["training"]["epochs"] = 6
    record_file(tmp_path, "factors").write(written)
    with refused(tmp_path / "factors.jsonl", "epochs_5", "MUTAG"):
        factors.is_done(cell, tmp_path)
