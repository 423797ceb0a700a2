"""A recipe says everything, reads back as it was written, and tells what is wrong with a bad one."""

import dataclasses
import inspect
import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

from joao.augmentations import AUGMENTATIONS
from joao.config.overrides import apply_overrides
from joao.config.recipe import (
    CATALOGUES,
    METHODS,
    POOL,
    Recipe,
    Schedule,
    make_recipe,
    pool_name,
    read_recipe,
    read_toml,
)
from joao.data.features import RULES
from joao.data.synthetic import random_graphs
from joao.objectives import OBJECTIVES, NodeObjective
from joao.policies import POLICIES
from joao.runs.pretraining import pretrain
from repro.protocols.unsupervised.run import Cell, cell_recipe, cells, grid, has_encoder
from tests.messages import refused

MEMBERS = [(family, name) for family, members in CATALOGUES.items() for name in members]


def through_a_file(recipe: Recipe, folder: Path) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(recipe.toml(), encoding="utf-8")
    return read_recipe(path)


@pytest.mark.parametrize(
    "table",
    [
        *({"method": method, "data": "MUTAG"} for method in METHODS),
        *({family: name} for family, name in MEMBERS),
        *({"augmentations": [name]} for name in AUGMENTATIONS),
        *({"features": rule, "max_degree": 7} for rule in RULES),
    ],
    ids=str,
)
def test_round_trip_of_every_name(table, tmp_path):
    recipe = make_recipe(table)
    assert through_a_file(recipe, tmp_path) == recipe


@pytest.mark.parametrize("number", [0.1 + 0.2, 1e-7, 1e22, 5e-324, 1.7976931348623157e308, 3])
def test_round_trip_of_numbers_to_the_last_bit(number, tmp_path):
    recipe = make_recipe({"training": {"learning_rate": number}})
    assert through_a_file(recipe, tmp_path).training.learning_rate == float(number)


def test_round_trip_of_nested_lists(tmp_path):
    prior = [[0.5, 0.25], [0.25, 0.0]]
    recipe = make_recipe({"augmentations": ["node_drop", "identity"], "policy": {"prior": prior}})
    assert through_a_file(recipe, tmp_path).policy.options["prior"] == prior
    assert through_a_file(recipe, tmp_path) == recipe


@pytest.mark.parametrize(
    "text",
    [
        'say "hi"',
        "C:\\new\\table",
        "naïve ↦ 図 😀",
        "tab\tline\nreturn\rbell\x07nul\x00delete\x7f",
        "soft\u00adhyphen and \u2028 and \ufeff",
        "tag \U000e0001, then 1",
        "",
        "'''",
        "#[not.a.table]",
    ],
)
def test_round_trip_of_text(text, tmp_path):
    recipe = make_recipe({"data": text})
    assert tomllib.loads(recipe.toml())["data"] == text
    assert through_a_file(recipe, tmp_path) == recipe


@pytest.mark.parametrize(("family", "name"), MEMBERS)
def test_a_part_has_its_name_and_all_options_of_its_class(family, name):
    given_by_the_experiment = {"num_features", "num_edge_features", "num_dimensions", "num_augmentations"}
    parameters = set(inspect.signature(CATALOGUES[family][name]).parameters) - given_by_the_experiment
    part = getattr(make_recipe({family: name}), family)
    assert (part.name, set(part.options)) == (name, parameters - {"augmentations"})


def test_the_default_is_the_papers_pool_in_its_order():
    recipe = make_recipe({})
    assert tuple(part.name for part in recipe.augmentations) == POOL
    assert dataclasses.asdict(recipe.training) == dataclasses.asdict(Schedule())


def test_row_of_the_default_has_the_default_settings():
    assert cell_recipe(Cell("MUTAG", "joao_default", 0)) == make_recipe({"data": "MUTAG"})
    assert cell_recipe(Cell("MUTAG", "joao_default+wl", 3)) == make_recipe({"data": "MUTAG", "training": {"seed": 3}})


