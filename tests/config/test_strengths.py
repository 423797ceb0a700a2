"""A pool of augmentations at several strengths: who is in it, and under which prior."""

import tomllib

import pytest

from joao.config.builder import build_method
from joao.config.overrides import apply_overrides
from joao.config.recipe import METHODS, POOL, expand_strengths, make_recipe, pool_name, strength_prior
from joao.core.pair_table import PairTable
from joao.data.features import Features, make_store
from joao.data.synthetic import random_graphs
from joao.runs.pretraining import pretrain
from tests.messages import refused

LEARNED = make_recipe({"method": "joao_strengths", "strengths": {0.1: 1, 0.2: 2, 0.4: 5}})


def members(recipe):
    return [(part.name, part.options["strength"]) for part in recipe.augmentations]


def test_the_pool_has_every_augmentation_at_every_strength_and_identity_once():
    expected = [(name, strength) for name in POOL[:-1] for strength in (0.1, 0.2, 0.4)]
    assert members(LEARNED)[:-1] == expected
    assert members(LEARNED)[-1][0] == "identity"


def test_augmentations_share_the_prior_equally_and_strengths_by_weight():
    # Under the prior, 1/5 of the views are made by each augmentation, of which 1/8, 2/8 and 5/8 at each strength.
    store = make_store(*_graphs())
    policy = build_method(LEARNED, store).policy
    table = PairTable.of(policy.augmentations, policy.probabilities)
    assert table.over_strengths().values == pytest.approx(1 / 25)
    for name, shares in table.by_strength().items():
        expected = {"-": 0.2} if name == "identity" else {"0.1": 1 / 40, "0.2": 2 / 40, "0.4": 5 / 40}
        assert shares == pytest.approx(expected)


def _graphs():
    dataset = random_graphs(12, mean_nodes=8, seed=0)
    return dataset, Features.from_dataset(dataset)


def test_pool_names_show_only_the_strength():
    names = [pool_name(part, LEARNED.augmentations) for part in LEARNED.augmentations]
    assert names[9:] == [f"attribute_mask(strength={each})" for each in (0.1, 0.2, 0.4)] + ["identity"]


@pytest.mark.parametrize(
    "text",
    [
        "strengths = { 0.1 = 1, 0.2 = 2, 0.4 = 5 }",  # TOML reads a table in a table
        'strengths = { "0.1" = 0.125, "0.2" = 0.25, "0.4" = 0.625 }',
        "[strengths]\n0.1 = 2\n0.2 = 4\n0.4 = 10",
    ],
)
def test_strengths_as_list_and_table_in_toml(text):
    assert make_recipe({"method": "joao_strengths", **tomllib.loads(text)}) == LEARNED


def test_a_list_has_an_equal_prior():
    assert strength_prior([0.3, 0.1], "here") == {0.3: 0.5, 0.1: 0.5}


def test_a_written_recipe_is_the_same_again():
    assert make_recipe(tomllib.loads(LEARNED.toml())) == LEARNED


def test_strengths_override_strength():
    assert members(make_recipe({"method": "joao_strengths", "strength": 0.7, "strengths": [0.1, 0.2]}))[:2] == [
        ("node_drop", 0.1),
        ("node_drop", 0.2),
    ]


def test_an_augmentation_with_a_strength_of_its_own_keeps_it():
    pool = ["node_drop", {"name": "subgraph", "strength": 0.5}]
    recipe = make_recipe({"method": "joao_strengths", "augmentations": pool, "strengths": [0.1, 0.2]})
    assert members(recipe) == [("node_drop", 0.1), ("node_drop", 0.2), ("subgraph", 0.5)]
    assert recipe.policy.options["prior"] == [0.25, 0.25, 0.5]


def test_explicit_strengths_and_priors_are_kept():
    pool = [{"name": "subgraph", "strength": 0.5}, "identity"]
    assert make_recipe({"method": "joao_strengths", "augmentations": pool}).policy.options["prior"] is None
    own = {"name": "kullback_leibler", "prior": [0.3, 0.3, 0.4]}
    recipe = make_recipe({"policy": own, "augmentations": ["node_drop", "identity"], "strengths": [0.1, 0.2]})
    assert recipe.policy.options["prior"] == [0.3, 0.3, 0.4]
    assert expand_strengths(pool, {0.1: 1.0}) == (pool, None)


def test_strengths_need_a_policy_with_a_prior():
    assert len(make_recipe({"method": "joao", "strengths": [0.1, 0.2]}).policy.options["prior"]) == 9
    with refused("strengths", "'uniform'", "kullback_leibler", "min_max"):
        make_recipe({"method": "uniform", "strengths": [0.1, 0.2]})


@pytest.mark.parametrize(
    ("strengths", "values"),
    [
        (0.2, ["recipe", "[0.1, 0.2]", 0.2]),
        (["much"], ["'much'"]),
        ([0.1, 1.5], [0, 1, 1.5]),
        ([0.0], [0, 1, 0.0]),
        ([True], [0, 1, True]),
        ([0.1, 0.2, 0.1], [0.1]),
        ({0.1: 0}, [0.1, "weight", 0]),
        ({0.1: float("inf")}, [0.1, "weight", "inf"]),
        ({0.1: "half"}, [0.1, "'half'"]),
        ({0.1: None}, [0.1, None]),
    ],
)
def test_invalid_strengths_are_rejected(strengths, values):
    with refused("strengths", *values):
        make_recipe({"method": "joao_strengths", "strengths": strengths})


def test_switching_the_method_adds_and_removes_strengths():
    before = make_recipe({"augmentations": ["node_drop", {"name": "edge_perturb", "drop_only": True}], "strength": 0.5})
    learning = make_recipe(apply_overrides(before.table(), ["method=joao_strengths"]))
    assert members(learning) == [
        (n, s) for n in ("node_drop", "edge_perturb") for s in METHODS["joao_strengths"]["strengths"]
    ]
    assert all(part.options["drop_only"] for part in learning.augmentations[3:])
    back = make_recipe(apply_overrides(learning.table(), ["method=joao"]))
    assert members(back) == [("node_drop", 0.2), ("edge_perturb", 0.2)]
    # Strengths of one's own are kept by the same method, and two strengths without it by any.
    assert make_recipe(apply_overrides(LEARNED.table(), ["method=joao_strengths"])) == LEARNED
    two = make_recipe({"augmentations": ["node_drop", {"name": "node_drop", "strength": 0.5}]})
    assert members(make_recipe(apply_overrides(two.table(), ["method=joaov2"]))) == members(two)


def test_a_head_of_its_own_for_every_member():
    recipe = make_recipe({**LEARNED.table(), "heads": "head_per_augmentation"})
    assert len(build_method(recipe, make_store(*_graphs())).heads.heads) == 13


def test_training_tilts_the_prior_by_the_last_losses():
    import numpy as np

    dataset, _ = _graphs()
    recipe = make_recipe({**LEARNED.table(), "training": {"epochs": 2, "batch_size": 6}, "encoder": {"width": 4}})
    trained = pretrain(recipe, dataset, device="cpu")
    prior = np.outer(recipe.policy.options["prior"], recipe.policy.options["prior"])
    weights = prior * np.exp(np.array(trained.metrics[-1].pair_losses) / recipe.policy.options["gamma"])
    np.testing.assert_allclose(trained.policy.values, weights / weights.sum(), rtol=1e-9)
    assert trained.policy.has_strengths
