"""The three networks of the OGB setting, against their equation written out in loops."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.encoders import OgbGin, OgbMoleculeGin, SyntaxGin
from joao.encoders.ogb import next_tokens
from tests.messages import refused

KINDS = [OgbGin, OgbMoleculeGin, SyntaxGin]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def batch(kind, make_batch, shapes, as_input):
    batch = make_batch([*shapes.values()], with_attributes=True)
    attr = torch.stack([torch.sin(k + 1.7 * batch.edge_attr[:, 0]) for k in range(7)], dim=1)
    return as_input(kind, replace(batch, x=torch.sin(batch.x).double(), edge_attr=attr.double()))


@pytest.fixture
def encoder(kind, batch):
    # Statistics that differ from their start, and weights of a node that differ from 0.
    encoder = kind(batch.x.shape[1], batch.edge_attr.shape[1], width=7, layers=3).double()
    with torch.no_grad():
        for number, own in enumerate(encoder.layers.own):
            own.fill_(0.3 * number - 0.2)
    encoder(batch)
    return encoder


def row_of(table, sizes, column, code):
    """The vector of a number in the table of a column: behind the tables before, the mask token's first."""
    first = sum(size + 1 for size in sizes[:column])
    return table[first if code < 0 else first + 1 + min(code, sizes[column] - 1)]


def begin(encoder, batch, node):
    codes = batch.x[node].long().tolist()
    if isinstance(encoder, OgbGin):
        return encoder.first.weight @ batch.x[node]
    if isinstance(encoder, OgbMoleculeGin):
        return sum(row_of(encoder.atoms.weight, OGB_ATOM_SIZES, column, code) for column, code in enumerate(codes))
    sizes = (98, 10_030, 21)
    return sum(row_of(encoder.nodes.weight, sizes, column, code) for column, code in enumerate(codes[:3]))


def messages(encoder, batch):
    """Source, target and what a layer adds to a message, as a function of its weights, edge by edge."""
    for edge, (u, v) in enumerate(batch.edge_index.T.tolist()):
        numbers = batch.edge_attr[edge]
        if isinstance(encoder, OgbGin):
            yield u, v, lambda w, numbers=numbers: w[:, :-1] @ numbers + w[:, -1]
        elif isinstance(encoder, OgbMoleculeGin):
            places = [sum(OGB_BOND_SIZES[:k]) + int(code) for k, code in enumerate(numbers)]
            yield u, v, lambda w, places=places: sum(w[:, place] for place in places)
        else:
            yield u, v, lambda w, up=numbers[0]: up * w[:, 1] + w[:, 2]
    if isinstance(encoder, SyntaxGin):
        for graph in range(batch.num_graphs):
            tokens = [v for v in range(batch.num_nodes) if batch.graph_of_node[v] == graph and batch.x[v, 3] >= 0]
            tokens.sort(key=lambda v: float(batch.x[v, 3]))
            for u, v in pairwise(tokens):
                yield u, v, lambda w: w[:, 0] + w[:, 2]
                yield v, u, lambda w: w[:, 0] + w[:, 1] + w[:, 2]


