"""The network whose messages join edges, against the equation written out in loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from joao.data.features import Features
from joao.data.synthetic import random_graphs
from joao.encoders import EdgeGin
from joao.errors import UserError
from joao.experiment import pretrain
from joao.recipe import make_recipe


@pytest.fixture
def batch(make_batch, shapes):
    batch = make_batch([*shapes.values()], with_attributes=True)
    attr = torch.stack([torch.sin(k + 1.7 * batch.edge_attr[:, 0]) for k in range(9)], dim=1)
    return replace(batch, x=torch.sin(batch.x).double(), edge_attr=attr.double())


def by_loops(encoder, batch):
    """The equation node by node: every message made, joined and summed on its own."""
    x = [encoder.first.weight @ row for row in batch.x]
    incoming = [[] for _ in x]
    for edge, (u, v) in enumerate(batch.edge_index.T.tolist()):
        incoming[v].append((u, torch.cat([batch.edge_attr[edge], torch.tensor([0.0, 1.0])])))
    for v in range(len(x)):
        incoming[v].append((v, torch.tensor([0.0] * batch.edge_attr.shape[1] + [1.0, 1.0]).double()))
    for layer, (edges, mlp) in enumerate(zip(encoder.edges, encoder.mlps, strict=True)):
        summed = [sum(torch.cat([x[u], edges.weight @ numbers]) for u, numbers in each) for each in incoming]
        hidden = torch.stack([mlp[0].weight @ each + mlp[0].bias for each in summed])
        mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
        normed = (hidden - mean) / (variance + mlp[1].eps).sqrt() * mlp[1].weight + mlp[1].bias
        x = [mlp[3].weight @ row.clamp(min=0) + mlp[3].bias for row in normed]
        if layer < len(encoder.mlps) - 1:
            x = [row.clamp(min=0) for row in x]
    return torch.stack(x)


def test_nodes_and_graphs_are_those_of_the_equation(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=7, layers=3).double()
    expected = by_loops(encoder, batch)
    torch.testing.assert_close(encoder.encode_nodes(batch), expected)
    means = [expected[batch.graph_of_node == graph].mean(0) for graph in range(batch.num_graphs)]
    torch.testing.assert_close(encoder(batch), torch.stack(means))


def test_it_has_as_many_parameters_as_published():
    encoder = EdgeGin(1, 9)
    d = 300
    # An edge's 9 numbers and the bias; our column for loops is the published eighth number, which no edge has.
    layer = (9 + 2) * d + (2 * d * 2 * d + 2 * d) + 2 * 2 * d + (2 * d * d + d)
    assert sum(each.numel() for each in encoder.parameters()) == d + 5 * layer


def test_a_loop_differs_from_an_edge_of_zeros(make_batch):
    """Two nodes that are joined by an edge of zeros, and one node alone."""
    encoder = EdgeGin(1, 2, width=5, layers=1).double().eval()
    pair = make_batch([(2, [(0, 1)])], with_attributes=True)
    ones = torch.ones(2, 1).double()
    joined = encoder.encode_nodes(replace(pair, x=ones, edge_attr=torch.zeros(2, 2).double()))
    alone = encoder.encode_nodes(replace(make_batch([(2, [])]), x=ones, edge_attr=torch.zeros(0, 2).double()))
    assert not torch.allclose(joined, alone)


def test_edges_matter_and_bytes_will_do(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=6, layers=2).double().eval()
    bits = (batch.edge_attr > 0).to(torch.uint8)
    as_bytes = encoder(replace(batch, edge_attr=bits))
    torch.testing.assert_close(as_bytes, encoder(replace(batch, edge_attr=bits.double())))
    changed = (as_bytes - encoder(replace(batch, edge_attr=1 - bits))).abs().amax(1) > 1e-9
    assert changed.tolist() == [bool((batch.graph_of_node[batch.target] == graph).any()) for graph in range(8)]


def test_dropout_is_for_training_alone(batch):
    encoder = EdgeGin(batch.x.shape[1], 9, width=50, layers=1, dropout=0.5).double()
    zeros = (encoder.encode_nodes(batch) == 0).double().mean()
    assert abs(float(zeros) - 0.5) < 0.05
    assert (encoder.eval().encode_nodes(batch) != 0).all()


def test_it_trains_on_graphs_whose_nodes_are_all_alike():
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


@pytest.mark.parametrize(
    ("options", "message"),
    [({"width": 0}, "width and layers must be at least 1"), ({"dropout": 1.0}, r"dropout must be in \[0, 1\)")],
)
def test_what_makes_no_sense(options, message):
    with pytest.raises(UserError, match=f"EdgeGin: {message}"):
        EdgeGin(1, 9, **options)