def test_every_cell_of_the_shipped_table_says_everything():
    for cell in (cell for cell in cells() if has_encoder(cell.method)):
        recipe = cell_recipe(cell)
        written = tomllib.loads(recipe.toml())
        assert make_recipe(written) == recipe
        assert recipe.data == cell.dataset
        assert recipe.training.seed == cell.seed
        said = {key: set(value) for key, value in written.items() if isinstance(value, dict)}
        later = {"negatives", "decay"}
        assert said["training"] == {each.name for each in dataclasses.fields(Schedule)} - later
        for family in CATALOGUES:
            options = getattr(recipe, family).options
            # The readout of older recipes is left out.
            assert said[family] == {"name", *(key for key, value in options.items() if value not in (None, "sum"))}


@pytest.mark.parametrize("method", sorted({cell.method for cell in cells() if has_encoder(cell.method)}))
def test_every_cell_takes_a_step(method):
    recipes = (cell_recipe(Cell(dataset, method, seed=0)) for dataset in grid()["datasets"])
    for recipe in {
        recipe.toml(): recipe for recipe in (dataclasses.replace(each, data="") for each in recipes)
    }.values():
        short = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, epochs=1))
        (epoch,) = pretrain(short, random_graphs(8, mean_nodes=6), device="cpu").metrics
        assert np.sum(epoch.drawn) == 8  # every graph was shown once
        assert np.sum(epoch.probabilities) == pytest.approx(1)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ({"polcy": "uniform"}, ["'polcy'", "'policy'"]),
        ({"epochs": 3}, ["'epochs'", "'training.epochs'"]),
        ({"training": {"epoch": 3}}, ["training", "'epoch'", "'epochs'"]),
        ({"encoder": {"widht": 3}}, ["encoder: gin", "'widht'", "'width'"]),
        ({"encoder": "GIN"}, ["encoder", "'GIN'", "'gin'"]),
        ({"heads": "sharedhead"}, ["heads", "'sharedhead'", "'shared_head'"]),
        ({"objective": {"name": "ntxent"}}, ["objective", "'ntxent'", "'nt_xent'"]),
        ({"policy": {"gama": 1}}, ["policy: min_max", "'gama'", "'gamma'"]),
        ({"policy": {"name": "uniform", "gamma": 1}}, ["policy: uniform", "'gamma'"]),
        ({"augmentations": ["nodedrop"]}, ["augmentations", "'nodedrop'", "'node_drop'"]),
        ({"augmentations": [{"name": "subgraph", "kept": 1}]}, ["augmentations: subgraph", "'kept'", "'keep'"]),
        ({"method": "JOAOv2"}, ["method", "'JOAOv2'", "'joaov2'"]),
        ({"features": "degrees"}, ["features", "'degrees'", "'degree'"]),
        ({"encoder": {"num_features": 3}}, ["encoder: gin", "'num_features'", "width", "layers"]),
    ],
)
def test_unknown_names_suggest_the_nearest_one(table, values):
    with refused(*values) as caught:
        make_recipe(table, source="here")
    assert str(caught.value).startswith("here: ")


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ({"training": {"epochs": 2.5}}, ["training: epochs", 2.5]),
        ({"training": {"epochs": True}}, ["training: epochs", True]),
        ({"training": {"epochs": "2"}}, ["training: epochs", "'2'"]),
        ({"training": {"learning_rate": "fast"}}, ["learning_rate", "'fast'"]),
        ({"training": {"learning_rate": float("nan")}}, ["learning_rate", "nan"]),
        ({"training": {"learning_rate": float("inf")}}, ["learning_rate", "inf"]),
        ({"training": {"pair_per": 1}}, ["pair_per", 1]),
        ({"training": {"pair_per": "node"}}, ["pair_per", "'batch'", "'graph'", "'node'"]),
        ({"training": {"epochs": 0}}, ["epochs", 1, 0]),
        ({"training": [1]}, ["training", "[1]"]),
        ({"objective": {"symmetric": 1}}, ["nt_xent: symmetric", 1]),
        ({"policy": {"prior": 3}}, ["min_max: prior", 3]),
        ({"policy": {"prior": [["a"]]}}, ["min_max: prior", "'a'"]),
        ({"policy": {"name": "fixed", "pair": "node_drop"}}, ["fixed: pair", "'node_drop'"]),
        ({"encoder": 3}, ["encoder", 3]),
        ({"encoder": {"name": ["gin"]}}, ["encoder", "{'name': ['gin']}"]),
        ({"augmentations": "node_drop"}, ["augmentations", '["node_drop", "subgraph"]', "'node_drop'"]),
        ({"augmentations": []}, ["augmentations", '["node_drop", "subgraph"]', "[]"]),
        ({"augmentations": [3]}, ["augmentations", 3]),
        ({"data": 3}, ["data", 3]),
        ({"data": "we\udcffird.csv"}, ["data", "UTF-8", r"'we\udcffird.csv'"]),
        ({"features": ["labels"]}, ["features", "['labels']"]),
        ({"max_degree": 6.5}, ["max_degree", 6.5]),
        ({"training": {"batch_size": 2**63}}, ["training: batch_size", 64, 2**63]),
        ({"encoder": {"layers": 10**8}}, ["encoder: layers", 256, 10**8]),
        ({"augmentations": ["node_drop"] * 20_000}, ["augmentations", 256, 20000]),
        ({"method": "joao_strengths", "strengths": [s / 100 for s in range(1, 99)]}, ["augmentations", 256, 393]),
        ({"method": ["joao"]}, ["method", "['joao']"]),
        ({"strength": "much"}, ["node_drop: strength", "'much'"]),
    ],
)
def test_wrong_types_are_rejected_with_source_and_value(table, values):
    with refused(*values):
        make_recipe(table)


