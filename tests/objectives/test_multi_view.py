from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from joao.config.recipe import make_recipe
from joao.data.synthetic import random_graphs
from joao.encoders import ENCODERS, Gin, NodeEncoder
from joao.objectives import MultiView
from joao.objectives.infomax import node_graph_loss
from joao.runs.pretraining import pretrain
from tests.messages import refused

GRAPHS = random_graphs(6, seed=0)


MOLECULES = replace(
    GRAPHS,
    kind="molecules",
    node_labels=np.stack([np.arange(GRAPHS.num_nodes) % 9, np.arange(GRAPHS.num_nodes) % 3], axis=1).astype(np.uint8),
    edge_attr=np.stack([(GRAPHS.source + GRAPHS.target) % 4, 0 * GRAPHS.source], axis=1).astype(np.uint8),
)


def recipe_of(encoder, kind="graphs", **options):
    parts = {"encoder": {"name": encoder, "width": 4}, "objective": {"name": "multi_view", **options}}
    return make_recipe({"method": "mvgrl", **parts, "training": {"epochs": 1, "batch_size": 3}}, kind=kind)


class Twice(nn.Module):
    """Vectors of nodes that say whether they were diffused."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.diffusion = None

    def encode_nodes(self, batch):
        x = torch.sin(batch.x.double())
        return self.factor * (x if self.diffusion is None else torch.cos(3 * x) * self.diffusion)


def test_matches_the_equation(make_batch, shapes, generator):
    batch, encoder = make_batch([*shapes.values()]), Twice()
    parts = MultiView(alpha=0.3).parts(encoder, 3).double()
    first = torch.sin(batch.x.double())
    second = 0.3 * torch.cos(3 * first)
    sums = [
        torch.stack([each[batch.graph_of_node == graph].sum(0) for graph in range(batch.num_graphs)])
        for each in (first, second)
    ]
    expected = node_graph_loss(parts["nodes"](first), parts["graphs"](sums[1]), batch.graph_of_node)
    expected = expected + node_graph_loss(parts["nodes"](second), parts["graphs"](sums[0]), batch.graph_of_node)
    found = MultiView(alpha=0.3)(encoder.encode_nodes, parts, batch, generator())
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)


def test_second_encoder_is_a_separate_copy(mutag, generator):
    encoder = Gin(mutag.num_features, width=8)
    parts = MultiView().parts(encoder, encoder.num_node_dimensions)
    second = parts["encoder"]
    assert (encoder.diffusion, second.diffusion) == (None, 0.2)
    batch = mutag.batch(torch.arange(20))
    MultiView()(encoder.encode_nodes, parts, batch, generator()).backward()
    for ours, its in zip(encoder.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, its)
        assert ours is not its
        assert not torch.equal(ours.grad, its.grad)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.2, 1.5])
def test_impossible_alpha_is_rejected(alpha):
    with refused("MultiView", "alpha", alpha):
        MultiView(alpha=alpha)
    with refused("MultiView", "alpha", alpha):
        pretrain(recipe_of("gin", alpha=alpha), GRAPHS, device="cpu")


CANNOT = [name for name, kind in ENCODERS.items() if not (issubclass(kind, NodeEncoder) and kind.can_diffuse)]


@pytest.mark.parametrize("name", [name for name in CANNOT if ENCODERS[name].codes is None])
def test_encoders_without_a_diffusion_are_rejected(name):
    kind = ENCODERS[name].__name__
    with refused("MultiView", kind, "diffusion", "gin", "res_gcn"):
        pretrain(recipe_of(name), GRAPHS, device="cpu")


def test_molecules_need_an_encoder_with_diffusion():
    with refused("MultiView", "MoleculeGin", "diffusion", "gin", "molecules"):
        pretrain(recipe_of("molecule_gin", "molecules"), MOLECULES, device="cpu")
    trained = pretrain(recipe_of("gin", "molecules"), MOLECULES, device="cpu")
    assert trained.recipe.features == "labels"
    assert trained.embed(MOLECULES).isfinite().all()


@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in CANNOT])
def test_training_leaves_the_first_encoder_without_diffusion(name):
    trained = pretrain(recipe_of(name), GRAPHS, device="cpu")
    assert trained.encoder.diffusion is None
