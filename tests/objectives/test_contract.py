"""Contract of objectives.

Pair objectives: a finite loss for each pair of views, with any leading dimensions. Node objectives: a finite loss for
any graphs that depends only on the seed, with gradients for the encoder and the parts.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from joao.encoders import ENCODERS, MoleculeGin, NodeEncoder
from joao.objectives import OBJECTIVES, MomentumObjective, NodeObjective, PairObjective

PAIR_OBJECTIVES = {name: kind for name, kind in OBJECTIVES.items() if issubclass(kind, PairObjective)}
NODE_OBJECTIVES = {name: kind for name, kind in OBJECTIVES.items() if issubclass(kind, NodeObjective)}
NODE_ENCODERS = {name: kind for name, kind in ENCODERS.items() if issubclass(kind, NodeEncoder)}


def test_every_objective_is_of_one_kind():
    assert {**PAIR_OBJECTIVES, **NODE_OBJECTIVES} == OBJECTIVES
    assert not PAIR_OBJECTIVES.keys() & NODE_OBJECTIVES.keys()


def test_every_objective_declares_its_display_name():
    assert all(kind.title for kind in PAIR_OBJECTIVES.values())
    assert all(kind.methods and all(kind.methods.values()) for kind in NODE_OBJECTIVES.values())


def test_display_names_are_those_of_the_papers():
    titles = {"nt_xent": "NT-Xent", "jensen_shannon": "Jensen-Shannon", "barlow_twins": "Barlow Twins"}
    assert titles.items() <= {name: kind.title for name, kind in PAIR_OBJECTIVES.items()}.items()
    assert PAIR_OBJECTIVES["bootstrap"].title == "bootstrap"
    methods = {
        "edge_reconstruction": {"gae": "GAE", "edge_pred": "EdgePred"},
        "infomax": {"infomax": "Infomax"},
        "info_graph": {"infograph": "InfoGraph"},
        "multi_view": {"mvgrl": "MVGRL"},
        "context_prediction": {"context_pred": "ContextPred"},
        "attribute_masking": {"attr_masking": "AttrMasking"},
    }
    for name, expected in methods.items():
        assert NODE_OBJECTIVES[name].methods == expected


@pytest.fixture(params=PAIR_OBJECTIVES)
def pair_objective(request):
    return PAIR_OBJECTIVES[request.param]()


def test_leading_dimensions_are_broadcast(pair_objective, generator):
    first = torch.randn(3, 1, 6, 4, generator=generator(0))
    second = torch.randn(2, 6, 4, generator=generator(1))
    losses = pair_objective(first, second)
    assert losses.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(losses[i, j], pair_objective(first[i, 0], second[j]))


def test_order_of_the_graphs_does_not_matter(pair_objective, generator):
    first, second = torch.randn(2, 7, 4, generator=generator()).unbind()
    order = torch.randperm(7, generator=generator())
    torch.testing.assert_close(pair_objective(first[order], second[order]), pair_objective(first, second))


def test_views_that_agree_cost_less_than_the_same_views_shifted(pair_objective):
    z = torch.eye(5).repeat(1, 2)  # twice, for objectives whose views are predictions beside projections
    assert pair_objective(z, z) < pair_objective(z, z.roll(1, dims=0))


@pytest.mark.parametrize("zeros", [[0], [0, 3], [0, 1, 2, 3, 4]])
def test_zero_embeddings_give_a_finite_loss_and_gradient(pair_objective, zeros, generator):
    first, second = torch.randn(2, 5, 4, generator=generator()).unbind()
    first[zeros] = 0
    second[zeros[:1]] = 0
    first.requires_grad_()
    second.requires_grad_()
    loss = pair_objective(first, second)
    loss.backward()
    assert loss.isfinite()
    assert first.grad.isfinite().all()
    assert second.grad.isfinite().all()


def test_low_precision_views_are_compared_in_full_precision(pair_objective, generator):
    first, second = torch.randn(2, 6, 4, generator=generator()).bfloat16().unbind()
    full = pair_objective(first.float(), second.float())
    torch.testing.assert_close(pair_objective(first, second), full, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name, kind in PAIR_OBJECTIVES.items() if kind.static])
def test_static_objectives_access_no_values(name):
    without_values = torch.empty(3, 6, 4, device="meta")  # whatever asks for one fails
    assert PAIR_OBJECTIVES[name]()(without_values, without_values).shape == (3,)


@pytest.mark.parametrize(
    "name", [name for name, kind in PAIR_OBJECTIVES.items() if not issubclass(kind, MomentumObjective)]
)
def test_objectives_without_value_access_are_static(name):
    """So that it trains on the fast path. The copy of a momentum objective does not."""
    without_values = torch.empty(6, 4, device="meta")
    try:
        PAIR_OBJECTIVES[name]()(without_values, without_values)
    except NotImplementedError:
        assert not PAIR_OBJECTIVES[name].static
    else:
        assert PAIR_OBJECTIVES[name].static


def test_defaults_of_custom_objectives():
    """A component of somebody else's must say that it can be replayed, and what it cannot do without."""
    assert not PairObjective.static
    assert not NodeObjective.needs_atoms
    assert not NodeObjective.needs_diffusion


def can_train(objective, encoder):
    """Whether the encoder has the atoms or the diffusion that the objective needs."""
    return not (objective.needs_atoms and encoder is not MoleculeGin) and (
        encoder.can_diffuse or not objective.needs_diffusion
    )


