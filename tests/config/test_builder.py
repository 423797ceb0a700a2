"""Encoder and heads are measured before they are built, because a recipe may come from anyone."""

import pytest

from joao.config.builder import build_method, build_pool, check_memory, count_weights
from joao.config.recipe import make_recipe
from joao.core.memory import VARIABLE
from joao.data.features import Features, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import ENCODERS
from tests.messages import refused

STORE = make_store(random_graphs(8, mean_nodes=4, seed=1), Features("degree", max_degree=5))


def method_of(encoder, heads="head_per_augmentation"):
    recipe = make_recipe({"encoder": encoder, "heads": heads, "features": "degree", "max_degree": 5})
    return recipe, len(build_pool(recipe))


@pytest.mark.parametrize(
    "name", [name for name, kind in ENCODERS.items() if kind.codes is None and name != "convolutions"]
)
@pytest.mark.parametrize("heads", ["shared_head", "head_per_augmentation"])
def test_the_count_is_that_of_the_parts(name, heads):
    recipe, members = method_of(name, heads)
    method = build_method(recipe, STORE)
    of_encoder, of_heads = (
        sum(value.numel() for value in part.state_dict().values()) for part in (method.encoder, method.heads)
    )
    assert count_weights(recipe, STORE) == of_encoder
    assert count_weights(recipe, STORE, members) == of_encoder + of_heads


@pytest.mark.parametrize("convolution", ["GCNConv", "GATConv", "SAGEConv", "MFConv", "ResGatedGraphConv"])
def test_convolutions_have_at_least_the_count(convolution):
    pytest.importorskip("torch_geometric")
    recipe, _ = method_of({"name": "convolutions", "convolution": convolution, "width": 16, "layers": 4})
    built = sum(value.numel() for value in build_method(recipe, STORE).encoder.state_dict().values())
    assert 16 * STORE.num_features + 3 * 16**2 <= count_weights(recipe, STORE) <= built


@pytest.mark.parametrize("width", [10**5, 10**7, 10**10, 10**15])
@pytest.mark.parametrize("name", ["gin", "convolutions"])
def test_large_encoders_are_refused(name, width):
    recipe, members = method_of({"name": name, "width": width})
    with refused(name):
        check_memory(recipe, STORE, members)
    with refused(name):
        build_method(recipe, STORE)


def test_the_limit_can_be_changed(monkeypatch):
    recipe, members = method_of({"name": "gin", "width": 256})
    check_memory(recipe, STORE, members)
    monkeypatch.setenv(VARIABLE, "1M")
    with refused(VARIABLE, "gin"):
        check_memory(recipe, STORE, members)
