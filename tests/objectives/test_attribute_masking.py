import pytest
import torch
from torch import nn

from joao.core.codes import NUM_ELEMENTS
from joao.objectives import AttributeMasking
from tests.messages import refused


class Shown(nn.Module):
    """Remembers what it is shown; its vectors are the nodes' numbers."""

    def encode_nodes(self, batch):
        self.batch = batch
        return torch.arange(batch.num_nodes, dtype=torch.float64).unsqueeze(1)


@pytest.fixture
def batch(make_batch, shapes, as_atoms):
    return as_atoms(make_batch([*shapes.values()] * 5))


@pytest.mark.parametrize("share", [0.0, 0.15, 0.5])
def test_loss_is_the_cross_entropy_of_the_masked_atoms_elements(batch, share, generator):
    encoder, objective = Shown(), AttributeMasking(share)
    parts = objective.parts(encoder, 1).double()
    assert parts.weight.shape == (NUM_ELEMENTS, 1)
    loss = objective(encoder.encode_nodes, parts, batch, generator())
    masked = (encoder.batch.x == -1).all(1).nonzero().flatten().tolist()
    total = 0.0
    for node in masked:
        scores = (parts.weight[:, 0] * node + parts.bias).detach()
        total += float(scores.exp().sum().log() - scores[int(batch.x[node, 0])])
    assert loss.item() == pytest.approx(total / len(masked))
    others = [node for node in range(batch.num_nodes) if node not in masked]
    assert torch.equal(encoder.batch.x[others], batch.x[others])
    sizes = batch.nodes_per_graph.tolist()
    counts = torch.bincount(batch.graph_of_node[masked], minlength=batch.num_graphs).tolist()
    assert counts == [min(int(share * size) + 1, size) for size in sizes]


def test_atoms_are_masked_uniformly(make_batch, as_atoms, generator, assert_law):
    batch, encoder = as_atoms(make_batch([(5, [])] * 4000)), Shown()
    objective = AttributeMasking(0.1)
    objective(encoder.encode_nodes, objective.parts(encoder, 1).double(), batch, generator())
    masked = (encoder.batch.x[:, 0] == -1).nonzero().flatten() % 5
    assert len(masked) == 4000
    assert_law(masked.tolist(), dict.fromkeys(range(5), 1 / 5))


def test_default_share_is_the_published_one(make_batch, as_atoms, generator):
    batch, encoder, objective = as_atoms(make_batch([(100, [])])), Shown(), AttributeMasking()
    objective(encoder.encode_nodes, objective.parts(encoder, 1).double(), batch, generator())
    assert (encoder.batch.x == -1).all(1).sum() == 15 + 1


def test_share_is_rounded_down_except_for_rounding_errors(make_batch, as_atoms, generator):
    batch = as_atoms(make_batch([(10, [])]))
    for share, count in ((0.3, 3), ((3 - 0.5e-9) / 10, 3), ((3 - 1.5e-9) / 10, 2)):
        encoder, objective = Shown(), AttributeMasking(share)
        objective(encoder.encode_nodes, objective.parts(encoder, 1).double(), batch, generator())
        assert (encoder.batch.x == -1).all(1).sum() == count + 1


def test_impossible_share_is_rejected():
    with refused("AttributeMasking", "share", 1.0):
        AttributeMasking(1.0)
