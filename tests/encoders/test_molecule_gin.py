from dataclasses import replace

import pytest
import torch

from joao.core.codes import NUM_BOND_TYPES, NUM_CHIRALITIES, NUM_ELEMENTS
from joao.core.graphs import GraphStore, concatenate
from joao.core.padded import stack_views
from joao.encoders import MoleculeGin
from joao.training.fast.batches import PaddedStore
from tests.messages import refused


@pytest.fixture
def batch(make_batch, shapes, as_atoms):
    batch = as_atoms(make_batch([*shapes.values()]))
    batch.x[3] = -1  # a masked atom
    return replace(batch, x=batch.x.double())


@pytest.fixture
def encoder(generator):
    """None of its parameters and statistics is at its start, so that every one of them counts."""
    encoder, draw = MoleculeGin(width=6, layers=3).double(), generator(5)
    for norm in encoder.norms:
        norm.running_mean.normal_(generator=draw)
        norm.running_var.uniform_(0.5, 2, generator=draw)
    for parameter in encoder.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=draw)
    return encoder


def by_loops(encoder, batch):
    """Atom by atom and bond by bond, from the published tables: a vector for every type and every direction."""
    elements, chiralities = encoder.atoms.split([NUM_ELEMENTS + 1, NUM_CHIRALITIES + 1])
    x = []
    for element, chirality in batch.x.long().tolist():
        x.append(elements[element] + chiralities[chirality])  # -1 is the last row, the token's
    x = torch.stack(x)
    bonds = [*zip(batch.source.tolist(), batch.target.tolist(), batch.edge_attr.long().tolist(), strict=True)]
    last = len(encoder.norms) - 1
    for layer in range(last + 1):
        types, directions = encoder.bonds[layer].split([NUM_BOND_TYPES + 1, 3])
        total = [x[v] + types[NUM_BOND_TYPES] + directions[0] for v in range(batch.num_nodes)]
        for u, v, (kind, direction) in bonds:
            total[v] = total[v] + x[u] + types[kind] + directions[direction]
        h = torch.stack(total) @ encoder.hidden[layer].weight.T + encoder.hidden[layer].bias
        h = h.clamp(min=0) @ encoder.outer[layer].weight.T
        norm = encoder.norms[layer]
        mean, variance = (
            (h.mean(0), h.var(0, correction=0)) if encoder.training else (norm.running_mean, norm.running_var)
        )
        x = (h - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
        x = x if layer == last else x.clamp(min=0)
    return torch.stack([x[batch.graph_of_node == graph].mean(0) for graph in range(batch.num_graphs)])


@pytest.mark.parametrize("training", [True, False])
def test_equals_loops_over_atoms_and_bonds_forward_and_backward(encoder, batch, training, generator):
    encoder.train(training)
    expected, found = by_loops(encoder, batch), encoder(batch)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=generator())
    one, other = (torch.autograd.grad((each * weights).sum(), encoder.parameters()) for each in (found, expected))
    for each, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(each, wanted)


def test_embeddings_equal_the_forward_pass_and_do_not_depend_on_the_order_of_graphs(encoder, batch):
    encoder.eval()
    with torch.no_grad():
        found = encoder.embed(batch)
        torch.testing.assert_close(found, by_loops(encoder, batch), rtol=1e-12, atol=1e-12)
        backwards = concatenate([batch.between(graph, graph + 1) for graph in reversed(range(batch.num_graphs))])
        assert torch.equal(encoder.embed(backwards).flip(0), found)


def test_size_as_published(generator):
    encoder = MoleculeGin()
    assert encoder.num_dimensions == 300
    # 120 elements and 4 chiralities with the tokens; bond types with the loop, directions; MLP 300-600-300, BN
    layer = 8 * 300 + (300 * 600 + 600) + 600 * 300 + 2 * 300
    assert sum(each.numel() for each in encoder.parameters()) == (120 + 5) * 300 + 5 * layer


def test_every_atom_and_bond_feature_matters(encoder, batch):
    encoder.eval()
    before = encoder(batch)
    for column, value in ((0, 40), (1, 3)):
        x = batch.x.clone()
        x[0, column] = value
        changed = (encoder(replace(batch, x=x)) != before).any(1)
        assert changed.tolist() == [True] + [False] * (batch.num_graphs - 1)
    bond = int((batch.graph_of_node[batch.target] == 3).nonzero()[0])
    for column in (0, 1):
        attr = batch.edge_attr.clone()
        attr[bond, column] = (attr[bond, column] + 1) % 3
        changed = (encoder(replace(batch, edge_attr=attr)) != before).any(1)
        assert changed.tolist() == [graph == 3 for graph in range(batch.num_graphs)]


def test_dropout_only_in_training(batch):
    torch.manual_seed(1)
    encoder = MoleculeGin(width=50, dropout=0.5).double()
    nodes = encoder.encode_nodes(batch)
    share = (nodes == 0).double().mean()
    assert 0.4 < share < 0.6
    assert not torch.equal(encoder(batch), encoder(batch))
    encoder.eval()
    assert torch.equal(encoder(batch), encoder(batch))
    assert (encoder.encode_nodes(batch) != 0).all()


def test_dropout_reaches_padded_views(make_batch, as_atoms):
    torch.manual_seed(1)
    alone = as_atoms(make_batch([(1, [])] * 40))  # single atoms: an embedding is its atom's vector
    edges = torch.zeros(41, dtype=torch.long)
    store = GraphStore(alone.x, alone.source, alone.target, torch.arange(41), edges, alone.edge_attr)
    views = stack_views([PaddedStore(store).batch(torch.arange(40), 45, 3)] * 2)
    encoder = MoleculeGin(width=50, dropout=0.5)
    embeddings = encoder.encode_padded(views)
    share = (embeddings == 0).float().mean()
    assert 0.4 < share < 0.6
    assert not torch.equal(embeddings[0], embeddings[1])
    encoder.eval()
    assert (encoder.encode_padded(views) != 0).all()


@pytest.mark.parametrize("options", [{"dropout": 1.0}, {"dropout": -0.1}])
def test_impossible_dropout_is_rejected(options):
    with refused("MoleculeGin", "dropout", *options.values()):
        MoleculeGin(**options)


def test_other_graphs_than_molecules_are_rejected():
    with refused("MoleculeGin", 7, 0, "gin"):
        MoleculeGin(7, 0)