def normalised(rows, norm):
    if norm.training:
        mean, variance = rows.mean(0), rows.var(0, unbiased=False)
    else:
        mean, variance = norm.running_mean, norm.running_var
    return (rows - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


def by_loops(encoder, batch):
    x = [begin(encoder, batch, node) for node in range(batch.num_nodes)]
    layers = encoder.layers
    for number, (own, edges, mlp, norm) in enumerate(
        zip(layers.own, layers.edges, layers.mlps, layers.norms, strict=True)
    ):
        summed = [(1 + own) * row for row in x]
        for u, v, vector in messages(encoder, batch):
            summed[v] = summed[v] + (x[u] + vector(edges.weight)).clamp(min=0)
        hidden = normalised(torch.stack([mlp[0].weight @ row for row in summed]), mlp[1]).clamp(min=0)
        out = normalised(hidden @ mlp[3].weight.T, norm)
        x = list(out.clamp(min=0) if number < len(layers.mlps) - 1 else out)
    return torch.stack(x)


@pytest.mark.parametrize("training", [True, False])
def test_matches_the_equation(encoder, batch, training):
    encoder.train(training)
    expected = by_loops(encoder, batch)
    torch.testing.assert_close(encoder.encode_nodes(batch), expected)
    means = [expected[batch.graph_of_node == graph].mean(0) for graph in range(batch.num_graphs)]
    torch.testing.assert_close(encoder(batch), torch.stack(means))


def test_published_sizes():
    d = 300
    layer = 1 + d * 2 * d + 2 * 2 * d + 2 * d * d + 2 * d
    for encoder, first, edges in (
        (OgbGin(1, 7), d, 7 + 1),
        (OgbMoleculeGin(), d * (sum(OGB_ATOM_SIZES) + len(OGB_ATOM_SIZES)), sum(OGB_BOND_SIZES)),
        (SyntaxGin(), d * (98 + 10_030 + 21 + 3), 2 + 1),
    ):
        assert sum(each.numel() for each in encoder.parameters()) == first + 5 * (layer + edges * d)
        assert encoder.num_dimensions == d


@pytest.mark.parametrize("kind", [OgbMoleculeGin, SyntaxGin])
def test_mask_token_and_out_of_range_codes(kind, encoder, batch):
    encoder.eval()
    first, tables = encoder.encode_nodes(batch), (encoder.atoms if kind is OgbMoleculeGin else encoder.nodes)
    columns = len(OGB_ATOM_SIZES) if kind is OgbMoleculeGin else 3
    hidden, huge = batch.x.clone(), batch.x.clone()
    hidden[4], huge[4, :columns] = -1, 1e6
    last = batch.x.clone()
    last[4, :columns] = torch.tensor(OGB_ATOM_SIZES if kind is OgbMoleculeGin else (98, 10_030, 21)).double() - 1
    found = [encoder.encode_nodes(replace(batch, x=x)) for x in (hidden, huge, last)]
    torch.testing.assert_close(found[1], found[2])
    assert not torch.allclose(found[0], first)
    found[0].square().sum().backward()
    sizes = OGB_ATOM_SIZES if kind is OgbMoleculeGin else (98, 10_030, 21)
    token_rows = [sum(size + 1 for size in sizes[:column]) for column in range(columns)]
    assert tables.weight.grad[token_rows].any(dim=1).all()


@pytest.mark.parametrize("kind", [SyntaxGin])
def test_removing_a_token_closes_the_chain(batch):
    token, following = next_tokens(batch)
    pairs = list(zip(token.tolist(), following.tolist(), strict=True))
    assert pairs
    assert all(batch.graph_of_node[u] == batch.graph_of_node[v] for u, v in pairs)
    middle = next(v for u, v in pairs if v in token.tolist())
    before, behind = next(u for u, v in pairs if v == middle), next(v for u, v in pairs if u == middle)
    keep = torch.ones(batch.num_nodes, dtype=torch.bool)
    keep[middle] = False
    fewer = next_tokens(batch.keep_nodes(keep))
    left = [pair for pair in [*pairs, (before, behind)] if middle not in pair]
    renamed = {(int(keep[:u].sum()), int(keep[:v].sum())) for u, v in left}
    assert set(zip(*(ends.tolist() for ends in fewer), strict=True)) == renamed


def test_dropout_only_in_training(kind, batch):
    encoder = kind(batch.x.shape[1], batch.edge_attr.shape[1], width=50, layers=1, dropout=0.5).double()
    zeros = (encoder.encode_nodes(batch) == 0).double().mean()
    assert abs(float(zeros) - 0.5) < 0.05
    assert (encoder.eval().encode_nodes(batch) != 0).all()


@pytest.mark.parametrize(
    ("kind", "options", "values"),
    [
        (OgbGin, {"num_features": 1, "dropout": 1.0}, ["dropout", 1.0]),
        (OgbMoleculeGin, {"num_features": 2}, [9, 3, 2, "molecule_gin"]),
        (SyntaxGin, {"num_edge_features": 0}, [4, 0, "gin"]),
        (SyntaxGin, {"types": 0}, ["types", 0]),
    ],
)
def test_invalid_options_are_rejected(kind, options, values):
    with refused(kind.__name__, *values):
        kind(**options)