def test_numpy_numbers_are_accepted():
    recipe = make_recipe({"training": {"epochs": np.int64(3), "learning_rate": np.float32(0.5)}})
    assert (type(recipe.training.epochs), type(recipe.training.learning_rate)) == (int, float)
    assert make_recipe(tomllib.loads(recipe.toml())) == recipe


def test_strength_applies_to_augmentations_without_their_own():
    table = {"strength": 0.3, "augmentations": ["node_drop", {"name": "subgraph", "strength": 0.1}, "identity"]}
    recipe = make_recipe(table)
    assert [part.options["strength"] for part in recipe.augmentations] == [0.3, 0.1, 0.3]


def test_strength_is_written_out():
    written = tomllib.loads(make_recipe({"strength": 0.3}).toml())
    assert "strength" not in written
    assert {each["strength"] for each in written["augmentations"]} == {0.3}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("training.epochs=5", {"training": {"epochs": 5}}),
        ("training.learning_rate=1e-3", {"training": {"learning_rate": 0.001}}),
        ("policy=uniform", {"policy": "uniform"}),
        ('policy="uniform"', {"policy": "uniform"}),
        ('policy={name="min_max", gamma=0}', {"policy": {"name": "min_max", "gamma": 0}}),
        ('augmentations=["node_drop"]', {"augmentations": ["node_drop"]}),
        ("objective.symmetric=true", {"objective": {"symmetric": True}}),
        ("data=a=b", {"data": "a=b"}),
        ("data=", {"data": ""}),
        ("features=auto", {"features": "auto"}),
    ],
)
def test_settings_are_parsed_as_toml(setting, expected):
    assert apply_overrides({}, [setting]) == expected


def test_later_settings_win_and_the_table_is_not_changed():
    table = {"training": {"epochs": 1, "seed": 7}}
    changed = apply_overrides(table, ["training.epochs=2", "training.epochs=3"])
    assert changed == {"training": {"epochs": 3, "seed": 7}}
    assert table == {"training": {"epochs": 1, "seed": 7}}


@pytest.mark.parametrize("setting", ["training.epochs", "=3", "", "="])
def test_a_setting_without_key_or_value_is_refused(setting):
    with refused(f"--set {setting}", "key=value", "training.epochs=5"):
        apply_overrides({}, [setting])


def test_a_list_has_no_keys_to_set():
    with refused("--set augmentations.strength=0.1", "augmentations=[...]"):
        apply_overrides({"augmentations": ["node_drop"]}, ["augmentations.strength=0.1"])


@pytest.mark.parametrize("setting", ["policy=uniform", "policy.name=uniform"])
def test_renaming_a_part_drops_its_options(setting):
    complete = make_recipe({"policy": {"gamma": 0.7}}).table()
    assert make_recipe(apply_overrides(complete, [setting])).policy == make_recipe({"policy": "uniform"}).policy


