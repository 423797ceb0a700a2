"""Contract of encoders: one vector per graph that depends only on the graph and not on the order of its nodes.

The same holds for the node vectors of node encoders.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from joao.augmentations import AttributeMask, EdgePerturb, Identity, NodeDrop
from joao.core.graphs import GraphBatch
from joao.core.padded import stack_views
from joao.core.randomness import temporary_seed
from joao.encoders import ENCODERS, MoleculeGin, MoleculeGine, NodeEncoder, ResGcn
from joao.encoders.base import PaddedEncoder
from joao.training.fast.batches import PaddedStore
from tests.messages import refused
from tests.strategies import shapes

OF_NODES = pytest.mark.parametrize("kind", [each for each in ENCODERS.values() if issubclass(each, NodeEncoder)])


@pytest.fixture(params=ENCODERS.values())
def kind(request):
    return request.param


@pytest.fixture(params=[0, 1, 2], ids=lambda columns: f"{columns} edge columns")
def batch(request, kind, make_batch, shapes, as_input):
    batch = make_batch([*shapes.values()], with_attributes=True)
    # positive, because one column is taken for weights of edges
    attr = torch.cat([torch.cos(batch.edge_attr) + 1.5, batch.edge_attr], dim=1)[:, : request.param]
    batch = replace(batch, x=torch.sin(batch.x).double(), edge_attr=attr.double() if request.param else None)
    return as_input(kind, batch)


@pytest.fixture
def make(kind, batch):
    num_edge_features = 0 if batch.edge_attr is None else batch.edge_attr.shape[1]
    # Narrow, because the default widths are up to 300.
    return lambda **options: kind(batch.x.shape[1], num_edge_features, **{"width": 16, **options}).double()


def moved_statistics(encoder, batch):
    """In evaluation mode, after a training pass has moved the statistics away from their start."""
    encoder(batch)
    return encoder.eval()


def another_order(batch, generator):
    """New numbers for the nodes, graph by graph, by loops."""
    new_number = torch.empty(batch.num_nodes, dtype=torch.long)
    for graph in range(batch.num_graphs):
        nodes = (batch.graph_of_node == graph).nonzero().flatten()
        new_number[nodes] = nodes[torch.randperm(len(nodes), generator=generator)]
    return new_number


def renumbered(batch, new_number):
    """The same graphs with their nodes in another order, by loops."""
    edges = sorted((int(new_number[v]), int(new_number[u]), e) for e, (u, v) in enumerate(batch.edge_index.T.tolist()))
    old_edge = torch.tensor([e for _, _, e in edges])
    return GraphBatch(
        x=torch.empty_like(batch.x).index_copy(0, new_number, batch.x),
        source=torch.tensor([u for _, u, _ in edges]),
        target=torch.tensor([v for v, _, _ in edges]),
        graph_of_node=batch.graph_of_node,
        num_graphs=batch.num_graphs,
        edge_attr=None if batch.edge_attr is None else batch.edge_attr[old_edge],
    )


def test_one_row_of_the_promised_length_for_each_graph(make, batch):
    for options in ({}, {"width": 7, "layers": 2}):
        encoder = make(**options)
        assert encoder(batch).shape == (batch.num_graphs, encoder.num_dimensions)


def test_empty_batch_gives_no_rows(make, batch):
    """A process that has no part of a small last batch encodes none."""
    encoder = make().eval()
    made = encoder(batch.between(3, 3))
    assert made.shape == (0, encoder.num_dimensions)
    made.sum().backward()


def test_order_of_nodes_does_not_matter(make, batch, generator):
    encoder = moved_statistics(make(), batch)
    other = renumbered(batch, another_order(batch, generator()))
    torch.testing.assert_close(encoder(other), encoder(batch), rtol=1e-9, atol=1e-9)


def alone(batch, graph):
    kept = batch.keep_nodes(batch.graph_of_node == graph)
    return replace(kept, graph_of_node=torch.zeros_like(kept.graph_of_node), num_graphs=1)


def test_graphs_of_a_batch_do_not_influence_each_other(make, batch):
    encoder = moved_statistics(make(), batch)
    together = encoder(batch)
    for graph in range(batch.num_graphs):
        torch.testing.assert_close(encoder(alone(batch, graph))[0], together[graph], rtol=1e-9, atol=1e-9)


@OF_NODES
def test_one_row_of_the_promised_length_for_each_node(make, batch):
    for options in ({}, {"width": 7, "layers": 2}):
        encoder = make(**options)
        assert encoder.encode_nodes(batch).shape == (batch.num_nodes, encoder.num_node_dimensions)


@OF_NODES
def test_node_vectors_follow_a_permutation(make, batch, generator):
    encoder = moved_statistics(make(), batch)
    new_number = another_order(batch, generator())
    found = encoder.encode_nodes(renumbered(batch, new_number))
    torch.testing.assert_close(found[new_number], encoder.encode_nodes(batch), rtol=1e-9, atol=1e-9)


@OF_NODES
def test_nodes_depend_only_on_their_graph(make, batch):
    encoder = moved_statistics(make(), batch)
    together = encoder.encode_nodes(batch)
    for graph in range(batch.num_graphs):
        found = encoder.encode_nodes(alone(batch, graph))
        torch.testing.assert_close(found, together[batch.graph_of_node == graph], rtol=1e-9, atol=1e-9)


def test_edges_affect_the_embedding(make, batch):
    encoder = moved_statistics(make(), batch)
    without = encoder(batch.keep_edges(torch.zeros(batch.num_edges, dtype=torch.bool)))
    has_edges = torch.zeros(batch.num_graphs, dtype=torch.bool)
    has_edges[batch.graph_of_node[batch.source]] = True
    assert ((without != encoder(batch)).any(dim=1) == has_edges).all()


def test_gradient_reaches_every_parameter(make, batch, generator):
    encoder = make()
    embeddings = encoder(batch)
    (embeddings * torch.randn(embeddings.shape, dtype=torch.float64, generator=generator())).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_weights_are_a_function_of_the_seed(make):
    states = []
    for seed in (1, 1, 2):
        with temporary_seed(seed, "weights"):
            states.append(torch.cat([value.flatten().double() for value in make().state_dict().values()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("options", [{"width": 0}, {"layers": 0}])
def test_impossible_sizes_are_rejected(kind, options):
    with refused(*options, *options.values()):
        kind(3, **options)


def test_input_is_untouched(make, batch):
    before = batch.x.clone()
    make()(batch)
    assert torch.equal(batch.x, before)


PADDED = [(kind, {}) for kind in ENCODERS.values() if issubclass(kind, PaddedEncoder)]


READOUTS = [(MoleculeGine, {"readout": text}) for text in ("sum", "mean", "max", "log(max+mean+sum)")]


IN_TRAINING = [(*each, True) for each in (*PADDED, (ResGcn, {"residual": True}), *READOUTS)]
IN_EVALUATION = [(kind, {}, False) for kind in (ResGcn, MoleculeGin, MoleculeGine)]


@pytest.mark.parametrize(("kind", "options", "training"), IN_TRAINING + IN_EVALUATION)
def test_padded_views_match_plain_batches(kind, options, training, mutag, generator, as_input):
    store = mutag if kind.uses_edge_attr else replace(mutag, edge_attr=None)
    if kind.codes:
        atoms = as_input(kind, mutag.batch(torch.arange(188)))
        store = replace(mutag, x=atoms.x, edge_attr=atoms.edge_attr)
    given = PaddedStore(store).batch(torch.arange(30), 700, 1500)
    given = replace(given, x=given.x.double())
    draws = [NodeDrop(0.3), EdgePerturb(0.3), Identity()]
    draws += [AttributeMask(0.3, fill="token")] if kind.codes else []
    views = [augmentation.padded(given, generator(seed)) for seed, augmentation in enumerate(draws)]
    results = []
    for padded in (True, False):
        with temporary_seed(0, "weights"):
            encoder = kind(store.num_features, store.num_edge_features, width=6, **options).double()
        if not training:
            moved_statistics(encoder, views[0].compact())
        embeddings = (
            encoder.encode_padded(stack_views(views)) if padded else torch.stack([encoder(v.compact()) for v in views])
        )
        (embeddings * torch.randn(embeddings.shape, dtype=torch.float64, generator=generator())).sum().backward()
        results.append((embeddings, [each.grad for each in encoder.parameters()], [*encoder.buffers()]))
    for one, other in zip(results[0][1] + results[0][2], results[1][1] + results[1][2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-9)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(drawn=shapes(most_nodes=12))
def test_random_graphs_have_finite_vectors(kind, make_batch, as_input, drawn):
    batch = as_input(kind, make_batch(drawn))
    columns = 0 if batch.edge_attr is None else batch.edge_attr.shape[1]
    with temporary_seed(0, "weights"):
        encoder = kind(batch.x.shape[1], columns, width=8, layers=2).eval()
    together = encoder(batch)
    assert bool(together.isfinite().all())
    if kind.codes is None:
        alone = [
            encoder(replace(make_batch([one]), x=batch.x[batch.graph_of_node == n])) for n, one in enumerate(drawn)
        ]
        torch.testing.assert_close(torch.cat(alone), together, rtol=1e-4, atol=1e-4)
