"""The network whose messages join edges, against the equation written out in loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.config.recipe import make_recipe
from joao.data.features import Features
from joao.data.synthetic import random_graphs
from joao.encoders import EdgeGin
from joao.runs.pretraining import pretrain
from tests.messages import refused


@pytest.fixture
def batch(make_batch, shapes):
    batch = make_batch([*shapes.values()], with_attributes=True)
    attr = torch.stack([torch.sin(k + 1.7 * batch.edge_attr[:, 0]) for k in range(9)], dim=1)
    return replace(batch, x=torch.sin(batch.x).double(), edge_attr=attr.double())


def by_loops(encoder, batch, loop=None):
    """The equation node by node: every message made, joined and summed on its own."""
    width = encoder.num_dimensions
    x = [encoder.first.weight @ row for row in batch.x]
    loop = torch.zeros(width).double() if loop is None else loop
    for layer, (edges, mlp) in enumerate(zip(encoder.edges, encoder.mlps, strict=True)):
        summed = [torch.cat([x[v], loop]) for v in range(len(x))]
        for edge, (u, v) in enumerate(batch.edge_index.T.tolist()):
            vector = edges.weight[:, :-1] @ batch.edge_attr[edge] + edges.weight[:, -1]
            summed[v] = summed[v] + torch.cat([x[u], vector])
        hidden = torch.stack([mlp[0].weight @ each + mlp[0].bias for each in summed])
        if encoder.training:
            mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
        else:
            mean, variance = mlp[1].running_mean, mlp[1].running_var
        normed = (hidden - mean) / (variance + mlp[1].eps).sqrt() * mlp[1].weight + mlp[1].bias
        x = [mlp[3].weight @ row.clamp(min=0) + mlp[3].bias for row in normed]
        if layer < len(encoder.mlps) - 1:
            x = [row.clamp(min=0) for row in x]
    return torch.stack(x)


@pytest.mark.parametrize("training", [True, False])
def test_matches_the_equation(batch, training):
    encoder = EdgeGin(batch.x.shape[1], 9, width=7, layers=3).double().train(training)
    expected = by_loops(encoder, batch)
    torch.testing.assert_close(encoder.encode_nodes(batch), expected)
    means = [expected[batch.graph_of_node == graph].mean(0) for graph in range(batch.num_graphs)]
    torch.testing.assert_close(encoder(batch), torch.stack(means))


def test_self_loop_vector_is_equivalent_to_a_bias(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=7, layers=2).double().eval()
    loop = torch.linspace(-1, 1, 7).double()
    published = by_loops(encoder, batch, loop)
    assert not torch.allclose(published, encoder.encode_nodes(batch))
    with torch.no_grad():
        for mlp in encoder.mlps:
            mlp[0].bias += mlp[0].weight[:, 7:] @ loop
    torch.testing.assert_close(encoder.encode_nodes(batch), published)


def test_number_of_parameters_is_the_published_one():
    encoder = EdgeGin(1, 9)
    d = 300
    # Two rows for inputs of nodes were published, of which the files use one.
    layer = (9 + 1) * d + (2 * d * 2 * d + 2 * d) + 2 * 2 * d + (2 * d * d + d)
    assert sum(each.numel() for each in encoder.parameters()) == d + 5 * layer


def test_edge_attributes_matter_and_may_be_bytes(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=6, layers=2).double().eval()
    bits = (batch.edge_attr > 0).to(torch.uint8)
    as_bytes = encoder(replace(batch, edge_attr=bits))
    torch.testing.assert_close(as_bytes, encoder(replace(batch, edge_attr=bits.double())))
    changed = (as_bytes - encoder(replace(batch, edge_attr=1 - bits))).abs().amax(1) > 1e-9
    assert changed.tolist() == [bool((batch.graph_of_node[batch.target] == graph).any()) for graph in range(8)]


def test_dropout_only_in_training(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=50, layers=1, dropout=0.5).double()
    zeros = (encoder.encode_nodes(batch) == 0).double().mean()
    assert abs(float(zeros) - 0.5) < 0.05
    assert (encoder.eval().encode_nodes(batch) != 0).all()


def test_trains_with_constant_features():
    graphs = random_graphs(12, mean_nodes=6, num_node_labels=0, num_edge_attributes=9)
    recipe = make_recipe(
        {
            "features": "constant",
            "encoder": {"name": "edge_gin", "width": 8, "layers": 2},
            "training": {"epochs": 1, "batch_size": 6},
        }
    )
    trained = pretrain(recipe, graphs, device="cpu")
    assert trained.info.features == Features("constant")
    assert np.ptp(trained.embed(graphs).numpy(), axis=0).min() > 0


@pytest.mark.parametrize("options", [{"width": 0}, {"dropout": 1.0}])
def test_invalid_options_are_rejected(options):
    with refused("EdgeGin", *options, *options.values()):
        EdgeGin(1, 9, **options)