def test_the_same_name_keeps_the_options_of_a_part():
    table = {"policy": {"name": "min_max", "gamma": 0.7}}
    assert make_recipe(apply_overrides(table, ["policy.name=min_max"])).policy.options["gamma"] == 0.7


@pytest.mark.parametrize("before", METHODS)
def test_a_method_replaces_the_parts_of_a_complete_recipe(before):
    complete = make_recipe({"method": before}).table()
    for after in METHODS:
        assert make_recipe(apply_overrides(complete, [f"method={after}"])) == make_recipe({"method": after}), after


OF_NODES = [name for name, parts in METHODS.items() if issubclass(OBJECTIVES[parts["objective"]], NodeObjective)]
OF_PAIRS = [name for name in METHODS if name not in OF_NODES]


@pytest.mark.parametrize("method", OF_NODES)
def test_node_level_methods_use_identity_and_a_fixed_policy(method):
    recipe = make_recipe({"method": method})
    assert [part.name for part in recipe.augmentations] == ["identity"]
    assert (recipe.policy.name, recipe.heads.name) == ("uniform", "no_head")
    assert not POLICIES["uniform"](["identity"]).learns
    own = make_recipe({"method": method, "augmentations": ["node_drop", "subgraph"]})
    assert [part.name for part in own.augmentations] == ["node_drop", "subgraph"]  # unless it says otherwise


@pytest.mark.parametrize("method", OF_PAIRS)
def test_contrastive_methods_have_the_pool_of_the_paper(method):
    assert tuple(dict.fromkeys(part.name for part in make_recipe({"method": method}).augmentations)) == POOL


@pytest.mark.parametrize("method", OF_NODES)
def test_a_node_level_method_replaces_only_the_parts_that_are_set(method):
    table = {
        "augmentations": [{"name": "node_drop", "strength": 0.4}, "subgraph"],
        "policy": {"name": "min_max", "gamma": 0.7},
        "heads": "head_per_augmentation",
        "objective": {"name": "nt_xent", "temperature": 0.3},
        "encoder": {"name": "res_gcn", "width": 8},
        "training": {"epochs": 3},
    }
    changed = apply_overrides(table, [f"method={method}"])
    assert changed.keys() == {*table, "method"}
    assert changed["augmentations"] == ["identity"]
    assert (changed["encoder"], changed["training"]) == (table["encoder"], table["training"])
    expected = {"method": method, "encoder": table["encoder"], "training": table["training"]}
    assert make_recipe(changed) == make_recipe(expected)
    assert apply_overrides({"training": {}}, [f"method={method}"]) == {"training": {}, "method": method}


@pytest.mark.parametrize("back", OF_PAIRS)
def test_switching_the_method_back_restores_it(back):
    complete = make_recipe({"method": back, "encoder": "res_gcn"}).table()
    parts = {"augmentations", "policy", "heads", "objective"}
    for there, keep in itertools.product(OF_NODES, (set(complete), parts, {"augmentations"}, set())):
        table = {key: value for key, value in complete.items() if key in keep}
        changed = apply_overrides(apply_overrides(table, [f"method={there}"]), [f"method={back}"])
        own_pool = {key: value for key, value in table.items() if key != "augmentations"}
        assert make_recipe(changed) == make_recipe({**own_pool, "method": back}), (there, keep)


def test_a_custom_pool_survives_a_switch_to_a_contrastive_method():
    pool = ["node_drop", {"name": "subgraph", "strength": 0.4}]
    for table in ({"method": "gae", "augmentations": pool}, make_recipe({"augmentations": pool}).table()):
        recipe = make_recipe(apply_overrides(table, ["method=joaov2"]))
        assert recipe.augmentations == make_recipe({"augmentations": pool}).augmentations
    alone = make_recipe({"method": "joao", "augmentations": ["identity"]}).table()
    assert [part.name for part in make_recipe(apply_overrides(alone, ["method=joaov2"])).augmentations] == ["identity"]


