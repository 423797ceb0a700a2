"""Presets: other defaults by name."""

import pytest

from joao.config.recipe import PRESETS, make_recipe
from tests.messages import refused


def test_settings_that_are_given_go_before_those_of_the_preset():
    large = make_recipe({"preset": "large"})
    assert (large.encoder.options["width"], large.training.epochs) == (128, 40)
    own = make_recipe({"preset": "large", "encoder": {"layers": 2}, "training": {"epochs": 3}})
    assert (own.encoder.options["width"], own.encoder.options["layers"], own.training.epochs) == (128, 2, 3)
    assert make_recipe({"preset": "large", "encoder": "res_gcn"}).encoder.name == "res_gcn"


@pytest.mark.parametrize("name", ["huge", 3, ["large"]])
def test_unknown_preset(name):
    with refused("preset", *PRESETS):
        make_recipe({"preset": name})


def test_presets_are_for_graphs_only():
    with refused("preset", "large", "molecules"):
        make_recipe({"preset": "large"}, kind="molecules")
