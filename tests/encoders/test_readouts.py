"""What an embedding is made of."""

import tomllib

import numpy as np
import pytest
import torch
from torch import nn

import joao
from joao.config.recipe import make_recipe
from joao.data import Features, batch_of, make_store
from joao.data.synthetic import random_graphs
from joao.encoders import Convolutions, Gin
from joao.encoders.layers import Readout
from joao.runs.export import export
from joao.runs.pretraining import pretrain
from joao.runs.trained import load_run
from repro.record_files import RECORDS
from tests.messages import refused

GRAPHS = random_graphs(8, mean_nodes=6, num_node_labels=3, seed=1)


@pytest.mark.parametrize("kind", [Gin, Convolutions])
def test_all_statistics_of_every_layer(kind):
    batch = batch_of(GRAPHS)
    encoder = kind(batch.x.shape[1], width=4, layers=2, readout="log(sum+mean+max+input)").eval()
    with torch.no_grad():
        rows, layers = encoder.embed(batch), list(encoder.encode_layers(batch))
    assert rows.shape == (8, encoder.embedding_size) == (8, 3 * 2 * 4 + batch.x.shape[1])
    for graph in range(8):
        own = [layer[batch.graph_of_node == graph] for layer in layers]
        parts = [each.sum(0) for each in own] + [each.mean(0) for each in own] + [each.amax(0) for each in own]
        expected = torch.cat([*parts, batch.x[batch.graph_of_node == graph].float().sum(0)])
        expected = expected.sign() * expected.abs().log1p()
        torch.testing.assert_close(rows[graph], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", ["", "median", "sum+sum", "log(sum", "sum+", "log()"])
def test_unknown_readout(text):
    with refused("readout", text):
        Readout(text)


def test_readout_changes_embeddings_and_not_the_training(tmp_path):
    plain, other = (
        joao.JOAO(epochs=1, device="cpu", encoder={"name": "gin", "width": 4, "readout": readout}).fit(GRAPHS)
        for readout in ("sum", "max+sum")
    )
    for ours, theirs in zip(plain.encoder_.parameters(), other.encoder_.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    rows = other.transform(GRAPHS)
    assert rows.shape == (8, 24)
    np.testing.assert_array_equal(rows[:, 12:], plain.transform(GRAPHS))
    other.save(tmp_path / "run")
    np.testing.assert_array_equal(load_run(tmp_path / "run", device="cpu").embed(GRAPHS).numpy(), rows)
    assert other.set_output(transform="pandas").transform(GRAPHS).shape == (8, 24)


def test_runs_of_the_older_default_embed_as_before(tmp_path):
    """A recipe that an earlier version wrote: without the key readout, with the features of that time."""
    text = (RECORDS / "quickstart/recipe.toml").read_text(encoding="utf-8")
    assert "readout" not in text
    older = make_recipe({**tomllib.loads(text), "training": {"epochs": 1}})
    assert (older.features, older.toml().replace("epochs = 1\n", "epochs = 20\n")) == ("auto", text)
    pretrain(older, GRAPHS, folder=tmp_path / "run", device="cpu")
    assert "readout" not in (tmp_path / "run/recipe.toml").read_text()
    loaded = load_run(tmp_path / "run", device="cpu")
    batch = make_store(GRAPHS, Features("labels", GRAPHS.label_values)).batch(torch.arange(8))
    with torch.no_grad():
        layers = loaded.encoder.encode_nodes(batch)
    expected = torch.stack([layers[batch.graph_of_node == graph].sum(0) for graph in range(8)])
    torch.testing.assert_close(loaded.embed(GRAPHS), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(
        loaded.embed(GRAPHS), loaded.encoder(batch).detach()
    )  # as embeddings were until there were readouts
    exported = joao.load(export(tmp_path / "run", tmp_path / "model.safetensors").file, device="cpu")
    np.testing.assert_array_equal(exported.transform(GRAPHS), loaded.embed(GRAPHS).numpy())
    again = joao.JOAO.load(tmp_path / "run", device="cpu").fit(GRAPHS, retrain=True)
    np.testing.assert_array_equal(again.transform(GRAPHS), loaded.embed(GRAPHS).numpy())


def test_default_has_random_walks_and_all_readouts():
    rows = joao.JOAO(epochs=1, device="cpu").fit(GRAPHS).transform(GRAPHS)
    named = {"name": "gin", "readout": "log(sum+mean+max+input)"}
    again = joao.JOAO(epochs=1, device="cpu", features="random_walks", encoder=named).fit(GRAPHS).transform(GRAPHS)
    np.testing.assert_array_equal(rows, again)
    assert rows.shape == (8, 3 * 96 + 3 + 8)


def test_custom_encoder_without_readout_embeds_as_it_encodes():
    class Sizes(joao.Encoder):
        num_dimensions = 1

        def __init__(self, num_features=0, num_edge_features=0):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, batch):
            return batch.nodes_per_graph[:, None] * self.scale

    encoder, batch = Sizes(), batch_of(GRAPHS)
    assert torch.equal(encoder.embed(batch), encoder(batch))
    assert encoder.embedding_size == 1
