"""MVGRL with NT-Xent, against loops over nodes and graphs."""

import math

import pytest
import torch

from joao.encoders import Gin
from joao.objectives import MultiView
from repro.protocols.unsupervised.multi_view import MultiViewNtXent
from repro.protocols.unsupervised.run import Cell, cell_recipe, custom_parts
from tests.messages import refused


@torch.no_grad()
def loss_by_hand(nodes, graphs, graph_of_node, temperature):
    losses = []
    for node, own in zip(nodes, graph_of_node, strict=True):
        cosines = [float(node @ graph / (node.norm() * graph.norm())) for graph in graphs]
        negatives = sum(math.exp(cosine / temperature) for h, cosine in enumerate(cosines) if h != own)
        losses.append(-cosines[own] / temperature + math.log(negatives))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_loss_matches_plain_loops(mutag, generator, temperature):
    encoder = Gin(mutag.num_features, width=8)
    objective = MultiViewNtXent(alpha=0.3, temperature=temperature)
    parts, batch = objective.parts(encoder, encoder.num_node_dimensions), mutag.batch(torch.arange(5))
    vectors = [each.encode_nodes(batch) for each in (encoder, parts["encoder"])]
    nodes = [parts["nodes"](each) for each in vectors]
    sums = [torch.stack([each[batch.graph_of_node == g].sum(0) for g in range(5)]) for each in vectors]
    graphs = [parts["graphs"](each) for each in sums]
    expected = sum(
        loss_by_hand(nodes[view], graphs[1 - view], batch.graph_of_node.tolist(), temperature) for view in (0, 1)
    )
    found = objective(encoder.encode_nodes, parts, batch, generator())
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_parts_are_those_of_the_jensen_shannon_row(mutag):
    encoder = Gin(mutag.num_features, width=8)
    torch.manual_seed(3)
    one = MultiViewNtXent(alpha=0.3).parts(encoder, 8)
    torch.manual_seed(3)
    other = MultiView(alpha=0.3).parts(encoder, 8)
    assert one["encoder"].diffusion == other["encoder"].diffusion == 0.3
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_rows_differ_only_in_the_loss():
    one, other = (cell_recipe(Cell("MUTAG", method, 1)).table() for method in ("mvgrl", "mvgrl_nt_xent"))
    assert one == other
    assert custom_parts("mvgrl") is None
    assert custom_parts("mvgrl_nt_xent").objective == MultiViewNtXent(alpha=0.2, temperature=0.2)


def test_impossible_options_are_rejected():
    with refused("temperature", 0.0):
        MultiViewNtXent(temperature=0.0)
    with refused("alpha", 1.0):
        MultiViewNtXent(alpha=1.0)