NODE_CASES = [
    (objective, encoder)
    for objective in NODE_OBJECTIVES
    for encoder in NODE_ENCODERS
    if can_train(NODE_OBJECTIVES[objective], NODE_ENCODERS[encoder])
]


def test_every_node_objective_can_train_an_encoder():
    assert {objective for objective, _ in NODE_CASES} == {*NODE_OBJECTIVES}


@pytest.fixture(params=NODE_CASES, ids="-".join)
def node_case(request):
    return request.param


@pytest.fixture
def node_objective(node_case):
    return NODE_OBJECTIVES[node_case[0]]()


@pytest.fixture
def kind(node_case):
    """Of an encoder."""
    return NODE_ENCODERS[node_case[1]]


@pytest.fixture
def encoder(kind):
    return kind(width=8) if kind.codes else kind(3, width=8)


@pytest.fixture
def make_graphs(make_batch, as_input):
    """Graphs as the encoder takes them."""

    def make(kind, shapes):
        batch = make_batch(shapes)
        return as_input(kind, batch if kind.codes else replace(batch, x=torch.sin(batch.x)))

    return make


@pytest.fixture
def batch(make_graphs, kind, shapes):
    """Every shape several times, so that whatever is drawn, all kinds of pairs are there."""
    return make_graphs(kind, [*shapes.values()] * 4)


class Given(nn.Module):
    """Vectors that depend on the nodes' features alone, of any precision."""

    def __init__(self, dtype, precision=None):
        super().__init__()
        self.dtype, self.precision = dtype, precision or dtype

    def encode_nodes(self, batch):
        columns = [batch.x, torch.cos(2 * batch.x)]
        return torch.cat(columns, dim=1).to(self.precision).to(self.dtype)


def learned(loss, module):
    """The names of parameters to which ``loss`` has a gradient other than 0."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
    return {name for name, gradient in zip(names, gradients, strict=True) if gradient is not None and gradient.any()}


def test_graphs_of_any_shape_give_a_finite_loss_and_gradient(node_objective, encoder, make_graphs, shapes, generator):
    parts = node_objective.parts(encoder, encoder.num_node_dimensions)
    for seed, (num_graphs, shape) in enumerate(product((2, 3), shapes.values())):
        graphs = make_graphs(type(encoder), [shape] * num_graphs)
        loss = node_objective(encoder.encode_nodes, parts, graphs, generator(seed))
        assert loss.shape == ()
        assert loss.isfinite()
        learned(loss, nn.ModuleList([encoder, parts]))


def test_gradient_reaches_encoder_and_parts(node_objective, encoder, batch, generator):
    parts = node_objective.parts(encoder, encoder.num_node_dimensions)
    loss = node_objective(encoder.encode_nodes, parts, batch, generator())
    vectors = encoder.encode_nodes(batch)
    takes_part = learned((vectors * torch.randn(vectors.shape, generator=generator())).sum(), encoder)
    assert learned(loss, encoder) == takes_part
    # A part that is an encoder again has layers behind the nodes' vectors, which rest.
    resting = {name for name, _ in encoder.named_parameters()} - takes_part
    names = {name for name, _ in parts.named_parameters()}
    assert not names or learned(loss, parts) == names - resting - {f"encoder.{name}" for name in resting}


def test_parts_do_not_share_tensors_with_the_encoder(node_objective, encoder):
    parts = node_objective.parts(encoder, encoder.num_node_dimensions)
    ours = {id(tensor) for tensor in (*encoder.parameters(), *encoder.buffers())}
    assert not ours & {id(tensor) for tensor in (*parts.parameters(), *parts.buffers())}


def test_loss_is_a_function_of_the_seed(node_objective, encoder, batch, generator):
    encoder.eval()
    parts = node_objective.parts(encoder, encoder.num_node_dimensions)
    global_state = torch.get_rng_state()
    first, second = (node_objective(encoder.encode_nodes, parts, batch, generator(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), global_state)


def test_graphs_are_not_modified(node_objective, encoder, make_graphs, shapes, generator, assert_same):
    batch, same = (make_graphs(type(encoder), [*shapes.values()]) for _ in range(2))
    node_objective(encoder.encode_nodes, node_objective.parts(encoder, encoder.num_node_dimensions), batch, generator())
    assert_same(batch, same)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_low_precision_vectors_are_scored_in_full_precision(node_objective, batch, precision, generator):
    low, same = Given(precision), Given(torch.float32, precision)
    size = low.encode_nodes(batch).shape[1]
    parts = node_objective.parts(low, size)
    same_parts = same if isinstance(parts, Given) else parts
    expected = node_objective(same.encode_nodes, same_parts, batch, generator())
    assert expected.dtype == torch.float32
    torch.testing.assert_close(node_objective(low.encode_nodes, parts, batch, generator()), expected, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = node_objective(low.encode_nodes, parts, batch, generator())
    torch.testing.assert_close(mixed, expected, rtol=0, atol=0)


def test_double_precision_is_kept(node_objective, batch, generator):
    double = Given(torch.float64)
    parts = node_objective.parts(double, double.encode_nodes(batch).shape[1]).double()
    assert node_objective(double.encode_nodes, parts, batch, generator()).dtype == torch.float64