def test_a_method_keeps_the_options_of_a_part_it_shares():
    complete = make_recipe({"method": "joao", "policy": {"gamma": 0.7}}).table()
    recipe = make_recipe(apply_overrides(complete, ["method=joaov2"]))
    assert (recipe.policy.options["gamma"], recipe.heads.name) == (0.7, "head_per_augmentation")


def test_duplicate_augmentations_are_rejected():
    with refused("augmentations", "strength"):
        make_recipe({"augmentations": ["subgraph", {"name": "subgraph", "strength": 0.2}]})


def test_pool_names_include_options_that_differ():
    pool = make_recipe({"augmentations": ["node_drop", {"name": "node_drop", "strength": 0.4}, "identity"]})
    names = [pool_name(part, pool.augmentations) for part in pool.augmentations]
    assert names == ["node_drop(strength=0.2)", "node_drop(strength=0.4)", "identity"]


@pytest.mark.parametrize("content", [b"data = ", b"\xff\xfe", b"[a]\n[a]\n"])
def test_a_file_that_is_not_toml(content, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with refused(path, "TOML"):
        read_toml(path)


@pytest.mark.parametrize("path", ["nowhere.toml", "."])
def test_a_file_that_cannot_be_read(path, tmp_path):
    with refused(tmp_path / path):
        read_toml(tmp_path / path)


def test_errors_start_with_the_path_of_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("encoder = 'gim'\n")
    with refused("encoder", "'gim'", "'gin'") as caught:
        read_recipe(path)
    assert str(caught.value).startswith(f"{path}: ")


MOLECULES = {
    "features": "atoms",
    "encoder": "molecule_gin",
    "batch_size": 256,
    "learning_rate": 0.001,
    "temperature": 0.1,
    "fill": "token",
}


def settings(recipe):
    """What depends on the kind of data."""
    [mask] = [part for part in recipe.augmentations if part.name == "attribute_mask"]
    return {
        "features": recipe.features,
        "encoder": recipe.encoder.name,
        "batch_size": recipe.training.batch_size,
        "learning_rate": recipe.training.learning_rate,
        "temperature": recipe.objective.options["temperature"],
        "fill": mask.options["fill"],
    }


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        ({}, {}),
        ({"method": "joaov2", "features": "auto"}, {}),
        ({"augmentations": ["identity", "attribute_mask"], "strength": 0.3}, {}),
        ({"augmentations": ["identity", {"name": "attribute_mask", "strength": 0.3}]}, {}),
        ({"objective": {"symmetric": True}, "training": {"epochs": 3}, "encoder": {"width": 8}}, {}),
        ({"objective": {"temperature": 0.5}, "training": {"batch_size": 8}}, {"temperature": 0.5, "batch_size": 8}),
        ({"training": {"learning_rate": 0.1}}, {"learning_rate": 0.1}),
        # An encoder that does not look atoms up gets them as columns, and noise in them.
        ({"encoder": "gin"}, {"encoder": "gin", "features": "labels", "fill": "noise"}),
    ],
)
def test_molecules_have_their_own_defaults(table, changed):
    recipe = make_recipe(table, kind="molecules")
    assert settings(recipe) == MOLECULES | changed
    assert make_recipe(tomllib.loads(recipe.toml())) == recipe  # complete: no kind is needed any more


def test_other_graphs_keep_their_defaults():
    expected = ("random_walks", "gin", 128, 0.01, 0.2, "noise")
    assert settings(make_recipe({})) == dict(zip(MOLECULES, expected, strict=True))


def test_graphcl_uses_the_rule_pool_of_molecules():
    assert make_recipe({"method": "graphcl"}, kind="molecules").policy.options == {"pool": "molecules"}
    assert make_recipe({"method": "graphcl"}).policy.options == {"pool": "dense"}


def test_columns_are_written_only_if_named():
    recipe = make_recipe({"data": "a.csv", "smiles": "drug"})
    assert recipe.columns == {"smiles": "drug"}
    assert tomllib.loads(recipe.toml())["smiles"] == "drug"
    assert not {"smiles", "identifiers"} & make_recipe({}).table().keys()
    with refused("recipe", "smiles", 3):
        make_recipe({"smiles": 3})
